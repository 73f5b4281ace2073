"""How the rows of lost epochs come back to a target: from data files, copies, or the source."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.driver.build import TimelineHandle
from ingest.driver.replay import changed_reading
from ingest.protocol.committed import CommittedEpoch, CommittedRows, carried_by, rows_for
from ingest.protocol.job import JobContext
from ingest.protocol.names import part_of
from ingest.sources.options import StreamOptions
from ingest.sources.replays import is_replay
from sinks.held import copies_of
from timeline.epoch import Part


class RowOrigin(enum.Enum):
    """Origin of the rows that put back a lost epoch."""

    FILES = "from its data files"
    COPY = "from the data files of another target"
    SOURCE = "from the source"
    NONE = "cannot be put back"


@dataclass(frozen=True)
class Lost:
    """A lost epoch of a target, and the way to put it back.

    Attributes:
        target: the target's name.
        epoch: the committed rows.
        way: where its rows come from.
        why: the obstacle to a better way; "" where there is none.
        origin: the part of another target whose data files are copied; None where none are.
        carried: for a lost replay whose own files are missing, the epochs that it had put back, each with its way.
    """

    target: str
    epoch: CommittedRows
    way: RowOrigin
    why: str = ""
    origin: Part | None = None
    carried: tuple[Lost, ...] = ()

    @property
    def number(self) -> int:
        """The epoch's number."""
        return self.epoch.part.epoch.epoch


@dataclass(frozen=True)
class ReplayWorld:
    """The ground of a replay's plan: the timeline, its targets, and all committed epochs."""

    opened: TimelineHandle
    job: JobContext
    past: Sequence[CommittedEpoch]


def way_back(world: ReplayWorld, target: str, lost: CommittedRows) -> Lost:
    """The way in which a lost epoch is put back.

    Args:
        world: the ground of the replay.
        target: the target's name.
        lost: the lost epoch.
    """
    job, part = world.job, lost.part
    why = ""
    if lost.is_left_out:
        refused = _refused_copies(job, target, lost)
        if refused:  # rows read again from the source would be refused too
            return Lost(
                target, lost, RowOrigin.NONE, f"it has rows that {target} refuses, and the quarantine not: {refused}"
            )
        origin = _copied_from(job, target, lost)
        if origin is not None:
            return Lost(target, lost, RowOrigin.COPY, origin=origin)
        if copies_of(job.sink(target)) is None:
            return Lost(target, lost, RowOrigin.NONE, _WITHOUT_FILES)
        why = "no other target has data files of it"
    elif part.files:
        problems = job.sink(target).verify(part)
        if not problems:
            return Lost(target, lost, RowOrigin.FILES)
        why = problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1:,} more"
    else:
        return Lost(target, lost, RowOrigin.NONE, _WITHOUT_FILES)
    if lost.plan is not None and is_replay(lost.plan):
        return _way_of_replay(world, target, lost, why)
    against = _against_reading(world.opened, job, target, lost)
    return Lost(target, lost, RowOrigin.NONE if against else RowOrigin.SOURCE, f"{why}; {against}" if against else why)


def _way_of_replay(world: ReplayWorld, target: str, lost: CommittedRows, why: str) -> Lost:
    """The way of a replay whose files are missing: the epochs that it had put back are put back once more."""
    among = carried_by(lost, target, world.past)
    numbers = [number for first, last in among for number in range(first, last + 1)]
    found = {each.manifest.ref.epoch: each for each in world.past}
    missing = [number for number in numbers if number not in found]
    if missing or not numbers:
        gone = (
            f"epoch {missing[0]}, which it had put back, is gone from the timeline"
            if missing
            else "its plan names none"
        )
        return Lost(target, lost, RowOrigin.NONE, f"{why}; {gone}")
    rows = (rows_for(world.job, target, found[number]) for number in numbers)
    carried = tuple(way_back(world, target, each) for each in rows if each.part.rows)
    stuck = next((each for each in carried if each.way is RowOrigin.NONE), None)
    if stuck is not None:
        return Lost(target, lost, RowOrigin.NONE, f"{why}; epoch {stuck.number}, which it had put back: {stuck.why}")
    ways = {each.way for each in carried}
    way = RowOrigin.SOURCE if len(ways) != 1 else ways.pop()
    return Lost(target, lost, way, why, carried=carried)


_WITHOUT_FILES = "a target without data files; write to another prefix and timeline, from the source's begin"


def _copied_from(job: JobContext, target: str, lost: CommittedRows) -> Part | None:
    """The part of another target whose data files can be copied; None where there is none."""
    if target == job.quarantine or copies_of(job.sink(target)) is None:
        return None
    for sink in job.sinks:
        part = part_of(lost.manifest, sink.target)
        is_like = sink.target not in (target, job.quarantine) and copies_of(sink) is not None
        if is_like and part is not None and part.files and not sink.verify(part):
            return part
    return None


def _refused_copies(job: JobContext, target: str, lost: CommittedRows) -> str:
    """Why a target refuses copies of other targets' data files of an epoch; "" where it accepts them."""
    taker = copies_of(job.sink(target))
    if target == job.quarantine or taker is None:
        return ""
    others = (part for part in lost.manifest.parts if part.target not in (target, job.quarantine))
    return next((reason for part in others if (reason := taker.refused(part.files))), "")


def _against_reading(opened: TimelineHandle, job: JobContext, target: str, lost: CommittedRows) -> str:
    """Why an epoch cannot be read again from the source; "" where it can be tried."""
    if lost.plan is None:
        return "its plan is gone from the timeline"
    changed = changed_reading(job, lost.plan)
    if changed:
        return changed
    if isinstance(opened.config.source, StreamOptions):
        return "a streaming query has its source"
    if opened.config.transform is not None:
        return "a query made its rows (transform), and this command does not start Spark"
    if target == job.quarantine and any(part.rejected for part in lost.manifest.parts):
        return "some of its rows were refused by a target, and no source has those"
    return ""


def pieces_of(lost: Lost) -> Iterator[Lost]:
    """Ordinary epochs that make up a lost one."""
    if not lost.carried:
        yield lost
    for each in lost.carried:
        yield from pieces_of(each)
