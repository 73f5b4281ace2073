"""One frame as text for a terminal of any size, and as JSON; pure functions. Lines that need a person come first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ingest.reports.watching import MOST_BEHIND, Frame, LagReport, Writer
from timeline.formatting import amount, count, duration, number, shard_name, shortened, size
from timeline.history.rows import EpochRow
from timeline.lease import LeaseState

_EPOCH_STYLES = {"rolled back": "red", "pending": "yellow"}
_MOST_PENDING = 5
_FRESH_S = 30.0
_WIDE = 100
"""Terminal width, columns, from which an epoch's files and size are shown too."""


def watch_screen(frame: Frame, width: int, height: int = 0, interval_s: float | None = None) -> Group:
    """One frame as terminal output.

    Args:
        frame: the frame.
        width: terminal width, columns.
        height: terminal height, lines; limits the epochs shown. 0: all epochs.
        interval_s: time between two frames, shown in the last line; None: a single frame.
    """
    above = [*_head(frame, width), *_facts(frame, width), *_pending(frame, width)]
    below = [*_rollbacks(frame, width)]
    if interval_s is not None:
        below.append(Text(f"every {duration(interval_s)} · Ctrl-C ends", style="dim"))
    room = max(3, height - len(above) - len(below) - 3) if height else len(frame.epochs)
    epochs = list(reversed(frame.epochs))[:room]
    table = [Text(), _epochs(epochs, frame.at, width)] if epochs else [Text(), Text("no epochs yet")]
    return Group(*above, *table, *below)


def _head(frame: Frame, width: int) -> Iterator[Text]:
    moment = f"{frame.at:%Y-%m-%d %H:%M:%S} UTC"
    room = max(10, width - len(moment) - 2)
    title = Text(shard_name(f"{frame.job} · {frame.timeline}", room).ljust(room), style="bold")
    yield title + Text("  ") + Text(moment, style="dim")
    if frame.problem is not None:
        seen = "never yet" if frame.seen_at is None else f"{_ago(frame.seen_at, frame.at)} (shown below)"
        yield Text(shortened(f"STORAGE DOES NOT ANSWER. Last answer: {seen}", width), style="bold white on red")
        yield Text(shortened(frame.problem, width), style="red")
    if frame.warning:
        yield Text("A START OF THIS JOB WOULD BE REFUSED", style="bold white on red")
        yield Text(frame.warning, style="red")


def _facts(frame: Frame, width: int) -> Iterator[Text]:
    yield _fact("writer", *_writer_words(frame.writer), width)
    yield _fact("rate", _rate_words(frame), "", width)
    yield _fact("lag", *_lag_words(frame.lag, frame.at), width)
    for shard, note in frame.lag.waits if frame.lag is not None else ():
        yield _fact("", f"{shard_name(shard)}: {note}", "yellow", width)
    words = count(len(frame.pending), "instant") if frame.pending else "nothing"
    yield _fact("pending", words, "yellow" if frame.pending else "green", width)


def _fact(label: str, words: str, style: str, width: int) -> Text:
    return Text(f"{label:<9}", style="bold") + Text(shortened(words, width - 9), style=style)


def _writer_words(writer: Writer | None) -> tuple[str, str]:
    if writer is None:
        return "none yet", "yellow"
    who = f"{writer.process}, generation {writer.generation}"
    silent = f"silent for {duration(writer.silent_s)}, counts as dead after {duration(writer.ttl_s)}"
    match writer.lease:
        case LeaseState.EXPIRED | LeaseState.NONE if writer.is_released and writer.ended_by:
            return f"not running, ended by an error: {writer.ended_by} ({who})", "red"
        case LeaseState.EXPIRED | LeaseState.NONE if writer.is_released:
            return f"not running: ended by itself ({who})", ""
        case LeaseState.EXPIRED | LeaseState.NONE:
            return f"DEAD: {who}; run or recover takes over", "red"
        case _ if writer.has_beaten:
            return f"alive: {who}, heartbeat {duration(writer.silent_s)} ago", "green"
        case _:
            return f"not known to be dead: {who}, {silent}", "yellow"


def _rate_words(frame: Frame) -> str:
    if frame.rate is None:
        return "nothing committed yet"
    rate = frame.rate
    done = max(epoch.completed for epoch in frame.epochs if epoch.completed and epoch.state == "committed")
    return (
        f"last commit {_ago(done, frame.at)}; {rate.rows_per_s:,.0f} rows/s, {size(rate.bytes_per_s)}/s written "
        f"over {count(rate.epochs, 'epoch')} in {duration(rate.over_s)}"
    )


def _lag_words(report: LagReport | None, at: datetime) -> tuple[str, str]:
    if report is None:
        return "asking the source …", "dim"
    lag = report.lag
    if lag is None:
        return f"not known: {report.unknown}", "yellow" if report.unit is None else "red"
    # After the source stops answering, its last answer stays; an old one is shown with its age.
    old = f"{_ago(report.at, at)}: " if _seconds(report.at, at) > _FRESH_S else ""
    lost = f"{report.lost} LOST RECORDS, see tideline offsets; " if report.lost else ""
    if not lag.units:
        return f"{old}{lost}nothing behind, {count(report.shards, 'shard')}", "red" if lost else "green"
    most = ", ".join(
        f"{shard_name(shard)} {amount(units, lag.unit.value)}" for shard, units in lag.largest(MOST_BEHIND)
    )
    return (
        f"{old}{lost}{amount(lag.units, lag.unit.value)} in {lag.shards:,} of {count(report.shards, 'shard')}; "
        f"most: {most}",
        ("red" if lost else "yellow"),
    )


def _pending(frame: Frame, width: int) -> Iterator[Text]:
    for each in frame.pending[:_MOST_PENDING]:
        epoch = "" if each.epoch is None else f" epoch {each.epoch}"
        age = duration(_seconds(each.requested, frame.at)) if each.requested is not None else "?"
        words = f"  {each.time} {each.action}{epoch} {each.state} for {age}: {each.note or ''}"
        yield Text(_indented(words, width), style="yellow")
    if len(frame.pending) > _MOST_PENDING:
        yield Text(f"  and {len(frame.pending) - _MOST_PENDING} more", style="yellow")


def _rollbacks(frame: Frame, width: int) -> Iterator[Text]:
    yield Text()
    if not frame.rollbacks:
        yield Text("no rollbacks", style="dim")
        return
    yield Text("last rollbacks", style="bold")
    for each in frame.rollbacks:
        age = _ago(each.requested, frame.at) if each.requested is not None else "?"
        epoch = "" if each.epoch is None else f"epoch {each.epoch}, "
        yield Text(_indented(f"  {epoch}{age}: {each.note or ''}", width), style="red")


def _indented(words: str, width: int) -> str:
    """The line, shortened to the width, with its indentation kept."""
    indent = len(words) - len(words.lstrip())
    return " " * indent + shortened(words, width - indent)


def _epochs(epochs: list[EpochRow], at: datetime, width: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    is_wide = width >= _WIDE
    table.add_column("epoch", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("rows", "rejected", *(("files", "size") if is_wide else ()), "s", "rows/s", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for epoch in epochs:
        took_s = _seconds(epoch.requested, epoch.completed) if epoch.requested and epoch.completed else None
        cells = [number(epoch.rows), number(epoch.rejected)]
        if is_wide:
            cells += [number(epoch.files), "" if epoch.bytes is None else size(epoch.bytes)]
        per_s = f"{epoch.rows / max(took_s, 1e-3):,.0f}" if took_s is not None and epoch.rows is not None else ""
        age = "" if epoch.requested is None else duration(_seconds(epoch.completed or epoch.requested, at))
        cells += ["" if took_s is None else f"{took_s:.1f}", per_s, age]
        table.add_row(str(epoch.epoch), _state(epoch), *cells, style=_EPOCH_STYLES.get(epoch.state))
    return table


def _state(epoch: EpochRow) -> str:
    """The epoch's state; for a pending epoch its progress instead."""
    if epoch.state != "pending":
        return epoch.state
    if epoch.outcome is not None:
        return f"decided: {epoch.outcome}"
    return "prepared" if epoch.prepared is not None or epoch.rows is not None else "writing"


def _ago(then: datetime, now: datetime) -> str:
    return f"{duration(_seconds(then, now))} ago"


def _seconds(then: datetime | None, now: datetime | None) -> float:
    """Seconds between two times, at least 0: the times come from different clocks."""
    assert then is not None and now is not None
    return max(0.0, (now - then).total_seconds())


def frame_json(frame: Frame) -> dict[str, object]:
    """The frame as one JSON object, with times for `timeline.history.rows.as_json`; see ``docs/cli.md``."""
    found = asdict(frame)
    if frame.writer is not None:
        found["writer"]["lease"] = frame.writer.lease.value
    if frame.lag is not None:
        found["lag"] = _lag_json(frame.lag)
    return found


def _lag_json(report: LagReport) -> dict[str, object]:
    lag = report.lag
    furthest = lag.largest(MOST_BEHIND) if lag is not None else []
    return {
        "at": report.at,
        "unit": report.unit.value if report.unit is not None else None,
        "units": lag.units if lag is not None else None,
        "shards": report.shards,
        "behind": lag.shards if lag is not None else 0,
        "lost": report.lost,
        "most": [{"shard": shard, "units": units} for shard, units in furthest],
        "waits": [{"shard": shard, "note": note} for shard, note in report.waits],
        "unknown": report.unknown,
    }
