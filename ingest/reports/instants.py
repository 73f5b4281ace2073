"""Instants as rows: the output of `tideline show`, human-readable and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ingest.protocol.counts import TargetRows, left_out
from ingest.sources.replays import is_replay
from timeline.decision import Outcome
from timeline.formatting import number, shard_name, size
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.history.rows import InstantRow
from timeline.holes import Hole, lost
from timeline.instant import Action

_DISPENSABLE = ("offsets", "outcome", "s", "size", "files")
"""Columns that a narrow terminal leaves out, in this order."""

_RIGHT = ("epoch", "rows", "rejected", "files", "size", "s")
_NOTE_WIDTH = 60
_SHARD_WIDTH = 24
_NARROW = 78
"""Terminal width, columns, below which a note beside the other columns would be only a few letters wide."""


@dataclass(frozen=True)
class InstantView(InstantRow):
    """One instant with the data of its bodies; None where no body has the value (yet).

    Attributes:
        targets: for each target, the counts of the rows that it was given.
        offsets: for each shard, the offset at which the instant ends.
        lost: for each shard with lost records, the holes with their reasons.
        note: human-readable remark: the reason and process of a rollback, or the writer.
    """

    targets: Mapping[str, TargetRows] | None = None
    offsets: Mapping[str, int] | None = None
    lost: Mapping[str, Sequence[Hole]] | None = None
    note: str | None = None


def shown_instants(history: History) -> list[InstantView]:
    """A row for each instant, oldest first."""
    return [_shown(entry, row) for entry, row in zip(history.entries, history.instants(), strict=True)]


def _shown(entry: Entry, row: InstantRow) -> InstantView:
    positions = entry.plan.positions if entry.plan is not None else {}
    return InstantView(
        **vars(row),
        targets={part.target: TargetRows.of(part) for part in entry.parts} or None,
        offsets={shard: position.offset for shard, position in positions.items()} or None,
        lost=lost(positions) or None,
        note="; ".join(_notes(entry, row)) or None,
    )


def _notes(entry: Entry, row: InstantRow) -> Iterator[str]:
    match entry.instant.action:
        case Action.ROLLBACK if entry.is_tideline:
            yield f"{row.reason}, by {row.by}" if row.by else f"{row.reason}"
        case Action.ROLLBACK if row.problems is None:
            yield f"{row.reason}, not by Tideline"
        case Action.COMMIT if row.state == "completed":
            if not entry.is_tideline and row.problems is None:
                yield "not written by Tideline"
            # Targets that lost nothing skip the rows of a replay: they already have them.
            dropped = "left to others" if entry.plan is not None and is_replay(entry.plan) else "dropped"
            yield left_out({part.target: TargetRows.of(part) for part in entry.parts}, dropped).removeprefix("; ")
        case Action.COMMIT:
            yield _whose(entry)
        case _:
            pass
    holes = lost(entry.plan.positions) if entry.plan is not None else {}
    if holes:
        yield "lost: " + "; ".join(f"{shard} {hole}" for shard, each in holes.items() for hole in each)
    if row.problems is not None:
        yield f"unreadable: {row.problems}"


def _whose(entry: Entry) -> str:
    """Writer of a pending commit, and the work left to do."""
    if entry.plan is None:
        return "" if entry.problems else "rolled back before; left by a writer that woke up late"
    whose = f"by {entry.plan.writer}, generation {entry.plan.ref.generation}"
    match entry.decision, entry.outcome:
        case None, _:
            return f"{whose}; prepared, not decided" if entry.manifest is not None else whose
        case decision, Outcome.COMMIT:
            return f"{whose}; decided: commit ({decision.reason}), still to be applied"
        case decision, _:
            return f"{whose}; decided: {decision.outcome.value} of {decision.instant} ({decision.reason}), still to go"


def instants_view(rows: Sequence[InstantView], width: int) -> Group:
    """Instants for a terminal of `width` columns: a table, with the notes below it where it has no room for them."""
    if width >= _NARROW:
        return Group(instants_table(rows, width))
    notes = [Text(f"{row.time}: {row.note}", instant_style(row.action, row.state) or "") for row in rows if row.note]
    return Group(instants_table([replace(row, note=None) for row in rows], width), *notes)


def instants_table(rows: Sequence[InstantView], width: int) -> Table:
    """Instants as a table that fits `width` columns.

    Columns that do not fit are left out in the order of `_DISPENSABLE`; a long note is wrapped, never cut.
    """
    cells = [_cells(row) for row in rows]
    wanted = {name: max(len(name), *(len(each[name]) for each in cells)) for name in cells[0]}
    wanted["note"] = min(wanted["note"], _NOTE_WIDTH) if any(each["note"] for each in cells) else 0
    names = [name for name, size in wanted.items() if size]
    gap = 2
    for name in _DISPENSABLE:
        if name in names and sum(wanted[each] + gap for each in names) - gap > width:
            names.remove(name)
    if sum(wanted[each] + gap for each in names) - gap > width:
        gap = 1
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, gap, 0, 0), collapse_padding=True)
    for name in names:
        right = name in _RIGHT
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "note", overflow="fold")
    for row, each in zip(rows, cells, strict=True):
        table.add_row(*(Text(each[name]) for name in names), style=instant_style(row.action, row.state))
    return table


def instant_style(action: str, state: str) -> str | None:
    """The colour of an instant: red for a rollback, yellow for a pending instant."""
    if action == Action.ROLLBACK.value:
        return "red"
    return None if state == "completed" else "yellow"


def _cells(row: InstantView) -> dict[str, str]:
    return {
        "time": row.time,
        "action": row.action,
        "state": row.state,
        "epoch": "" if row.epoch is None else str(row.epoch),
        "outcome": row.outcome or "",
        "rows": number(row.rows),
        "rejected": number(row.rejected),
        "files": number(row.files),
        "size": "" if row.bytes is None else size(row.bytes),
        "s": "" if row.seconds is None else f"{row.seconds:.1f}",
        "offsets": _offsets(row.offsets),
        "note": row.note or "",
    }


def _offsets(offsets: Mapping[str, int] | None) -> str:
    """Offset of the first shard, and the number of further shards."""
    if not offsets:
        return ""
    shard, offset = next(iter(offsets.items()))
    more = f" +{len(offsets) - 1}" if len(offsets) > 1 else ""
    return f"{shard_name(shard, _SHARD_WIDTH)}:{offset}{more}"
