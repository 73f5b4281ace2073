"""Epochs that a Delta table still has, by the log entries behind the job's newest one.

::

    newest entry ◄── walked back ──┐
      the job's own          all epochs up to its marker, but those that it names as missing
      restored to version r  those of version r, found in the same way
      overwritten            none
      files taken out        nobody knows, where the entry does not say by what operation
      anything else          the one before it

The job's own entry is only put on a table that was checked like this, so entries before it are not checked again.
Usually the newest entry is the job's own, and nothing is read. Rows that others delete or change one by one, compaction
and VACUUM are no loss but normal use of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sinks.delta.entry import EntryFacts, TableOverwrite
from sinks.held import Base, Held, Span

_MOST_RESTORES = 100
"""Maximum depth of restores to versions behind restores that is followed; no real log has more."""


@dataclass(frozen=True)
class LogWalk:
    """Access to a log, entry by entry.

    Attributes:
        entry: reads a version's entry; None if the entry was cleaned up.
        marker_at: reads the job's marker at a version; None if there is none, or the version can no longer be opened.
    """

    entry: Callable[[int], EntryFacts | None]
    marker_at: Callable[[int], int | None]


@dataclass(frozen=True)
class _State:
    """Epochs of the table at a version: all up to `newest` except `missing`."""

    newest: int
    missing: tuple[Span, ...] = ()
    how: str = ""
    doubt: str = ""
    instant: str | None = None


def held_in(walk: LogWalk, table_id: str, version: int, applied: int | None, known: Base | None) -> Held:
    """The job's epochs in the table.

    Args:
        walk: the table's log.
        table_id: the table's id.
        version: the table's newest version.
        applied: the epoch that the job's marker names at that version; None if there is no marker.
        known: the table's last state known to be in order; see `TargetContents.held`.
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
    """The epochs that remain after another writer's entry has replaced rows."""
    how = f"{taken.words} by version {version}"
    if not taken.is_restore:
        return _State(-1, how=how, doubt=f"{how}, which took out some files, or all" if taken.is_unclear else "")
    target = taken.version if taken.version is not None else _version_of(walk, version, taken.at_ms)
    if target is None or target >= version or restores == 0:
        return _State(-1, how=how, doubt=f"{how}: which epochs that version had cannot be told from the log any more")
    # Below the floor the job's own entries tell the epochs; at it and above it the walk ends at the floor.
    is_above = floor is not None and target >= floor
    state = _state_at(walk, target, floor if is_above else None, base if is_above else None, restores - 1)
    return _State(state.newest, state.missing, how, state.doubt)


def _version_of(walk: LogWalk, before: int, at_ms: int | None) -> int | None:
    """The newest version written at or before a time; None if the log does not tell."""
    for version in range(before - 1, -1, -1):
        seen = walk.entry(version)
        if at_ms is None or seen is None or seen.written_ms is None:
            return None
        if seen.written_ms <= at_ms:
            return version
    return None


def _unread(walk: LogWalk, top: int, gone: int) -> _State:
    """The epochs by the marker alone: entries were cleaned up behind a checkpoint, and others may have removed rows."""
    marker = walk.marker_at(top)
    doubt = f"version {gone} of the log was cleaned up, and with it what others did before the versions behind it"
    return _State(-1 if marker is None else marker, doubt=doubt)
