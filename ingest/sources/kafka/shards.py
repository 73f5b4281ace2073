"""The partition of each shard, and the records that its log lost before they were read.

A shard is one life of a partition. It ends where its log cannot be continued and the job accepts the loss:

::

    orders/0     topic id A, [0, 500)      the topic is deleted and created again, under another id
    orders/0~1   topic id B, [0, ...)      the same partition's next life

An ended shard's position is marked as ended, so that no later plan reads its log again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from timeline.epoch import Json, OffsetRange, Position
from timeline.holes import Hole, holes_json


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(frozen=True, order=True)
class Shard:
    """One life of a partition; as text ``topic/partition``, and from the second life on ``topic/partition~1``."""

    partition: Partition
    life: int = 0

    @classmethod
    def parse(cls, name: str) -> Shard:
        """Parse the text of a shard; a topic's name holds neither ``/`` nor ``~``."""
        topic, _, rest = name.partition("/")
        number, _, life = rest.partition("~")
        return cls(Partition(topic, int(number)), int(life or 0))

    def __str__(self) -> str:
        return f"{self.partition}~{self.life}" if self.life else str(self.partition)


@dataclass(frozen=True)
class Log:
    """A partition's log as the brokers have it now.

    Attributes:
        topic_id: distinguishes topics of one name; None where the brokers do not give ids.
        start: the first offset.
        end: the offset behind the last settled record: no transaction is open below it.
        leader_epoch: the latest leader epoch; None where the brokers do not give one.
    """

    topic_id: str | None
    start: int
    end: int
    leader_epoch: int | None = None


@dataclass(frozen=True)
class KafkaPosition:
    """Detail of a shard's position, besides the offset.

    Attributes:
        topic_id: id of the topic that was read.
        leader_epoch: at least the leader epoch of the last record before the offset.
        is_ended: no record is read behind the offset any more.
    """

    topic_id: str | None = None
    leader_epoch: int | None = None
    is_ended: bool = False

    def to_json(self) -> dict[str, Json]:
        """The entries of `Position.detail`."""
        ended: dict[str, Json] = {"ended": True} if self.is_ended else {}
        return {"topic_id": self.topic_id, "leader_epoch": self.leader_epoch, **ended}

    @classmethod
    def of(cls, detail: Mapping[str, Json]) -> KafkaPosition:
        """Parse `Position.detail`."""
        topic_id, leader_epoch = detail.get("topic_id"), detail.get("leader_epoch")
        return cls(
            str(topic_id) if topic_id is not None else None,
            leader_epoch if isinstance(leader_epoch, int) else None,
            detail.get("ended") is True,
        )


class RecordLoss(enum.Enum):
    """Why the next records cannot be read."""

    EXPIRED = "deleted by retention"
    RECREATED = "the topic was deleted and created again"
    TRUNCATED = "the log was cut off, and what follows are other records"
    DELETED = "the partition does not exist any more"


@dataclass(frozen=True)
class Stretch:
    """Consecutive offsets that a shard has to read.

    Attributes:
        shard: the shard.
        start: the shard's committed offset, or its first offset.
        first: the first offset that can be read; beyond `start` where records are lost.
        end: the offset behind the last record that can be read.
        place: detail of the position behind the stretch.
        hole: lost records, between `start` and `first`; for a shard that ends, behind or truncated below its offset.
        is_pinned: the plan includes the stretch even if it is empty, so that the position is known from then on.
    """

    shard: Shard
    start: int
    first: int
    end: int
    place: KafkaPosition
    hole: Hole | None = None
    is_pinned: bool = False

    @property
    def records(self) -> int:
        """Number of offsets that can be read, an upper bound of the number of records."""
        return self.end - self.first

    def range_of(self, records: int, detail: Mapping[str, Json]) -> OffsetRange:
        """The range of the first offsets, with the hole before them.

        Args:
            records: number of offsets from `first` on.
            detail: parameters for the reader.
        """
        after = self.place.to_json() | holes_json([self.hole] if self.hole is not None else [])
        return OffsetRange(str(self.shard), self.start, self.first + records, detail, after)


def current_shards(after: Mapping[str, Position]) -> dict[Partition, Shard]:
    """The latest life of each partition that the timeline knows."""
    latest: dict[Partition, Shard] = {}
    for name in after:
        shard = Shard.parse(name)
        latest[shard.partition] = max(shard, latest.get(shard.partition, shard))
    return latest


def continue_shard(shard: Shard, position: Position, log: Log | None, cut_at: int | None) -> list[Stretch]:
    """The stretch of a known shard, and of its partition's next life where the shard ends here.

    Args:
        shard: a shard that has not ended.
        position: the shard's committed position.
        log: the partition's log; None where it no longer exists.
        cut_at: the offset at which the log was truncated and continued with other records; None where it was not.
    """
    place, offset = KafkaPosition.of(position.detail), position.offset

    def ended(loss: RecordLoss, start: int, until: int | None) -> Stretch:
        hole = Hole(start, until, loss.value)
        return Stretch(shard, offset, offset, offset, replace(place, is_ended=True), hole, is_pinned=True)

    if log is None:
        return [ended(RecordLoss.DELETED, offset, None)]
    if None not in (place.topic_id, log.topic_id) and place.topic_id != log.topic_id:
        return [ended(RecordLoss.RECREATED, offset, None), next_life(shard, log, log.start)]
    if cut_at is not None or log.end < offset:
        cut_at = log.end if cut_at is None else min(cut_at, log.end)
        return [ended(RecordLoss.TRUNCATED, cut_at, offset), next_life(shard, log, max(cut_at, log.start))]
    here = Stretch(shard, offset, offset, log.end, KafkaPosition(log.topic_id, log.leader_epoch))
    if log.start <= offset:
        return [here]
    hole = Hole(offset, log.start, RecordLoss.EXPIRED.value)
    return [replace(here, first=log.start, end=max(log.start, log.end), hole=hole, is_pinned=True)]


def rejoin(shard: Shard, position: Position, log: Log) -> Stretch:
    """The stretch for the partition of an ended shard: another topic's whole log, the same topic's from the end on.

    Args:
        shard: the ended shard.
        position: the position at which the shard ended.
        log: the partition's log.
    """
    is_same = log.topic_id is not None and KafkaPosition.of(position.detail).topic_id == log.topic_id
    return next_life(shard, log, max(position.offset, log.start) if is_same else log.start)


def next_life(shard: Shard, log: Log, start: int) -> Stretch:
    """The stretch of the next life of a shard's partition.

    Args:
        shard: the life that ends.
        log: the partition's log.
        start: first offset of the next life.
    """
    return replace(new_shard(shard.partition, log, start), shard=replace(shard, life=shard.life + 1), is_pinned=True)


def new_shard(partition: Partition, log: Log, start: int) -> Stretch:
    """The stretch of a partition that the timeline does not know.

    Args:
        partition: the partition.
        log: the partition's log.
        start: first offset to read.
    """
    place = KafkaPosition(log.topic_id, log.leader_epoch)
    return Stretch(Shard(partition), start, start, max(start, log.end), place)
