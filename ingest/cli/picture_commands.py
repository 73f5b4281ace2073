"""Drawing commands: ``plot | report``. No JVM, and nothing is written but the picture or the page."""

from __future__ import annotations

import enum
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.app import Conf, app
from timeline.errors import ConfigError
from timeline.stores.opening import absolute

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ingest.driver.build import TimelineHandle
    from ingest.reports.selection import Selection

Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="From then on: 2h, 3d, 2026-03-01T10:15, an instant.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="Newest instants looked at; 0: all.")]


_PAGES = (".html", ".htm")


class PictureKind(enum.Enum):
    """Kinds of pictures."""

    GANTT = "gantt"
    THROUGHPUT = "throughput"
    LAG = "lag"
    SIZES = "sizes"
    RECOVERY = "recovery"


@app.command(short_help="Draw the timeline as a picture.")
def plot(
    conf: Conf,
    kind: Annotated[PictureKind, typer.Option("--kind", help="What the picture shows.")] = PictureKind.GANTT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="FILE.png or FILE.svg; by default KIND.png.")
    ] = None,
    since: Since = None,
    limit: Limit = 1000,
) -> None:
    """Draw when instants ran and how long their states took, throughput, lag, file sizes, or what recovery did.

    If objects of the timeline are missing, or it is older than its tables, the command fails as a start does, after it
    has written the picture of what exists.
    """
    from ingest.config.load import load_config
    from ingest.driver.build import open_timeline
    from ingest.driver.losses import require_known
    from ingest.reports.pictures import description, format_of, rendered
    from timeline.errors import InvariantError

    path = output or Path(f"{kind.value}.png")
    extension = format_of(path)
    opened = open_timeline(load_config(conf))
    try:
        figure = _draw(opened, kind, _selection(since, limit))
    except InvariantError:
        require_known(opened)
        raise
    _write(path, rendered(figure, extension))
    typer.echo(f"{path}: {description(figure)}")
    require_known(opened)


@app.command(short_help="Write one page about the job.")
def report(
    conf: Conf,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page; what is there is replaced.")
    ] = Path("report.html"),
    since: Since = None,
    limit: Limit = 1000,
) -> None:
    """Write one page: whether all is well, what is pending, pictures, lag, rejected rows, rollbacks with reasons.

    The page needs nothing else: no script, no network. It can be mailed, and printed.
    """
    from ingest.config.load import load_config
    from ingest.driver.build import open_timeline
    from ingest.reports.report import findings, gather, level_of, situation
    from ingest.reports.report_page import page

    if output.suffix.lower() not in _PAGES:
        raise ConfigError(
            f"--output {output}: the report is a page: its name ends in {' or '.join(_PAGES)}. "
            "tideline plot draws pictures (.png, .svg)"
        )

    opened = open_timeline(load_config(conf))
    found = gather(opened, str(conf), _selection(since, limit), datetime.now(UTC))
    _write(output, page(found).encode())
    typer.echo(f"{output}: {level_of(findings(found)).value}. {situation(found)}")
    for finding in findings(found):
        typer.echo(f"  {finding.words}")


def _selection(since: str | None, limit: int) -> Selection:
    from ingest.reports.selection import Selection, parse_since
    from timeline.clock import wall_clock_ms

    return Selection(parse_since(since, wall_clock_ms()) if since is not None else None, limit=limit)


def _draw(opened: TimelineHandle, kind: PictureKind, wanted: Selection) -> Figure:
    from ingest.reports.offsets import job_offsets
    from ingest.reports.pictures import gantt, lag, recovery, sizes, throughput
    from ingest.reports.report import newest_offsets
    from ingest.reports.selection import select
    from timeline.history.timeline import Timeline

    chosen, _ = select(Timeline.load(opened.store, opened.retry), wanted)
    history = chosen.history()
    match kind:
        case PictureKind.GANTT:
            return gantt(history, now=datetime.now(UTC))
        case PictureKind.THROUGHPUT:
            return throughput(history)
        case PictureKind.SIZES:
            return sizes(history)
        case PictureKind.RECOVERY:
            return recovery(history)
        case PictureKind.LAG:
            offsets = job_offsets(opened, wanted.limit)
            newest, stands = newest_offsets(offsets)
            unit = offsets.unit.value if offsets.unit is not None else "offsets"
            return lag(history, newest, committed=stands, unit=unit, why_unknown=offsets.unknown or "")


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically: a concurrent reader gets the previous file or this one.

    Raises:
        ConfigError: the path is relative to a current directory that was deleted.
    """
    path = Path(absolute(str(path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
