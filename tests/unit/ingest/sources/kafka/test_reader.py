"""Messages in a task, from broker to block; `tests/real/test_kafka_source.py` reads from brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter

import pytest
from confluent_kafka import Message, TopicPartition

from ingest.sources.base import Block
from ingest.sources.kafka import reader
from ingest.sources.kafka.reader import KafkaReader
from tests.unit.ingest.sources.kafka.test_message_decoder import message, options_of
from timeline.epoch import OffsetRange
from timeline.errors import StoreUnavailableError

VALUE = b"{}".ljust(reader.BLOCK_BYTES // 200)
RANGE = OffsetRange("orders/3", 0, 700, {"record_bytes": len(VALUE)}, {"leader_epoch": 0})


class Broker:
    """A consumer that delivers messages and records the number of each call."""

    def __init__(self, until: int = RANGE.until) -> None:
        self._until = until
        self._position = 0
        self.brought: list[int] = []

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        (self._position,) = (each.offset for each in partitions)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        if self._position == self._until:
            raise StoreUnavailableError("no route")
        first, self._position = self._position, min(self._position + most, self._until)
        self.brought.append(self._position - first)
        return [message(offset, VALUE) for offset in range(first, self._position)]

    def close(self) -> None:
        pass


def blocks_of(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Block]:
    monkeypatch.setattr(reader, "open_consumer", lambda *args: broker)
    monkeypatch.setattr(KafkaReader, "require_same_topic", lambda *args: None)
    return KafkaReader(options_of()).read(RANGE)


def test_messages_are_taken_in_pieces_and_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    blocks = list(blocks_of(broker, monkeypatch))
    offsets = [batch.column("offset").to_pylist() for batch in map(attrgetter("data"), blocks)]
    assert [each[0] for each in offsets] == [block.start for block in blocks]
    assert list(chain.from_iterable(offsets)) == [*range(RANGE.until)]
    assert [block.rows >= 200 - 1 for block in blocks] == [True, True, True, False]
    assert max(broker.brought) <= 25, "an eighth of a block"


def test_what_came_before_an_error_is_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailableError, match="no route"):
        list(blocks_of(Broker(until=500), monkeypatch))
