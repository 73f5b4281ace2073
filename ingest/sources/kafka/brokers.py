"""Requests to the brokers: logs and their offsets, truncations, and offsets published for lag tools."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from ingest.sources.kafka.client import NO_SUCH_TOPIC, BrokerDeadline, error_of, open_admin, open_consumer, shown
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.shards import Log, Partition
from timeline.errors import SourceError, TidelineError

K = TypeVar("K")
T = TypeVar("T")

_POLL_S = 0.1
_PAUSE_S = 0.2
_ANSWER_S = 10.0
_PUBLISH_S = 5.0
_NEW_TOPIC_S = 3.0
"""How long an expected topic may be missing: the topic may be new, or the broker may have just started."""

_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_CUT_AT = re.compile(r"broker end offset is (\d+)")


@dataclass(frozen=True)
class Topic:
    """A topic as it is now.

    Attributes:
        topic_id: see `Log`.
        partitions: the partitions' numbers.
    """

    topic_id: str | None
    partitions: tuple[int, ...]


class Brokers:
    """A connection for requests; the driver has one for a whole run. It connects with the first request."""

    def __init__(self, options: KafkaOptions, timeout_error: type[TidelineError] = SourceError) -> None:
        """Create the client without connecting.

        Args:
            options: the job file's ``source`` block.
            timeout_error: the error raised where brokers do not answer for `broker_timeout`, in place of SourceError.

        Raises:
            ConfigError: librdkafka refuses the options.
        """
        self._options = options
        self._silent_is = timeout_error
        self._deadline = BrokerDeadline(options, timeout_error)
        self._admin = open_admin(options, self._deadline)

    def logs(self, known: Collection[str]) -> dict[Partition, Log]:
        """The logs of all topics that the job reads now.

        Args:
            known: topics that are expected to exist; requests for a missing one are repeated for 3 s before the topic
                counts as deleted.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        names = set(self._options.topics) or set(self._matching())
        settling = BrokerDeadline(self._options, self._silent_is)
        while True:
            topics = self._topics(names | set(known), set(known))
            partitions = [Partition(name, number) for name, topic in topics.items() for number in topic.partitions]
            starts = self._offsets(partitions, OffsetSpec.earliest())
            ends = self._offsets(partitions, OffsetSpec.latest())
            # A topic that was recreated in between has the offsets of one life and the id of another.
            if starts.keys() == ends.keys() == set(partitions) and self._topics(topics, ()) == topics:
                break
            settling.check()
            time.sleep(_PAUSE_S)
        return {
            partition: Log(
                topics[partition.topic].topic_id, starts[partition].offset, end.offset, _leader_epoch(end.leader_epoch)
            )
            for partition, end in ends.items()
        }

    def topic(self, name: str) -> Topic | None:
        """One topic as it is now; None where it does not exist.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        return self._topics([name], ()).get(name)

    def offsets_at(self, partitions: Collection[Partition], time_ms: int) -> dict[Partition, int]:
        """Each partition's first offset at or after a time; partitions without one are left out.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        found = self._offsets(partitions, OffsetSpec.for_timestamp(time_ms))
        return {partition: at.offset for partition, at in found.items() if at.offset >= 0}

    def held_back(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Number of offsets from the first open transaction on, by partition; partitions without one are left out.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        # In this order: records that are settled in between are not counted.
        written = self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        settled = self._offsets(partitions, OffsetSpec.latest())
        counts = {at: written[at].offset - settled[at].offset for at in written.keys() & settled.keys()}
        return {at: count for at, count in counts.items() if count > 0}

    def cuts(self, positions: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
        """Logs that were truncated below a position and continued with other records (KIP-320).

        Args:
            positions: offset and leader epoch of each log, see `KafkaPosition`.

        Returns:
            The first offset that differs, for each truncated log.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        if not positions:
            return {}
        left = {(at.topic, at.number): at for at in positions}
        found: dict[Partition, int] = {}
        self._deadline.begin()
        little = {"queued.min.messages": 1, "max.partition.fetch.bytes": 4096, "fetch.queue.backoff.ms": 10}
        consumer = open_consumer(self._options, self._deadline, little)
        try:
            consumer.assign(
                [
                    TopicPartition(at.topic, at.number, offset, leader_epoch=epoch)
                    for at, (offset, epoch) in positions.items()
                ]
            )
            while left:
                for message in consumer.consume(100, _POLL_S):
                    error = message.error()
                    place = (message.topic() or "", -1 if (number := message.partition()) is None else number)
                    if error is None or error.code() == KafkaError._PARTITION_EOF:
                        if left.pop(place, None) is not None:
                            # Else librdkafka fetches this partition for ever, and never gets to the others.
                            consumer.pause([TopicPartition(*place)])
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET and place in left:
                        partition = left.pop(place)
                        cut = _CUT_AT.search(error.str())
                        found[partition] = int(cut[1]) if cut is not None else positions[partition][0]
                    else:
                        self._deadline.record_error(error)
                self._deadline.check()
        finally:
            consumer.close()
        return found

    def publish(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets for a consumer group without members.

        Raises:
            SourceError: the brokers refused the offsets, or did not answer in time.
        """
        places = [TopicPartition(at.topic, at.number, offset) for at, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, places)]
        try:
            answer = self._admin.alter_consumer_group_offsets(request, request_timeout=_PUBLISH_S)[group].result()
        except KafkaException as failure:
            raise SourceError(shown(error_of(failure).str(), self._options)) from None
        errors = [str(place.error) for place in answer.topic_partitions or () if place.error is not None]
        if errors:
            raise SourceError(shown(errors[0], self._options))

    def _matching(self) -> list[str]:
        """Names of all topics that the job's pattern matches."""
        self._deadline.begin()
        answer_s = 1.0
        while True:
            try:
                metadata = self._admin.list_topics(timeout=max(_POLL_S, min(answer_s, self._deadline.left_s)))
                return [name for name in metadata.topics if self._options.wants(name)]
            except KafkaException as failure:
                self._deadline.record_error(error_of(failure))
            self._admin.poll(0)
            self._deadline.check()
            answer_s = min(2 * answer_s, _ANSWER_S)
            time.sleep(_PAUSE_S)

    def _topics(self, names: Iterable[str], insisted: Collection[str]) -> dict[str, Topic]:
        """The existing topics of these names; requests for missing `insisted` ones are repeated for a while."""
        asked = sorted(names)
        if not asked:
            return {}
        until = time.monotonic() + _NEW_TOPIC_S
        while True:
            found = self._ask(
                lambda answer_s: self._admin.describe_topics(TopicCollection(asked), request_timeout=answer_s)
            )
            if not set(insisted) - found.keys() or time.monotonic() >= until:
                break
            time.sleep(_PAUSE_S)
        return {
            name: Topic(
                None if str(topic.topic_id) == _NO_TOPIC_ID else str(topic.topic_id),
                tuple(sorted(partition.id for partition in topic.partitions)),
            )
            for name, topic in found.items()
        }

    def _offsets(
        self,
        partitions: Collection[Partition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[Partition, ListOffsetsResultInfo]:
        if not partitions:
            return {}
        wanted = {TopicPartition(at.topic, at.number): spec for at in partitions}
        found = self._ask(
            lambda answer_s: self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=answer_s)
        )
        return {Partition(at.topic, at.partition): info for at, info in found.items()}

    def _ask(self, question: Callable[[float], Mapping[K, Future[T]]]) -> dict[K, T]:
        """The answers, requested again until all have arrived; topics that do not exist are left out.

        Raises:
            SourceError: the brokers refuse the job or do not answer.
        """
        self._deadline.begin()
        while True:
            answers: dict[K, T] = {}
            is_complete = True
            for key, future in question(max(_POLL_S, min(_ANSWER_S, self._deadline.left_s))).items():
                try:
                    answers[key] = self._result(future)
                except KafkaException as failure:
                    if error_of(failure).code() not in NO_SUCH_TOPIC:
                        self._deadline.record_error(error_of(failure))
                        is_complete = False
            if is_complete:
                return answers
            self._deadline.check()
            time.sleep(_PAUSE_S)

    def _result(self, future: Future[T]) -> T:
        while True:
            try:
                return future.result(_POLL_S)
            except NotDone:
                self._admin.poll(0)  # delivers the errors that say why no answer arrives
                self._deadline.check()


def _leader_epoch(found: int | None) -> int | None:
    return found if found is not None and found >= 0 else None
