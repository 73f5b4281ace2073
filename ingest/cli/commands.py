"""Read-only commands: `tideline show`, `inspect`, `offsets`, `watch`. No JVM, and nothing is written."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.app import AsJson, Conf, app
from timeline.instant import Action

if TYPE_CHECKING:
    from rich.console import Console

    from ingest.driver.build import TimelineHandle

Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="Newest instants shown; 0: all.")]


@app.command(short_help="Print the timeline.")
def show(
    conf: Conf,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="From then on: 2h, 3d, 2026-03-01T10:15, an instant.")
    ] = None,
    pending: Annotated[bool, typer.Option("--pending", help="Only what is not done.")] = False,
    action: Annotated[
        list[Action] | None, typer.Option("--action", metavar="ACTION", help="Only commit, rollback, … Repeatable.")
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, help="Only this epoch.")] = None,
    limit: Limit = 30,
    as_json: AsJson = False,
) -> None:
    """Print the timeline: what was ingested when, what was rolled back, why and by whom, what is pending.

    Filters add up; what they leave out is not read.
    """
    from ingest.cli.console import output
    from ingest.config.load import load_config
    from ingest.driver.build import open_timeline
    from ingest.driver.losses import require_known
    from ingest.reports.instants import instants_view, shown_instants
    from ingest.reports.selection import Selection, parse_since, select
    from timeline.formatting import count
    from timeline.history.rows import as_json as json_word
    from timeline.history.timeline import Timeline

    now_ms = time.time_ns() // 1_000_000
    since_time = parse_since(since, now_ms) if since is not None else None
    wanted = Selection(since_time, pending, tuple(action or ()), epoch, limit)
    opened = open_timeline(load_config(conf))
    timeline = Timeline.load(opened.store, opened.retry)
    chosen, hidden = select(timeline, wanted)
    rows = shown_instants(chosen.history())
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2, default=json_word))
        require_known(opened)
        return
    console = output()
    if not rows:
        nothing = "no instants yet" if not len(timeline) else f"none of {count(len(timeline), 'instant')} is asked for"
        console.print(f"{opened.store.url}: {nothing}", soft_wrap=True)
        _print_end(console, opened)
        require_known(opened)
        return
    console.print(instants_view(rows, console.width))
    if hidden:
        console.print(f"{count(hidden, 'older instant')} not shown (--limit 0 shows all)")
    waiting = len(chosen.pending())
    if waiting:
        words = f"{waiting} pending: tideline recover {conf} --dry-run tells what would become of it"
        console.print(words, style="yellow", soft_wrap=True, highlight=False)
    _print_end(console, opened)
    for name in timeline.unreadable:
        console.print(f"not read: {name}", style="yellow", soft_wrap=True)
    require_known(opened)


def _print_end(console: Console, opened: TimelineHandle) -> None:
    """Print the error that ended the last writer, where one did."""
    from timeline.lease import latest_writer

    writer = latest_writer(opened.store, opened.retry)
    if writer is not None and writer.ended_by:
        words = f"the last writer ({writer.process}, generation {writer.generation}) was ended by: {writer.ended_by}"
        console.print(words, style="red", soft_wrap=True, highlight=False, markup=False)


@app.command(short_help="Print everything about one instant.")
def inspect(
    conf: Conf,
    instant: Annotated[
        str, typer.Argument(metavar="INSTANT", help="Its time or the beginning of it, latest, or epoch:N.")
    ],
    files: Annotated[int, typer.Option("--files", min=0, help="Files listed; 0: all.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print everything about one instant: plan, manifest, decision, times, offsets, files; why it was rolled back.

    Of a pending one also what recovery would do with it now, and why. Nothing is touched.
    """
    from ingest.cli.console import output
    from ingest.config.load import load_config
    from ingest.driver.build import open_timeline
    from ingest.driver.losses import require_known
    from ingest.reports.inspection import inspect_instant, inspection_json
    from ingest.reports.inspection_text import inspection_page
    from ingest.reports.selection import find_instant
    from timeline.history.rows import as_json as json_word
    from timeline.history.timeline import Timeline

    opened = open_timeline(load_config(conf))
    timeline = Timeline.load(opened.store, opened.retry)
    if not len(timeline):
        require_known(opened)
    found = inspect_instant(opened, timeline.active, find_instant(timeline, instant))
    if as_json:
        typer.echo(json.dumps(inspection_json(found, files), indent=2, default=json_word))
    else:
        output().print(inspection_page(found, files))
    require_known(opened)


@app.command(short_help="Print how far each shard is read.")
def offsets(
    conf: Conf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Shards shown, the most urgent; 0: all.")] = 40,
    epochs: Annotated[
        int, typer.Option("--epochs", min=0, help="Newest epochs looked at for holes and last moves; 0: all.")
    ] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print for each shard what is committed, how far its source goes now, and the lag; no record is read.

    A source that does not answer ends the command with exit code 4, after what is committed was printed.
    """
    from ingest.cli.console import output
    from ingest.config.load import load_config
    from ingest.driver.build import open_timeline
    from ingest.driver.losses import require_known
    from ingest.reports.offsets import job_offsets, offsets_json
    from ingest.reports.offsets_text import offsets_page
    from timeline.errors import InvariantError

    opened = open_timeline(load_config(conf))
    try:
        found = job_offsets(opened, epochs)
    except InvariantError:
        require_known(opened)
        raise
    if as_json:
        typer.echo(json.dumps(offsets_json(found), indent=2))
    else:
        console = output()
        console.print(offsets_page(found, limit=limit, width=console.width), highlight=False)
    require_known(opened)
    if found.is_silent:
        raise typer.Exit(4)


@app.command(short_help="Watch a job, live.")
def watch(
    conf: Conf,
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="Time between two frames.")] = "2s",
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and end, as where there is no terminal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line for each frame.")] = False,
) -> None:
    """Watch a job on the whole screen: epochs, rates, lag, its writer, what is pending, the last rollbacks.

    Ctrl-C ends it with code 130. If storage does not answer, the screen says so above the last state seen.
    """
    from ingest.cli.watch_loop import watch_job

    watch_job(conf, interval=interval, once=once, as_json=as_json)
