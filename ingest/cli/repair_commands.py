"""Commands that check and repair: ``fsck | replay | replay-quarantine``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from ingest.cli.app import AsJson, Conf, LogJson, Verbose, app
from ingest.cli.logs import configure_logging
from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, open_timeline
from ingest.driver.summary import Mode, Summary
from ingest.protocol.counts import left_out
from ingest.reports.recovery_text import waiting_text


@app.command(short_help="Compare timeline and targets; delete what was decided against.")
def fsck(
    conf: Conf,
    fix: Annotated[bool, typer.Option("--fix", help="Delete data that a decision was made against.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Open every data file and count its rows.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for a writer that may be alive.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare the timeline with every target: files, sizes, rows, offsets, locks, log entries.

    Reads only, beside a running job too. --fix deletes orphans: data of instants that were rolled back, and
    copies that no manifest names. Nothing else is ever deleted. Exit code 6 where something is wrong.
    """
    from ingest.driver import fsck as checks
    from ingest.reports.fsck_text import fsck_json, fsck_lines

    console = Console(stderr=True)
    configure_logging(console, as_json=False, verbose=verbose)
    opened = open_timeline(load_config(conf))
    if fix:
        found = checks.fix(opened, force=force, on_wait=lambda writer: console.print(waiting_text(writer)))
    else:
        found = checks.check(opened, is_deep=deep)
    if as_json:
        typer.echo(json.dumps(fsck_json(found), indent=2))
    else:
        for line in fsck_lines(found):
            typer.echo(line)
    if not found.is_clean:
        raise typer.Exit(6)


@app.command(short_help="Put back epochs that a target has lost.")
def replay(
    conf: Conf,
    epochs: Annotated[
        str | None, typer.Option("--epochs", metavar="N..M", help="Only these of the lost epochs.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; touch nothing.")] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Give up the lost epochs, or with --epochs all others; record the hole."),
    ] = False,
    as_json: AsJson = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Put back the rows of epochs that a target has lost: it was deleted, made anew, overwritten or restored.

    Data files that are still there are named again; other epochs are read from the source by their offsets, and have
    to give the same rows. All of it is one epoch on the timeline. No JVM; the job itself must not run meanwhile.
    """
    from ingest.cli.signals import StopSignals
    from ingest.driver.put_back import ReplayRequest, examine_losses, put_back
    from ingest.driver.run_resources import RunResources
    from ingest.execution.runner import LocalRunner
    from ingest.reports.replay_text import parse_epochs, replay_json, replay_lines

    console = Console(stderr=True)
    configure_logging(console, as_json=log_json, verbose=verbose)
    wanted = ReplayRequest(parse_epochs(epochs) if epochs is not None else None, accept_loss)
    opened = open_timeline(load_config(conf))
    if dry_run:
        found = examine_losses(opened, wanted)
    else:
        signals = StopSignals()
        signals.install()
        writers = RunResources(LocalRunner, signals.stop, accept_loss=False)
        try:
            found = put_back(opened, wanted, lambda: writers.pipeline(opened, is_isolated=True), signals.stop)
        finally:
            writers.close()
    if as_json:
        typer.echo(json.dumps(replay_json(found, dry_run=dry_run), indent=2))
    else:
        for line in replay_lines(found, dry_run=dry_run):
            typer.echo(line)
    if found.losses and dry_run:
        raise typer.Exit(5)


@app.command(short_help="Take rejected records in by a corrected job file.")
def replay_quarantine(
    conf: Conf,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decode them and say what would be accepted.")] = False,
    as_json: AsJson = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Decode rejected records with the current job file, and commit them as one epoch: each record once.

    Records that are rejected again wait for the next replay. Rows that a target refused (a key that exists) are not
    replayed: the other targets have them. No JVM but for a job with a query; the job itself must not run meanwhile.
    """
    from ingest.cli.console import ProgressLine
    from ingest.cli.signals import StopSignals
    from ingest.driver.loop import IngestLoop
    from ingest.driver.quarantine_replay import QuarantinePreview, try_rejected
    from ingest.execution.engine import start_spark
    from ingest.execution.runner import LocalRunner, Runner

    console = Console(stderr=True)
    configure_logging(console, as_json=log_json, verbose=verbose)
    opened = open_timeline(load_config(conf))
    trial = try_rejected(opened)
    if dry_run or not trial.accepted:
        # An epoch that only rejects the same records again is useless.
        typer.echo(json.dumps(trial.as_json(), indent=2) if as_json else trial.words(is_dry_run=dry_run))
        return
    signals = StopSignals()
    signals.install()
    with ProgressLine(console) as progress:

        def open_runner() -> Runner:
            if opened.config.transform is None:
                return LocalRunner()
            progress.starting_engine()
            return start_spark(opened.config, signals.stop, progress.tasks, on_start=signals.install)

        loop = IngestLoop(opened, open_runner, mode=Mode.REJECTED, stop=signals.stop, listeners=(progress,))
        summary = loop.run()
    # Rows that a target refuses are in the summary's `rows` and `rejected`: their sum is not the records read.
    replayed = QuarantinePreview(summary.read, summary.rows, {})
    if as_json:
        typer.echo(json.dumps(replayed.as_json(), indent=2))
    else:
        typer.echo(
            f"{opened.config.name}: {replayed.done()}{_refused(opened, summary)}"
            if summary.epochs
            else summary.exit_message
        )


def _refused(opened: TimelineHandle, summary: Summary) -> str:
    """Text about the targets that did not write every replayed row."""
    quarantine = opened.config.quarantine.name
    return left_out({target: rows for target, rows in summary.targets.items() if target != quarantine})
