"""Which epochs a Delta table still has, by what came into its log behind the job's newest entry.

::

    newest entry ◄── walked back ──┐
      the job's own          all epochs up to its marker, but those that it names as missing
      restored to version r  those of version r, found in the same way
      overwritten            none
      files taken out        nobody knows, where the entry does not say by what operation
      anything else          the one before it

An own entry is only ever put on a table that was looked at like this, so what is behind it need not be looked at
again. Mostly the newest entry is the job's own, and nothing is read. Rows that others delete or change one by one,
compaction and VACUUM are no loss: they are what a table is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sinks.delta.entry import Seen, TableOverwrite
from sinks.held import Base, Held, Span

_MOST_RESTORES = 100
"""Restores to versions behind restores that are followed; a log with more of them is not of this world."""


@dataclass(frozen=True)
class LogWalk:
    """A log, entry by entry.

    Attributes:
        entry: what a version's entry says; None where it was cleaned up.
        marker_at: the job's marker at a version; None where it has none, or the version cannot be opened any more.
    """

    entry: Callable[[int], Seen | None]
    marker_at: Callable[[int], int | None]


@dataclass(frozen=True)
class _State:
    """Epochs of the table at a version: all up to `newest` but those that are missing."""

    newest: int
    missing: tuple[Span, ...] = ()
    how: str = ""
    doubt: str = ""
    instant: str | None = None


def held_in(walk: LogWalk, table_id: str, version: int, applied: int | None, known: Base | None) -> Held:
    """The job's epochs in the table.

    Args:
        walk: its log.
        table_id: its id.
        version: its newest version.
        applied: the epoch that the job's marker names there.
        known: as it was known to be in order; see `HoldingSink.held`.
    """
    if applied is None:
        return Held(table_id, version)
    floor = known.version if known is not None and known.table == table_id and known.newest == applied else None
    at_floor = known if floor is not None else None
    state = _state_at(walk, version, floor, at_floor, _MOST_RESTORES)
    missing = state.missing + (((state.newest + 1, applied),) if state.newest < applied else ())
    return Held(table_id, version, applied, missing, state.how, state.instant, state.doubt)


def _state_at(walk: LogWalk, top: int, floor: int | None, base: Base | None, restores: int) -> _State:
    for version in range(top, -1, -1):
        if version == floor:
            assert base is not None and base.newest is not None
            return _State(base.newest)
        seen = walk.entry(version)
        if seen is None:
            return _unread(walk, top, version)
        if seen.marker is not None:
            return _State(seen.marker, seen.missing, instant=seen.instant)
        if seen.taken is not None:
            return _before(walk, version, seen.taken, floor, base, restores)
    return _State(-1)


def _before(
    walk: LogWalk, version: int, taken: TableOverwrite, floor: int | None, base: Base | None, restores: int
) -> _State:
    """The epochs that somebody's entry has left."""
    how = f"{taken.words} by version {version}"
    if not taken.is_restore:
        return _State(-1, how=how, doubt=f"{how}, which took out some files, or all" if taken.is_unclear else "")
    target = taken.version if taken.version is not None else _version_of(walk, version, taken.at_ms)
    if target is None or target >= version or restores == 0:
        return _State(-1, how=how, doubt=f"{how}: which epochs that version had cannot be told from the log any more")
    # Below what was known to be in order the job's own entries tell; at it and behind it the walk ends there.
    is_above = floor is not None and target >= floor
    state = _state_at(walk, target, floor if is_above else None, base if is_above else None, restores - 1)
    return _State(state.newest, state.missing, how, state.doubt)


def _version_of(walk: LogWalk, before: int, at_ms: int | None) -> int | None:
    """The newest version that was written by then."""
    for version in range(before - 1, -1, -1):
        seen = walk.entry(version)
        if at_ms is None or seen is None or seen.written_ms is None:
            return None
        if seen.written_ms <= at_ms:
            return version
    return None


def _unread(walk: LogWalk, top: int, gone: int) -> _State:
    """The entries were cleaned up behind a checkpoint: its marker tells, and others may have taken rows meanwhile."""
    marker = walk.marker_at(top)
    doubt = f"version {gone} of the log was cleaned up, and with it what others did before the versions behind it"
    return _State(-1 if marker is None else marker, doubt=doubt)
