"""Reads explicit offsets of a partition in a task, with librdkafka and without a consumer group.

::

      start ···· first ══════════════════════ until
        hole      records, with gaps where markers, aborted transactions and compaction are

A range ends when the position has reached `until`: by a record at or behind `until`, which is dropped, or by the
end of the partition where gaps come last. No record from `until` on is delivered, whatever was appended since.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ingest.sources.base import Block
from ingest.sources.kafka.brokers import Brokers
from ingest.sources.kafka.client import NO_SUCH_TOPIC, BrokerDeadline, open_consumer
from ingest.sources.kafka.messages import message_batch, with_values
from ingest.sources.kafka.options import KafkaOptions, Tombstones
from ingest.sources.kafka.shards import KafkaPosition, Shard
from timeline.epoch import OffsetRange
from timeline.errors import RangeGoneError, StoreUnavailableError
from timeline.holes import first_there

BLOCK_BYTES = 4 << 20
"""Size of a block, which is decoded at once."""

_PIECE_BYTES = 512 << 10
"""Size of one request to the consumer. Messages are Python objects: requests of 2 MB take half as long again."""

_MOST_RECORDS = 50_000
_UNKNOWN_RECORDS = 200
"""Records of one request while their size is unknown: even large ones fit into memory."""

_USUAL_RECORD_BYTES = 1000
_POLL_S = 0.05
_LEAST_PREFETCH_BYTES = 1 << 20
_MOST_PREFETCH_BYTES = 16 << 20


@dataclass(frozen=True)
class KafkaReader:
    """Picklable; see `RangeReader`. A range's detail may hold ``record_bytes``, an estimate of a record's size.

    Attributes:
        options: the job file's ``source`` block.
    """

    options: KafkaOptions

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader.

        Raises:
            RangeGoneError: part of the range is lost by retention, a recreated topic or a truncated log.
            SourceError: the brokers refuse the job.
            StoreUnavailableError: the brokers have not answered for `broker_timeout`; a retry may help.
        """
        first = first_there(offsets)
        if first >= offsets.until:
            return
        deadline = BrokerDeadline(self.options, StoreUnavailableError)
        with closing(open_consumer(self.options, deadline, _tuning(offsets, first))) as consumer:
            yield from self._blocks(_RecordFeed(consumer, offsets, first, self, deadline), offsets)
        self.require_same_topic(offsets)

    def _blocks(self, feed: _RecordFeed, offsets: OffsetRange) -> Iterator[Block]:
        pieces: list[pa.RecordBatch] = []
        for piece in self._pieces(feed, offsets):
            pieces.append(piece)
            if sum(each.nbytes for each in pieces) >= BLOCK_BYTES:
                yield _block_of(pieces, offsets)
                pieces = []
        if pieces:
            yield _block_of(pieces, offsets)

    def _pieces(self, feed: _RecordFeed, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        record_bytes = offsets.detail.get("record_bytes")
        most = _records_in(_PIECE_BYTES, record_bytes) if isinstance(record_bytes, int) else _UNKNOWN_RECORDS
        while messages := feed.take(most):
            piece = message_batch(messages, self.options.columns, times=self.options.needs_times)
            del messages  # frees their memory before the next ones are made
            most = _records_in(_PIECE_BYTES, piece.nbytes // piece.num_rows)
            if self.options.tombstones is Tombstones.SKIP:
                piece = with_values(piece)
            if piece.num_rows:
                yield piece

    def require_same_topic(self, offsets: OffsetRange) -> None:
        """Check that the planned topic still exists. Ids are never reused, so the same id means that it always existed.

        Raises:
            RangeGoneError: the topic was deleted, or deleted and created again.
        """
        name = Shard.parse(offsets.shard).partition.topic
        topic = Brokers(self.options, StoreUnavailableError).topic(name)
        planned = KafkaPosition.of(offsets.after).topic_id
        if topic is None or (planned is not None and topic.topic_id != planned):
            raise range_gone(offsets, f"topic {name} was deleted, or deleted and created again, since it was planned")


def range_gone(offsets: OffsetRange, found: str) -> RangeGoneError:
    """The error of a range that can no longer be read as planned."""
    return RangeGoneError(
        f"shard {offsets.shard}, range [{offsets.start}, {offsets.until}): {found}; start again: the next plan says "
        "what is gone"
    )


def _block_of(pieces: Sequence[pa.RecordBatch], offsets: OffsetRange) -> Block:
    batch = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
    return Block(offsets.shard, batch.column("offset")[0].as_py(), batch.num_rows, batch)


def _records_in(size: int, record_bytes: int) -> int:
    return max(1, min(_MOST_RECORDS, size // max(1, record_bytes)))


def _tuning(offsets: OffsetRange, first: int) -> dict[str, str | int]:
    """Fetch options for a range: bounded memory, and little prefetch beyond the end of a small range."""
    known = offsets.detail.get("record_bytes")
    expected = (offsets.until - first) * (known if isinstance(known, int) else _USUAL_RECORD_BYTES)
    prefetch = max(_LEAST_PREFETCH_BYTES, min(_MOST_PREFETCH_BYTES, expected))
    return {
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": prefetch >> 10,
        "max.partition.fetch.bytes": min(prefetch, 2 << 20),
        "fetch.max.bytes": 16 << 20,
        "fetch.wait.max.ms": 100,
        # A full queue is checked again at once: the default of a second would halve the speed.
        "fetch.queue.backoff.ms": 5,
    }


class _RecordFeed:
    """Consumes the records of a range in order; `position` is the next offset to consume."""

    def __init__(
        self, consumer: Consumer, offsets: OffsetRange, first: int, reader: KafkaReader, deadline: BrokerDeadline
    ) -> None:
        partition, place = Shard.parse(offsets.shard).partition, KafkaPosition.of(offsets.after)
        # With a leader epoch, librdkafka asks the leader whether the log was truncated below this offset (KIP-320).
        at = TopicPartition(partition.topic, partition.number, first, leader_epoch=place.leader_epoch)
        consumer.assign([at])
        self.position = first
        self._end = -1
        self._consumer = consumer
        self._offsets = offsets
        self._reader = reader
        self._deadline = deadline

    def take(self, most: int) -> Sequence[Message]:
        """The next records, at most `most`; none at the end.

        Raises:
            RangeGoneError: part of the range is lost.
            SourceError: the brokers refuse the job.
            StoreUnavailableError: the brokers do not answer.
        """
        until = self._offsets.until
        self._deadline.begin()
        while self.position < until:
            brought: Sequence[Message] = self._consumer.consume(min(most, until - self.position), _POLL_S)
            if any(map(Message.error, brought)):
                brought = self._without_events(brought)
            taken = self._advance(brought)
            if taken:
                return taken
            if not brought and self.position < until:
                self._wait()
        return ()

    def _advance(self, brought: Sequence[Message]) -> Sequence[Message]:
        """Move the position behind these messages; returns those that belong to the range."""
        if brought:
            first, last = _offset(brought[0]), _offset(brought[-1])
            if first < self.position:
                raise range_gone(self._offsets, f"the log goes on at {first} where {self.position} comes next")
            self.position = last + 1
        # Offsets between the last record and the partition's end are gaps: no record will ever appear there.
        self.position = max(self.position, self._end)
        if self.position <= self._offsets.until:
            return brought
        return brought[: bisect.bisect_left(brought, self._offsets.until, key=_offset)]

    def _wait(self) -> None:
        """Return while more records may arrive."""
        if self.position == self._end and self._deadline.left_s <= 0 and not self._deadline.has_error:
            raise range_gone(self._offsets, f"the log ends at {self.position}")
        self._deadline.check()

    def _without_events(self, brought: Sequence[Message]) -> Sequence[Message]:
        """The records among a consumer's messages; events such as the partition's end and errors are handled."""
        records: list[Message] = []
        for message in brought:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._end = _offset(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise range_gone(self._offsets, f"at {self.position}: {error.str()}")
            else:
                self._deadline.record_error(error)
                if error.code() in NO_SUCH_TOPIC:
                    self._reader.require_same_topic(self._offsets)
        return records


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
