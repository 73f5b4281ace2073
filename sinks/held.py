"""Which epochs a target still has: what a sink finds there, and what an epoch's commit relies on.

A marker tells the newest epoch that was applied. It does not tell that the epochs before it are still there: a Delta
table keeps its markers when it is restored to an older version or overwritten. So a sink that can looks at what others
did to its target since the job's own last commit.

::

    held    table 5f0c…, newest epoch 7, missing 4-7, how: "restored to version 3 by version 9"
    base    the same as an epoch was prepared on it, in its part's detail: its commit refuses what lost epochs since
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast, runtime_checkable

from pydantic import TypeAdapter

from sinks.base import RememberingSink, Sink
from timeline.epoch import Json, Part, WriteReport, WrittenFile

BASE_DETAIL = "base"
"""Key of a part's detail: the `Base` that it was prepared on."""

Span: TypeAlias = tuple[int, int]
"""Consecutive epochs, the first and the last."""


@dataclass(frozen=True)
class Base:
    """A target as an epoch was prepared on it.

    Attributes:
        table: its id; None where there was no table, or one that was only just made.
        version: its newest version then; -1 where there was none.
        newest: the newest epoch that the job's marker named; None where there was none.
        missing: epochs that were known to be missing, and are replayed or given up by a later epoch.
        place: where the target lies; "" where its writer did not say.
    """

    table: str | None
    version: int
    newest: int | None
    missing: tuple[Span, ...] = ()
    place: str = ""


@dataclass(frozen=True)
class Held:
    """A job's epochs in a target as it is now.

    Attributes:
        table: its id; None where there is no table.
        version: its newest version; -1 where there is no table.
        newest: the newest epoch that the job's marker names; None where it names none.
        missing: epochs up to that one that others took out since.
        how: what took them out, in words; "" where nothing did.
        instant: the instant of the newest epoch, where the target tells it.
        doubt: why it cannot be told whether others took epochs out; "" where it can.
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
        """What an epoch that is prepared now relies on."""
        return Base(self.table, self.version, self.newest)


class TargetContents(Protocol):
    """The contents of a target: which epochs it has, and which of its data files are missing."""

    @property
    def place(self) -> str:
        """The target's location in one spelling, "" where it is known by its name alone; touches no storage."""

    def held(self, known: Base | None = None) -> Held:
        """The job's epochs in the target; reads only.

        Where nobody else wrote since the job's last commit, only the newest entry is read.

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
        """Data files that the target names and that do not exist; none where it names no files.

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
        """A data file of this target, whole.

        Raises:
            StoreUnavailableError: it does not exist, or its bytes are not those that were written.
        """

    def refused(self, files: Sequence[WrittenFile]) -> str:
        """Why this target takes no copies of another one's data files; "" where it takes them.

        Args:
            files: the other target's.
        """

    def write(self, instant: str, files: Sequence[WrittenFile], read: Callable[[WrittenFile], bytes]) -> WriteReport:
        """Write another target's data files to this one, as a task of an epoch does; nothing is visible yet.

        Args:
            instant: the epoch's instant.
            files: the other target's.
            read: returns the bytes of one of them.

        Raises:
            TargetRefusedError: see `refused`; nothing was written.
        """


@runtime_checkable
class CopyingSink(Protocol):
    """A sink whose data files other targets of the same job can have too."""

    def copies(self) -> FileCopies:
        """Reads and writes copies of data files; touches no storage."""


_BASE = TypeAdapter(Base)


def contents_of(sink: Sink) -> TargetContents | None:
    """The contents of a sink's target; None where it does not record its epochs."""
    return sink.contents() if isinstance(sink, HoldingSink) else None


def copies_of(sink: Sink) -> FileCopies | None:
    """Copies of a sink's data files; None where other targets cannot have them."""
    return sink.copies() if isinstance(sink, CopyingSink) else None


def remembering(sink: Sink) -> RememberingSink | None:
    """The sink, where it knows which timelines of its job have written to it."""
    return sink if isinstance(sink, RememberingSink) else None


def base_of(part: Part) -> Base | None:
    """What a part was prepared on; None where its writer did not say."""
    found = part.detail.get(BASE_DETAIL)
    return None if found is None else _BASE.validate_python(found)


def with_base(detail: Mapping[str, Json], base: Base) -> dict[str, Json]:
    """A part's detail that says what it was prepared on."""
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


def span_words(among: Sequence[Span]) -> str:
    """Ranges of epochs for people: ``epochs 3-7, 9``."""
    return f"epoch{'' if is_single(among) else 's'} {numbers_of(among)}"


def numbers_of(among: Sequence[Span]) -> str:
    """Ranges for people: ``3-7, 9``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in among)


def gone_words(among: Sequence[Span], rows: str = "") -> str:
    """That these epochs are gone, for people: ``epochs 3-7, 9 (12 rows) are gone``."""
    of_rows = f" ({rows})" if rows else ""
    return f"{span_words(among)}{of_rows} {'is' if is_single(among) else 'are'} gone"


def is_single(among: Sequence[Span]) -> bool:
    """Whether ranges have one number in all."""
    return len(among) == 1 and among[0][0] == among[0][1]


@dataclass(frozen=True)
class LostEpochs:
    """Epochs that a target has lost.

    Attributes:
        how: what happened to it, in words.
        epochs: which, as far as the target's own log tells.
    """

    how: str
    epochs: tuple[Span, ...]

    @property
    def words(self) -> str:
        """That they are gone, for people."""
        return gone_words(self.epochs)


def gone_since(base: Base, held: Held) -> LostEpochs | None:
    """What a target lost since it was known; None where it has all that it had.

    Args:
        base: as it was known.
        held: as it is.
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
"""The next step after a loss, for people."""

RESTORE_TIMELINE = (
    "Nothing was written. Restore the newest objects below .hoodie/ from the store's versions or a backup, or write to "
    "another table and timeline"
)
"""The next step where a timeline is older than its targets."""
