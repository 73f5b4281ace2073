"""Epochs that a target still has: those that a sink finds there, and those that an epoch's commit relies on.

A marker names the newest epoch that was applied. It does not prove that earlier epochs still exist: a Delta table keeps
its markers when it is restored to an older version or overwritten. So a sink, if it can, reads the changes that others
made to its target since the job's own last commit.

::

    held    table 5f0c…, newest epoch 7, missing 4-7, how: "restored to version 3 by version 9"
    base    the same when an epoch was prepared, in its part's detail: its commit refuses a later loss of epochs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast, runtime_checkable

from pydantic import TypeAdapter

from sinks.base import RememberingSink, Sink
from timeline.epoch import Json, Part, WriteReport, WrittenFile

BASE_DETAIL = "base"
"""Key of a part's detail: the `Base` that the part was prepared on."""

Span: TypeAlias = tuple[int, int]
"""Consecutive epochs, the first and the last."""


@dataclass(frozen=True)
class Base:
    """State of a target when an epoch was prepared for it.

    Attributes:
        table: its table's id; None if there was no table, or it had only just been created.
        version: its newest version; -1 if there was none.
        newest: the newest epoch that the job's marker named; None if there was none.
        missing: epochs that were known to be missing, and are replayed or given up by a later epoch.
        place: where the target lies; "" if its writer did not record it.
    """

    table: str | None
    version: int
    newest: int | None
    missing: tuple[Span, ...] = ()
    place: str = ""


@dataclass(frozen=True)
class Held:
    """A job's epochs in a target's current state.

    Attributes:
        table: its table's id; None if there is no table.
        version: its newest version; -1 if there is no table.
        newest: the newest epoch that the job's marker names; None if it names none.
        missing: epochs up to `newest` that others have removed.
        how: the operation that removed them, human-readable; "" if there was none.
        instant: the instant of the newest epoch, if the target records it.
        doubt: why it is uncertain whether others removed epochs; "" if it is certain.
    """

    table: str | None
    version: int = -1
    newest: int | None = None
    missing: tuple[Span, ...] = ()
    how: str = ""
    instant: str | None = None
    doubt: str = ""

    @property
    def base(self) -> Base:
        """The `Base` of an epoch that is prepared now."""
        return Base(self.table, self.version, self.newest)


class TargetContents(Protocol):
    """The contents of a target: which epochs it has, and which of its data files are missing."""

    @property
    def place(self) -> str:
        """The target's location in canonical spelling, "" if only its name identifies it; touches no storage."""

    def held(self, known: Base | None = None) -> Held:
        """The job's epochs in the target; reads only.

        If nobody else wrote since the job's last commit, only the newest entry is read.

        Args:
            known: the target when it was last known to be in order; older changes are not checked again.

        Raises:
            StoreUnavailableError: the target cannot be read.
        """

    def has_all(self, part: Part) -> bool:
        """Whether readers see every data file of a part, as it was written.

        Raises:
            StoreUnavailableError: the target cannot be read.
        """

    def missing_files(self) -> Sequence[str]:
        """Data files that the target names and that do not exist; empty if it names no files.

        Raises:
            StoreUnavailableError: the target cannot be read.
        """


@runtime_checkable
class HoldingSink(Protocol):
    """A sink whose target records its epochs."""

    def contents(self) -> TargetContents:
        """The target's contents; touches no storage."""


class FileCopies(Protocol):
    """Data files that targets of one job exchange, byte for byte."""

    def read(self, file: WrittenFile) -> bytes:
        """All bytes of a data file of this target.

        Raises:
            StoreUnavailableError: the file does not exist, or has other bytes than were written.
        """

    def refused(self, files: Sequence[WrittenFile]) -> str:
        """Why this target refuses copies of another target's data files; "" if it takes them.

        Args:
            files: data files of the other target.
        """

    def write(self, instant: str, files: Sequence[WrittenFile], read: Callable[[WrittenFile], bytes]) -> WriteReport:
        """Write another target's data files to this one, as a task of an epoch does; nothing is visible yet.

        Args:
            instant: the epoch's instant.
            files: data files of the other target.
            read: returns the bytes of one of them.

        Raises:
            TargetRefusedError: see `refused`; nothing was written.
        """


@runtime_checkable
class CopyingSink(Protocol):
    """A sink that can exchange data files with other targets of the same job."""

    def copies(self) -> FileCopies:
        """Reads and writes copies of data files; touches no storage."""


_BASE = TypeAdapter(Base)


def contents_of(sink: Sink) -> TargetContents | None:
    """The contents of a sink's target; None if the target does not record its epochs."""
    return sink.contents() if isinstance(sink, HoldingSink) else None


def copies_of(sink: Sink) -> FileCopies | None:
    """The exchange of a sink's data files; None if the sink does not offer it."""
    return sink.copies() if isinstance(sink, CopyingSink) else None


def remembering(sink: Sink) -> RememberingSink | None:
    """The sink if it knows which timelines of its job have written to its target, else None."""
    return sink if isinstance(sink, RememberingSink) else None


def base_of(part: Part) -> Base | None:
    """The state of the target that a part was prepared on; None if its writer did not record it."""
    found = part.detail.get(BASE_DETAIL)
    return None if found is None else _BASE.validate_python(found)


def with_base(detail: Mapping[str, Json], base: Base) -> dict[str, Json]:
    """A part's detail with the state of the target that the part was prepared on."""
    return {**detail, BASE_DETAIL: cast(Json, _BASE.dump_python(base, mode="json"))}


def spans(epochs: Iterable[int]) -> tuple[Span, ...]:
    """Epochs as ranges, in order."""
    found: list[Span] = []
    for epoch in sorted(set(epochs)):
        if found and found[-1][1] == epoch - 1:
            found[-1] = (found[-1][0], epoch)
        else:
            found.append((epoch, epoch))
    return tuple(found)


def in_spans(epoch: int, among: Iterable[Sequence[int]]) -> bool:
    """Whether an epoch is in one of these ranges."""
    return any(first <= epoch <= last for first, last in among)


def span_text(among: Sequence[Span]) -> str:
    """Ranges of epochs, human-readable: ``epochs 3-7, 9``."""
    return f"epoch{'' if is_single(among) else 's'} {numbers_of(among)}"


def numbers_of(among: Sequence[Span]) -> str:
    """Ranges, human-readable: ``3-7, 9``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in among)


def lost_epochs_text(among: Sequence[Span], rows: str = "") -> str:
    """The loss of epochs, human-readable: ``epochs 3-7, 9 (12 rows) are gone``."""
    of_rows = f" ({rows})" if rows else ""
    return f"{span_text(among)}{of_rows} {'is' if is_single(among) else 'are'} gone"


def is_single(among: Sequence[Span]) -> bool:
    """Whether ranges hold one number in all."""
    return len(among) == 1 and among[0][0] == among[0][1]


@dataclass(frozen=True)
class LostEpochs:
    """Epochs that a target has lost.

    Attributes:
        how: what happened to the target, human-readable.
        epochs: the lost epochs, as far as the target's own log records them.
    """

    how: str
    epochs: tuple[Span, ...]

    @property
    def words(self) -> str:
        """The loss, human-readable."""
        return lost_epochs_text(self.epochs)


def lost_since(base: Base, held: Held) -> LostEpochs | None:
    """Epochs that a target has lost since an earlier state; None if it lost none.

    Args:
        base: the earlier state.
        held: the current state.
    """
    if base.newest is None:
        return None
    everything: tuple[Span, ...] = ((0, base.newest),)
    if held.table is None:
        return LostEpochs("was deleted", everything)
    if base.table is not None and held.table != base.table:
        return LostEpochs(f"was made anew (its id is {held.table}, and was {base.table})", everything)
    if held.newest is None or held.newest < base.newest:
        has = "no epoch" if held.newest is None else f"epochs up to {held.newest} only"
        first = 0 if held.newest is None else held.newest + 1
        how = f"has {has}: it was made anew, restored from a copy, or its log was cut off"
        return LostEpochs(how, (*held.missing, (first, base.newest)))
    if not held.missing:
        return None
    return LostEpochs(
        f"was {held.how}" if held.how else "lacks what a replay that did not end was to put back", held.missing
    )


REPLAY = (
    "Nothing was written there. Next: tideline replay CONF --dry-run says where their rows can be had, "
    "tideline replay CONF puts them back, and after tideline replay CONF --accept-loss the job goes on without"
)
"""The next step after a loss, human-readable."""

RESTORE_TIMELINE = (
    "Nothing was written. Restore the newest objects below .hoodie/ from the store's versions or a backup, or write to "
    "another table and timeline"
)
"""The next step if a timeline is older than its targets, human-readable."""
