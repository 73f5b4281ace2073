"""Topics of a Kafka broker for tests: created, filled, and damaged as in production.

``python -m tests.real.kafka_topics BOOTSTRAP_SERVERS TOPIC < FILE`` produces the lines of a file.
"""

from __future__ import annotations

import functools
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.waiting import wait_until

REQUEST_S = 60.0
_NOT_LED_YET = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


@dataclass(frozen=True)
class KafkaRecord:
    """One record to produce.

    Attributes:
        value: None is a tombstone.
        key: None is a record without a key.
        headers: names and values, in order.
        partition: None: chosen by the key, or at random without a key.
        timestamp_ms: since 1970, UTC; None is now.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class KafkaTopics:
    """Calls on one broker; each returns when every client sees its effect, and raises KafkaException otherwise."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Keep the options; the first call connects.

        Args:
            options: of a librdkafka client with all permissions.
        """
        # Many tests stop the broker: no log on stderr, and quick reconnects.
        self._options = {**options, "log_level": "0", "reconnect.backoff.max.ms": "200"}

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with its own settings, for example ``{"cleanup.policy": "compact"}``."""
        topic = NewTopic(name, partitions, replication_factor=1, config=dict(config or {}))
        self.admin.create_topics([topic])[name].result(REQUEST_S)
        wait_until(lambda: self.led_partitions(name) == partitions, f"{name} has {partitions} led partitions")

    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, up to `total`."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(REQUEST_S)
        wait_until(lambda: self.led_partitions(name) == total, f"{name} has {total} led partitions")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records; a topic created later under the same name is a new one."""
        self.admin.delete_topics([name])[name].result(REQUEST_S)
        wait_until(lambda: self.led_partitions(name) == 0, f"{name} is gone")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Move the start of logs to other offsets, as retention does.

        A broker that is killed within the next minute may forget the new start; a stopped broker does not.

        Args:
            topic: its name.
            before: partition → the first offset that stays.
        """
        partitions = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for deleted in self.admin.delete_records(partitions).values():
            deleted.result(REQUEST_S)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partition → its first offset and its end offset.

        Retries: a broker that has just started, or just created a partition, denies for a while to lead it.
        """
        deadline = time.monotonic() + REQUEST_S
        consumer = Consumer({**self._options, "group.id": "never committed"})
        try:
            while True:
                try:
                    return _offsets(consumer, topic)
                except KafkaException as error:
                    is_early = error.args[0].retriable() or error.args[0].code() in _NOT_LED_YET
                    if not is_early or time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        finally:
            consumer.close()

    def led_partitions(self, topic: str) -> int:
        """Number of a topic's partitions that have a leader now; 0 if the topic does not exist."""
        found = self.admin.list_topics(timeout=REQUEST_S).topics.get(topic)
        return 0 if found is None else sum(partition.leader >= 0 for partition in found.partitions.values())

    def produce(self, topic: str, records: Iterable[KafkaRecord | bytes | str]) -> list[tuple[int, int]]:
        """Produce records, or bare values, and wait until the broker has acknowledged all of them.

        In order, and each record once; a broker that fails meanwhile may have a record twice.

        Returns:
            the partition and offset of each record, in the order of the records.
        """
        # An idempotent producer is not ready before librdkafka's timer of half a second: too long for each call.
        producer = Producer({**self._options, "max.in.flight.requests.per.connection": 1})
        return _deliver(producer, topic, records)

    def produce_in_transaction(
        self, topic: str, records: Iterable[KafkaRecord | bytes | str], *, commit: bool
    ) -> list[tuple[int, int]]:
        """Produce records in one transaction of a new producer, and commit or abort it; see `produce`.

        Either way a control record takes one offset behind the records in each partition; two if the broker is
        killed soon after.
        """
        producer = Producer({**self._options, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(REQUEST_S)
        producer.begin_transaction()
        places = _deliver(producer, topic, records)
        if commit:
            producer.commit_transaction(REQUEST_S)
        else:
            producer.abort_transaction(REQUEST_S)
        return places

    @functools.cached_property
    def admin(self) -> AdminClient:
        """One client for all calls: results arrive only while the client exists."""
        return AdminClient({**self._options})


def _offsets(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    found = consumer.list_topics(topic, REQUEST_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_S)
        for partition in found.partitions
    }


def _deliver(producer: Producer, topic: str, records: Iterable[KafkaRecord | bytes | str]) -> list[tuple[int, int]]:
    places: dict[int, tuple[int, int]] = {}
    errors: list[KafkaError] = []

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None:
            errors.append(error)
        elif partition is not None and offset is not None:
            places[index] = (partition, offset)

    count = 0
    for count, given in enumerate(records, start=1):
        record = given if isinstance(given, KafkaRecord) else KafkaRecord(given)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                    on_delivery=functools.partial(delivered, count),
                )
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    producer.flush(REQUEST_S)
    if errors or len(places) != count:
        raise KafkaException(errors[0] if errors else KafkaError(KafkaError._MSG_TIMED_OUT))
    return [places[index] for index in sorted(places)]


def main(bootstrap_servers: str, topic: str) -> None:
    """Produce each line of stdin as one record; a missing topic is created with four partitions."""
    topics = KafkaTopics({"bootstrap.servers": bootstrap_servers})
    if topics.led_partitions(topic) == 0:
        topics.create_topic(topic, 4)
    places = topics.produce(topic, (line.rstrip(b"\n") for line in sys.stdin.buffer))
    print(f"{len(places)} records produced to {topic}: offsets {topics.offsets(topic)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
