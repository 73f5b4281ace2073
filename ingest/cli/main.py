"""The command line: ``tideline run | recover | …``; further commands are in the modules of `COMMANDS`.

Exit codes are in `ingest.cli.exit_codes`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ingest.cli import commands, picture_commands, repair_commands
from ingest.cli.app import ORDER, AsJson, Conf, LogJson, Verbose, app
from ingest.cli.console import ProgressLine, output, summary_text
from ingest.cli.exit_codes import exit_code
from ingest.cli.logs import configure_logging, report_failure
from ingest.cli.plugins import plugin_of
from ingest.cli.signals import StopSignals
from ingest.cli.streams import unheard_ends
from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, open_timeline
from ingest.driver.exit_message import ExitMessage
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode
from ingest.driver.takeover import examine, run_recovery
from ingest.execution.engine import start_spark
from ingest.execution.runner import Runner, open_runner
from ingest.execution.spark.cluster import with_submitted_master
from ingest.execution.spark.jvm import is_submitted, stop_with_submit, submitted_settings
from ingest.execution.spark.package import main_script, write_package
from ingest.listeners.run_listeners import listening
from ingest.protocol.recovery import StepKind
from ingest.reports.recovery_text import recovery_json, recovery_lines, waiting_text
from timeline import errors, failpoints
from timeline.redact import shown_error
from timeline.stores.opening import GONE, is_below_removed_directory
from timeline.stores.refusals import is_full, store_error

COMMANDS = (commands, picture_commands, repair_commands)
"""Modules whose commands are part of the app."""


@app.command(short_help="Recover what is pending, then ingest.")
def run(
    conf: Conf,
    once: Annotated[bool, typer.Option("--once/--continuous", help="Take what is there and end, or go on.")] = True,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on behind records that the source no longer has; record the hole.")
    ] = False,
    new_source: Annotated[
        bool, typer.Option("--new-source", help="The job was renamed, or its source moved, on purpose: go on.")
    ] = False,
    new_timeline: Annotated[
        bool, typer.Option("--new-timeline", help="Begin anew beside rows of a timeline of this job that is gone.")
    ] = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Recover what is pending, then ingest.

    One process at a time writes a timeline; a second one says who does. SIGTERM or Ctrl-C settles the
    open epoch and ends; after anything harder the next start recovers.
    """
    console = Console(stderr=True)
    configure_logging(console, as_json=log_json, verbose=verbose)
    config = load_config(conf)
    exit_message = ExitMessage(conf)
    mode = Mode.ONCE if once else Mode.CONTINUOUS
    try:
        opened = open_timeline(config, is_moved=new_source, allows_new_timeline=new_timeline)
        _ingest(opened, console, exit_message, mode=mode, accept_loss=accept_loss)
    except Exception as error:  # the process's edge: `exit_message` knows the epoch's outcome here, main does not
        raise typer.Exit(_report(error, exit_message)) from None


def _ingest(
    opened: TimelineHandle, console: Console, exit_message: ExitMessage, *, mode: Mode, accept_loss: bool
) -> None:
    """Run the loop with all listeners that the job file names."""
    config = opened.config
    signals = StopSignals()
    signals.install()
    if is_submitted():
        config = with_submitted_master(config, submitted_settings().get("spark.master"))
        opened = replace(opened, config=config)
        stop_with_submit(signals.stop)
    started = time.monotonic()
    with listening(config, accept_loss=accept_loss) as watchers, ProgressLine(console) as progress:
        if watchers.metrics_url is not None and console.is_terminal:
            console.print(f"metrics at {watchers.metrics_url}", soft_wrap=True)

        def start_engine() -> Runner:
            progress.starting_engine()
            return start_spark(config, signals.stop, progress.tasks, on_start=signals.install)

        loop = IngestLoop(
            opened,
            lambda: open_runner(config, start_engine),
            mode=mode,
            stop=signals.stop,
            # The progress line last: once it shows an epoch, the metrics have the epoch too.
            listeners=(exit_message, *watchers.listeners, progress),
            accept_loss=accept_loss,
        )
        summary = loop.run()
    typer.echo(summary_text(config.name, summary, time.monotonic() - started))


@app.command(short_help="Settle what is pending; no JVM.")
def recover(
    conf: Conf,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; touch nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for a writer that may be alive.")] = False,
    as_json: AsJson = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Bring every pending instant to its end, from storage alone: no Spark, no JVM, about a second.

    A decided epoch is applied and completed. An undecided one is committed if it is prepared and every
    file is there, else rolled back. A writer that may be alive is waited for. An epoch that a target has
    lost is named, with exit code 9: tideline run writes it to that target again. Completed epochs that are not in
    their targets any more are named with exit code 5; so is a decided one whose data files are gone.
    """
    console = Console(stderr=True)
    configure_logging(console, as_json=log_json, verbose=verbose)
    opened = open_timeline(load_config(conf))
    if dry_run:
        result = examine(opened, force=force)
    else:
        result = run_recovery(
            opened,
            force=force,
            on_wait=lambda writer: console.print(waiting_text(writer)),
        )
    if as_json:
        typer.echo(json.dumps(recovery_json(result, dry_run=dry_run), indent=2))
    else:
        for line in recovery_lines(result, dry_run=dry_run):
            typer.echo(line)
    if result.is_waiting:
        raise typer.Exit(3)
    if result.losses or any(step.kind is StepKind.REFUSE for _, step in result.found):
        raise typer.Exit(5)
    if result.replays or (dry_run and any(step.kind is StepKind.REPLAY for _, step in result.found)):
        raise typer.Exit(9)


@app.command(short_help="Print rows of a TiKV target, or of another whose sink reads them.")
def read(
    conf: Conf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many rows.")] = 20,
    target: Annotated[str | None, typer.Option("--target", help="Which one, where the job has several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print rows of a target from one snapshot, as another client sees them; of TiKV in the order of their keys.

    Where an epoch is open the snapshot is one from before it.
    """
    opened = open_timeline(load_config(conf))
    from ingest.cli.read import readable_target, rows_as_json, rows_table

    sink = readable_target(opened, target)
    if as_json:
        for line in rows_as_json(sink, limit):
            typer.echo(line)
    else:
        output().print(rows_table(sink, limit))


@app.command(short_help="See the promise kept, on generated logs.")
def demo(
    rows: Annotated[int, typer.Option(min=1000, help="Log lines to generate.")] = 200_000,
    crash: Annotated[bool, typer.Option("--crash", help="Kill the job in the middle, recover, go on.")] = False,
    folder: Annotated[Path, typer.Option(help="Where to work; what is in it from an earlier demo goes.")] = Path(
        "demo"
    ),
) -> None:
    """Generate a log, ingest it, and prove from the table that every line is there once."""
    from ingest.cli.demo import run_demo

    run_demo(folder, rows, crash=crash, console=output())


@app.command(short_help="Try out whether a store keeps what Tideline needs.")
def check_store(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where a timeline or table would lie.")],
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A storage option; dots lead into blocks. Repeatable.")
    ] = None,
    conf: Annotated[Path | None, typer.Option(metavar="CONF", help="Job file whose storage options to use.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and crash points.")] = False,
    as_json: AsJson = False,
) -> None:
    """Race, list, replace and crash below a scratch prefix of URL, which is removed afterwards.

    The last line says whether the store is safe for Tideline; where it is not, the exit code is 6.
    """
    from ingest.check_store import run as checks

    console = Console(stderr=True)
    configure_logging(console, as_json=False, verbose=False)
    logging.disable(logging.INFO)  # transitions of the jobs that are killed on purpose
    storage = checks.storage_options(option or (), load_config(conf).storage if conf else {})
    signals = StopSignals("the scratch prefix is removed first")
    signals.install()
    try:
        with console.status("starting") as status:
            report = checks.check_store(url, storage, quick=quick, stop=signals.stop, on_check=status.update)
    except errors.StoppedError:
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(checks.report_json(report), indent=2))
    else:
        output().print(checks.findings_table(report))
        typer.echo(report.conclusion)
    if not report.is_safe:
        raise typer.Exit(6)


@app.command(short_help="Pack Tideline for spark-submit.")
def package(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="ZIP", help="The zip; tideline_main.py is written beside it.")
    ] = Path("tideline.zip"),
) -> None:
    """Write Tideline as a zip for --py-files of spark-submit, and the script for it to start.

    Only for those who start by spark-submit: tideline run ships itself to the executors of a cluster.
    """
    if output.suffix != ".zip":
        raise errors.ConfigError(f"--output {output}: Spark puts files on Python's path that end in .zip; name it so")
    output.parent.mkdir(parents=True, exist_ok=True)
    script = output.with_name("tideline_main.py")
    write_package(output)
    script.write_bytes(main_script())
    typer.echo(f"{output} and {script}: spark-submit --master URL --py-files {output} {script} run job.yaml")


def _place(command: typer.models.CommandInfo) -> int:
    assert command.callback is not None
    return ORDER.index(command.name or command.callback.__name__.replace("_", "-"))


app.registered_commands.sort(key=_place)


def main() -> None:
    """Entry point: every error becomes one message and an exit code."""
    # gRPC, where a target needs it, needs no fork support: the process forked here is Spark's JVM.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    with unheard_ends():
        try:
            _arm_crash_point()
            app()
        except Exception as error:
            raise SystemExit(_report(error)) from None


def _report(error: Exception, exit_message: ExitMessage | None = None) -> int:
    """Print one message with the error and the epoch's outcome; returns the exit code."""
    kind, about = type(error).__name__, exit_message.ref if exit_message is not None else None

    def whole(message: str) -> str:
        return exit_message.after(error, message) if exit_message is not None else message

    match error:
        case errors.TidelineError():
            report_failure(whole(str(error)), kind, about=about)
            return exit_code(error)
        case FileNotFoundError() if is_below_removed_directory(error):
            gone = errors.ConfigError(f"{error.filename}: {GONE}")
            report_failure(whole(str(gone)), type(gone).__name__, about=about)
            return exit_code(gone)
        case OSError():
            told = store_error("the operating system does not do as asked", error, shown_error(error))
            again = "" if is_full(error) else "; nothing is lost, start again"
            report_failure(whole(f"{told}{again}"), kind, error, about)
            return exit_code(told)
        case _:
            package = plugin_of(error)
            next_step = (
                "Please report it with the output of the same command with --verbose"
                if package is None
                else f"It comes from the package {package}, which provides a sink or store of this job: mend it there"
            )
            words = f"unforeseen {shown_error(error)}. Nothing is lost: the next start recovers. {next_step}"
            report_failure(whole(words), kind, error, about)
            return 1


def _arm_crash_point() -> None:
    """Let tests kill this process at a named step of the protocol."""
    setting = os.environ.get("TIDELINE_CRASH_AT")
    if setting:
        try:
            failpoints.arm_from(setting)
        except ValueError as error:
            raise errors.ConfigError(f"TIDELINE_CRASH_AT: {error}") from None
