"""Decides whether a micro-batch continues the committed position: a pure function, called before anything is written.

Batch ids begin again with every checkpoint, and Spark reruns a batch whose end it has not logged; offsets
distinguish both cases. Two kinds of positions are compared in two ways:

- offsets of logs (Kafka's) are valid in every query, so they are compared by partition;
- all others are valid in their own checkpoint only, so only the identical position of the same query
  counts as equal.

A batch that can be neither ingested nor skipped as a whole is refused: its rows can no longer be
distinguished by offset, so part of it would be duplicated or lost.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.stream.offsets import Batch, LogOffsets, StreamPosition
from timeline.units import count

_MOST_RANGES = 8


class BatchVerdict(enum.Enum):
    """Verdict on a micro-batch."""

    INGEST = "ingest"
    SKIP = "skip"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Judgement:
    """A verdict and its reason; a refusal's reason names the range in doubt."""

    verdict: BatchVerdict
    reason: str


class _Coverage(enum.Enum):
    """Committed part of one partition's range."""

    NOTHING = "new"
    ALL = "committed already"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True)
class _PartitionRange:
    """A batch's range of one partition, and the committed offset.

    Attributes:
        committed: None for a partition of a topic that was never read: it begins where the batch does.
    """

    name: str
    start: int
    end: int
    committed: int | None

    @property
    def coverage(self) -> _Coverage | None:
        """Committed part of the range; None where the batch has no record of this partition and skips none."""
        committed = self.start if self.committed is None else self.committed
        if self.start > committed or self.end < self.start:
            return _Coverage.IN_DOUBT
        if self.start == self.end:
            return None
        if self.end <= committed:
            return _Coverage.ALL
        return _Coverage.NOTHING if self.start == committed else _Coverage.IN_DOUBT

    def __str__(self) -> str:
        committed = self.committed or 0
        known = f"committed is [0, {committed})" if committed else "nothing of it is committed"
        at = f"partition {self.name}: the batch has [{self.start}, {self.end}), {known}"
        if self.start > committed and self.committed is not None:
            return f"{at}: [{committed}, {self.start}) would be lost"
        if self.start < committed < self.end:
            return f"{at}: [{self.start}, {committed}) would be twice"
        return at


def judge(committed: StreamPosition | None, batch: Batch) -> Judgement:
    """Verdict on a batch. Pure: the same positions give the same verdict.

    Args:
        committed: the timeline's committed position; None before the first epoch.
        batch: the batch as its checkpoint describes it.
    """
    if committed is None:
        return Judgement(BatchVerdict.INGEST, "nothing is committed yet")
    done, start, end = committed.logs, batch.start.logs, batch.end.logs
    if done is None or start is None or end is None:
        return _judge_places(committed, batch)
    if len(done) != len(end):
        return Judgement(
            BatchVerdict.REFUSE,
            f"the query reads {count(len(end), 'source')}, the timeline was written from {len(done)}: {_both(batch)}",
        )
    moved = _moved(done, end)
    if moved is not None:
        return Judgement(BatchVerdict.REFUSE, f"{moved}: {_both(batch)}")
    sources = zip(done, start, end, strict=True)
    return _judge_ranges([found for source in sources for found in _ranges(*source)])


def _moved(committed: Sequence[LogOffsets], end: Sequence[LogOffsets]) -> str | None:
    """Text about a topic that moved to another source of the query than the timeline recorded; None without one."""
    for number, topics in enumerate(end):
        for topic in topics:
            before = [of for of, known in enumerate(committed) if topic in known]
            if before and number not in before:
                return (
                    f"source {number} of the query reads topic {topic}, which was source {before[0]}: put the query's "
                    "sources back into the order that the timeline was written in"
                )
    return None


def _judge_places(committed: StreamPosition, batch: Batch) -> Judgement:
    if batch.end == committed:
        return Judgement(BatchVerdict.SKIP, "it is committed already")
    if batch.start == committed:
        return Judgement(BatchVerdict.INGEST, "it begins where the timeline stands")
    whose = "the same query" if committed.query == batch.end.query else f"another query ({committed.query})"
    return Judgement(
        BatchVerdict.REFUSE,
        f"{_both(batch)}, and the timeline stands at {_shown(committed)} of {whose}. Which of these records are "
        "committed only the checkpoint knows that belongs to the timeline",
    )


def _judge_ranges(ranges: list[_PartitionRange]) -> Judgement:
    found = {each.coverage for each in ranges}
    if _Coverage.IN_DOUBT in found:
        doubtful = [each for each in ranges if each.coverage is _Coverage.IN_DOUBT]
        return Judgement(BatchVerdict.REFUSE, _listed(doubtful))
    if {_Coverage.NOTHING, _Coverage.ALL} <= found:
        return Judgement(
            BatchVerdict.REFUSE,
            f"some of it is committed and some is not: {_listed([each for each in ranges if each.coverage])}",
        )
    # A new topic is recorded even without records, which fixes its beginning.
    notes_topic = _Coverage.ALL not in found and any(each.committed is None for each in ranges)
    if _Coverage.NOTHING in found or notes_topic:
        return Judgement(BatchVerdict.INGEST, "it begins where the timeline stands")
    return Judgement(BatchVerdict.SKIP, "all of it is committed already")


def _ranges(committed: LogOffsets, start: LogOffsets, end: LogOffsets) -> Iterator[_PartitionRange]:
    for topic, partitions in end.items():
        known = committed.get(topic)
        for partition, until in partitions.items():
            yield _PartitionRange(
                name=f"{topic}/{partition}",
                # Spark reads a partition added since the previous batch from its beginning.
                start=start.get(topic, {}).get(partition, 0),
                end=until,
                # A partition added to a topic is read from its beginning, wherever a new query begins.
                committed=None if known is None else known.get(partition, 0),
            )


def _listed(ranges: list[_PartitionRange]) -> str:
    more = f"; and {count(len(ranges) - _MOST_RANGES, 'more partition')}" if len(ranges) > _MOST_RANGES else ""
    return "; ".join(map(str, ranges[:_MOST_RANGES])) + more


def _both(batch: Batch) -> str:
    return f"it reads from {_shown(batch.start)} to {_shown(batch.end)}"


def _shown(place: StreamPosition) -> str:
    sources = [json.dumps(source, separators=(",", ":")) for source in place.sources if source is not None]
    return ", ".join(sources)[:500] or "the query's beginning"
