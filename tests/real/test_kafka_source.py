"""The Kafka source on a real broker: its plans, its rows, and its reports of lost records."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition

from ingest.sources.base import SourcePlan
from ingest.sources.kafka.source import KafkaSource
from tests.real.kafka_properties import Listener
from tests.real.kafka_reading import Reading, source_of
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.waiting import wait_until
from timeline.chain import Chain
from timeline.epoch import OffsetRange, Position
from timeline.errors import RangeGoneError, SourceChangedError, SourceError, StoreUnavailableError
from timeline.holes import lost

pytestmark = pytest.mark.real

COLUMNS = {"id": "bigint"}
KEPT = {"retention.ms": "-1"}
"""For topics with old timestamps: with the default retention the broker deletes their records."""

_numbers = count()


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """The name of a topic that does not exist yet."""
    return f"orders-{next(_numbers)}"


def values(ids: Sequence[int]) -> list[bytes]:
    return [b'{"id": %d}' % number for number in ids]


def in_partition(partition: int, ids: Sequence[int]) -> list[KafkaRecord]:
    return [KafkaRecord(value, partition=partition) for value in values(ids)]


def reading_of(kafka: KafkaServer, topic: str, **options: Any) -> Reading:
    topics: dict[str, Any] = {} if "topic_pattern" in options else {"topics": [topic]}
    return Reading(source_of(kafka, **topics, **options), COLUMNS)


def ids(reading: Reading) -> list[int]:
    return sorted(reading.values("id"))


def note_of(reading: Reading, topic: str) -> str:
    return reading.source.ends(reading.chain.positions)[f"{topic}/0"].note


def sizes(plan: SourcePlan) -> dict[str, int]:
    return {offsets.shard.rpartition("/")[2]: offsets.until - offsets.start for offsets in plan.ranges}


def test_records_of_many_partitions_arrive_once_in_pieces_of_any_size(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 16)
    kafka.produce(topic, values(range(3000)))
    whole, pieces = reading_of(kafka, topic), reading_of(kafka, topic)
    whole.all()
    pieces.all(most=100)
    assert ids(whole) == ids(pieces) == list(range(3000))
    assert whole.rows == pieces.rows, "in the order of the offsets, whatever the pieces"
    kafka.produce(topic, values(range(3000, 3100)))
    whole.all()
    assert ids(whole) == list(range(3100))


def test_every_format_is_decoded_and_what_is_malformed_rejected_with_its_offset(kafka: KafkaServer, topic: str) -> None:
    cases: dict[str, tuple[dict[str, object], list[bytes], list[bytes]]] = {
        "json": ({}, [b'{"id": 1}', b'{"id":\n 2}\n'], [b"{", b""]),
        "csv": ({}, [b"1", b"2\n"], [b"1,2", b"x"]),
        "text": ({"pattern": r"no (?P<id>\d+)"}, [b"no 1", b"no 2\r\n"], [b"none", b"no \xff"]),
    }
    for name, (options, good, bad) in cases.items():
        kafka.create_topic(f"{topic}-{name}")
        kafka.produce(f"{topic}-{name}", [*good, *bad])
        reading = reading_of(kafka, f"{topic}-{name}", format=name, **options)
        reading.all()
        assert ids(reading) == [1, 2]
        assert [(row["offset"], row["raw"]) for row in reading.rejected] == list(enumerate(bad, 2))
    raw = Reading(source_of(kafka, topics=[f"{topic}-text"], format="raw"))
    raw.all()
    assert raw.values("value") == [b"no 1", b"no 2\r\n", b"none", b"no \xff"]


def test_columns_hold_what_kafka_knows_of_a_record(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 2, KEPT)
    moment = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    headers = (("trace", b"\x01\xff"), ("trace", None))
    kafka.produce(
        topic,
        [
            KafkaRecord('{"id": 1}', "käse", headers, partition=1, timestamp_ms=round(moment.timestamp() * 1000)),
            KafkaRecord('{"id": 2}', partition=1),
            KafkaRecord('{"id": 3}', b"\xff", partition=1),
        ],
    )
    names = ("key", "key_bytes", "timestamp", "headers", "topic", "partition", "offset")
    reading = Reading(source_of(kafka, topics=[topic], columns={name: f"k_{name}" for name in names}))
    reading.all()
    first, second = reading.rows
    assert (first["k_key"], first["k_key_bytes"], first["k_timestamp"]) == ("käse", "käse".encode(), moment)
    assert first["k_headers"] == [{"key": name, "value": value} for name, value in headers]
    assert (second["k_key"], second["k_headers"]) == (None, None)
    assert [(row["k_topic"], row["k_partition"], row["k_offset"]) for row in reading.rows] == [
        (topic, 1, 0),
        (topic, 1, 1),
    ]
    assert [(row["offset"], row["raw"]) for row in reading.rejected] == [(2, b'{"id": 3}')]


@pytest.mark.parametrize(
    ("tombstones", "rows", "rejected"), [("quarantine", [1, 2], [1]), ("row", [1, None, 2], []), ("skip", [1, 2], [])]
)
def test_record_without_a_value_goes_where_the_job_says(
    kafka: KafkaServer, topic: str, tombstones: str, rows: list[int | None], rejected: list[int]
) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, [KafkaRecord('{"id": 1}', "a"), KafkaRecord(None, "a"), KafkaRecord('{"id": 2}', "b")])
    reading = reading_of(kafka, topic, tombstones=tombstones)
    reading.all()
    assert reading.values("id") == rows
    assert [row["offset"] for row in reading.rejected] == rejected


def test_start_at_the_end_stays_where_it_was_over_a_restart(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 2)
    kafka.produce(topic, in_partition(0, [1, 2]))
    reading = reading_of(kafka, topic, start="latest")
    assert sizes(reading.epoch()) == {"0": 0, "1": 0}
    kafka.produce(topic, [*in_partition(0, [3]), *in_partition(1, [4])])
    reading = reading.restarted(source_of(kafka, topics=[topic], start="latest"))
    reading.all()
    assert ids(reading) == [3, 4]


def test_schema_of_a_job_that_starts_at_the_end_is_that_of_the_records_before(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 2)
    source = source_of(kafka, topics=[topic], start="latest")
    with pytest.raises(SourceError, match="write schema in the job file"):
        source.infer_schema(source.plan({}))
    kafka.produce(topic, [KafkaRecord('{"id": 1, "host": "a"}', partition=1)])
    assert source.infer_schema(source.plan({})) == pa.schema([("id", pa.int64()), ("host", pa.string())])


def test_start_at_a_time_or_at_offsets(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 3, KEPT)
    noon_ms = 1_772_366_400_000  # 2026-03-01T12:00:00Z
    for partition in (0, 1):
        kafka.produce(
            topic,
            [
                KafkaRecord(value, partition=partition, timestamp_ms=noon_ms + 1000 * at)
                for at, value in enumerate(values(range(10 * partition, 10 * partition + 5)))
            ],
        )
    at_time = reading_of(kafka, topic, start={"timestamp": "2026-03-01T12:00:03Z"})
    at_time.all()
    assert ids(at_time) == [3, 4, 13, 14]
    assert at_time.chain.positions[f"{topic}/2"].offset == 0
    at_offsets = reading_of(kafka, topic, start={"offsets": {topic: {"0": 4}}})
    at_offsets.all()
    assert ids(at_offsets) == [4, 10, 11, 12, 13, 14]
    with pytest.raises(SourceError, match=rf"offset 6 is not in the log of {topic}/0; \[0, 5\] is allowed"):
        reading_of(kafka, topic, start={"offsets": {topic: {"0": 6}}}).epoch()


def test_nothing_is_planned_before_the_first_record(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    reading = Reading(source_of(kafka, topics=[topic]))
    assert reading.epoch().ranges == ()
    kafka.produce(topic, values([1]))
    reading.all()
    assert ids(reading) == [1]


def test_limit_in_records_is_shared_fairly(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 3)
    for partition, records in enumerate((5, 200, 100)):
        kafka.produce(topic, in_partition(partition, range(1000 * partition, 1000 * partition + records)))
    reading = reading_of(kafka, topic, max_records_per_epoch=65)
    plan = reading.epoch()
    assert (sizes(plan), plan.behind, plan.behind_shards) == ({"0": 5, "1": 30, "2": 30}, 240, 2)
    reading.all()
    assert len(ids(reading)) == len(set(ids(reading))) == 305


def test_limit_in_bytes_goes_by_the_size_of_records(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, [json.dumps({"id": number, "pad": "x" * 980}) for number in range(2000)])
    reading = reading_of(kafka, topic, max_bytes_per_epoch=500_000)
    taken = sizes(reading.epoch())["0"]
    assert 400 <= taken <= 600
    reading.all()
    assert ids(reading) == list(range(2000))


def test_new_partition_and_new_topic_that_matches_begin_at_their_beginning(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(f"{topic}-a")
    kafka.produce(f"{topic}-a", values([1]))
    reading = reading_of(kafka, topic, topic_pattern=f"{topic}-.*", start="latest")
    reading.epoch()
    kafka.add_partitions(f"{topic}-a", 2)
    kafka.create_topic(f"{topic}-b")
    kafka.create_topic(f"not-{topic}-b")
    for name in (f"{topic}-b", f"not-{topic}-b"):
        kafka.produce(name, values([3]))
    kafka.produce(f"{topic}-a", in_partition(1, [2]))
    reading.all()
    assert ids(reading) == [2, 3]


def test_topic_that_was_never_there_is_named(kafka: KafkaServer, topic: str) -> None:
    with pytest.raises(SourceError, match=f"have no topic {topic}; create it"):
        reading_of(kafka, topic).epoch()


# Lost records. Each loss stops the job; once accepted, it becomes a hole.


def stops_and_goes_on(kafka: KafkaServer, topic: str, reading: Reading, error: type[SourceError], holes: str) -> None:
    """The loss stops a job; with loss accepted the job goes on, and no later start reports it.

    Args:
        kafka: the broker.
        topic: the only topic of the reading.
        reading: has committed a position before the loss.
        error: stops the job.
        holes: part of the expected text of the holes.
    """
    with pytest.raises(error) as stopped:
        reading.epoch()
    assert holes in str(stopped.value)
    assert "--accept-loss" in str(stopped.value)
    reading.source = source_of(kafka, topics=[topic], accept_loss=True)
    plan = reading.epoch()
    found = lost({offsets.shard: offsets.end for offsets in plan.ranges})
    assert holes in "; ".join(f"{shard} {hole}" for shard, each in found.items() for hole in each)
    reading.source = source_of(kafka, topics=[topic])
    reading.all()


def test_retention_that_ran_past_the_position_leaves_a_hole_in_the_range(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic, 2)
    kafka.produce(topic, in_partition(0, range(10)))
    reading = reading_of(kafka, topic)
    reading.all()
    kafka.produce(topic, in_partition(0, range(10, 40)))
    kafka.delete_records(topic, {0: 25})
    stops_and_goes_on(kafka, topic, reading, RangeGoneError, f"{topic}/0 [10, 25): deleted by retention")
    assert ids(reading) == [*range(10), *range(25, 40)]
    assert reading.chain.positions.keys() == {f"{topic}/0", f"{topic}/1"}


def test_topic_made_anew_goes_on_as_another_life_of_its_partitions(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic)
    reading.all()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(100, 150)))
    stops_and_goes_on(
        kafka, topic, reading, SourceChangedError, f"{topic}/0 [10, …): the topic was deleted and created"
    )
    assert ids(reading) == [*range(10), *range(100, 150)]
    assert {row["_shard"] for row in reading.rows} == {f"{topic}/0", f"{topic}/0~1"}


def test_topic_that_is_gone_ends_its_shards(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic)
    reading.all()
    kafka.delete_topic(topic)
    stops_and_goes_on(kafka, topic, reading, SourceChangedError, f"{topic}/0 [10, …): the partition does not exist")
    kafka.create_topic(topic)
    kafka.produce(topic, values([77]))
    reading.all()
    assert ids(reading) == [*range(10), 77]


def test_log_that_ends_below_the_position_goes_on_as_another_life(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic)
    reading.all()
    # A single broker never loses the end of a log: the position claims a longer log.
    (at,) = reading.chain.positions.values()
    reading.chain = Chain(1, {f"{topic}/0": Position(25, at.detail)})
    stops_and_goes_on(kafka, topic, reading, SourceChangedError, f"{topic}/0 [10, 25): the log was cut off")
    kafka.produce(topic, values(range(10, 50)))
    reading.all()
    assert ids(reading) == list(range(50))


def test_range_that_goes_while_it_is_planned_is_never_read_as_if_it_were_whole(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic)
    plan = reading.source.plan({})
    kafka.delete_records(topic, {0: 4})
    with pytest.raises(RangeGoneError, match=rf"shard {topic}/0, range \[0, 10\): at 0: .*[Oo]ffset out of range"):
        reading.read(plan.ranges[0], plan)
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(100, 120)))
    with pytest.raises(RangeGoneError, match="was deleted, or deleted and created again, since it was planned"):
        reading.read(plan.ranges[0], plan)


def test_log_that_ends_before_the_range_does_is_told_from_a_silent_broker(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic, broker_timeout=4)
    plan = reading.source.plan({})
    (offsets,) = plan.ranges
    beyond = OffsetRange(offsets.shard, 0, 12, after=offsets.after)
    with pytest.raises(RangeGoneError, match="the log ends at 10"):
        reading.read(beyond, plan)
    reading.read(offsets, plan)
    assert ids(reading) == list(range(10)), "none of a range that is not there to its end, all of one that is"


# Transactions and compaction.


def test_aborted_records_never_show_and_markers_are_no_loss(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    expected: list[int] = []
    for number in range(12):
        some = range(10 * number, 10 * number + 10)
        is_committed = number % 3 == 1
        kafka.produce_in_transaction(topic, values(some), commit=is_committed)
        expected += some if is_committed else ()
    wait_until(lambda: kafka.offsets(topic)[0][1] == 12 * 11, "the last marker is written")
    whole, pieces = reading_of(kafka, topic), reading_of(kafka, topic)
    whole.all()
    pieces.all(most=7)
    assert ids(whole) == ids(pieces) == expected
    assert whole.chain.positions == pieces.chain.positions
    assert whole.chain.positions[f"{topic}/0"].offset == 12 * 11, "behind the last marker, not behind the last record"


def test_open_transaction_holds_the_epoch_back(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(topic)
    producer = Producer({**kafka.client_options(), "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, values([2])[0])
    producer.flush(30)
    kafka.produce(topic, values([3]))
    reading = reading_of(kafka, topic)
    assert reading.epoch().ranges == ()
    assert "an open transaction holds back what was written from 0 on (2)" in note_of(reading, topic)
    producer.commit_transaction(30)
    wait_until(lambda: kafka.offsets(topic)[0][1] == 3, "the marker is written, which is later than the commit")
    reading.all()
    assert ids(reading) == [2, 3] and not note_of(reading, topic)


def test_gaps_that_compaction_leaves_are_no_loss(kafka: KafkaServer, topic: str) -> None:
    kafka.create_topic(
        topic,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "100",
        },
    )
    records = [KafkaRecord(value, f"key-{number % 10}") for number, value in enumerate(values(range(500)))]
    kafka.produce(topic, records)

    def is_compacted() -> bool:
        kafka.produce(topic, [KafkaRecord('{"id": -1}', "last")])  # rolls the segment
        reading = reading_of(kafka, topic)
        reading.all(most=50)
        return len(reading.rows) < 50

    wait_until(is_compacted, "the topic is compacted")
    reading = reading_of(kafka, topic)
    reading.all(most=50)
    assert {*range(490, 500)} <= set(ids(reading)) <= {-1, *range(490, 500)}


# Brokers.


def test_broker_that_is_killed_and_comes_back_in_the_middle_of_a_range_fails_nothing(
    kafka: KafkaServer, topic: str
) -> None:
    kafka.create_topic(topic, 2)
    kafka.produce(topic, [json.dumps({"id": number, "pad": "x" * 1000}) for number in range(60_000)])
    # A small prefetch: most of the first partition is unread when the broker is killed.
    ahead = {"queued.max.messages.kbytes": "1024", "max.partition.fetch.bytes": "65536"}
    reading = reading_of(kafka, topic, options=ahead)
    plan = reading.source.plan({})
    blocks = [iter(reading.source.reader().read(offsets)) for offsets in plan.ranges]
    found: list[int] = []
    found += ids_of(next(blocks[0]).data)
    kafka.kill()
    starting = threading.Thread(target=kafka.start)
    starting.start()
    try:
        for each in blocks:
            for block in each:
                found += ids_of(block.data)
    finally:
        starting.join()
    assert sorted(found) == list(range(60_000))


@dataclass(frozen=True)
class Restart:
    """A broker's restart: the reading before it, and the errors of a plan and a task while the broker was down."""

    topic: str
    before: Reading
    plan_error: str
    task_error: str


@pytest.fixture(scope="module")
def restart(kafka: KafkaServer) -> Restart:
    """Ten records, read under the first leader; twenty more after them, written under the second."""
    topic = f"orders-{next(_numbers)}"
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = reading_of(kafka, topic)
    plan = reading.epoch()
    kafka.stop()
    impatient = reading.restarted(source_of(kafka, topics=[topic], broker_timeout=1.5))
    try:
        with pytest.raises(SourceError) as plan_error:
            impatient.epoch()
        with pytest.raises(StoreUnavailableError) as task_error:
            impatient.read(plan.ranges[0], plan)
    finally:
        kafka.start()
    kafka.produce(topic, values(range(10, 30)))
    return Restart(topic, reading, str(plan_error.value), str(task_error.value))


def test_silent_brokers_end_a_plan_and_a_task_within_the_bound(restart: Restart) -> None:
    for error in (restart.plan_error, restart.task_error):
        assert "have not answered for 1.5 s" in error
        assert "Connection refused" in error
        assert "check source.bootstrap_servers" in error


def test_another_leader_with_the_same_log_is_no_loss(kafka: KafkaServer, restart: Restart) -> None:
    reading = restart.before.restarted(source_of(kafka, topics=[restart.topic]))
    reading.all()
    assert ids(reading) == list(range(30))


def test_log_that_was_cut_off_under_a_new_leader_is_told_though_it_has_grown_again(
    kafka: KafkaServer, restart: Restart
) -> None:
    reading = restart.before.restarted(source_of(kafka, topics=[restart.topic]))
    shard = f"{restart.topic}/0"
    # Had the first leader written 15 records, 5 would be lost, and other records would have their offsets now.
    reading.chain = Chain(1, {shard: Position(15, reading.chain.positions[shard].detail)})
    stops_and_goes_on(kafka, restart.topic, reading, SourceChangedError, f"{shard} [10, 15): the log was cut off")
    assert ids(reading) == list(range(30))


def ids_of(data: object) -> list[int]:
    assert isinstance(data, pa.RecordBatch)
    return [json.loads(value)["id"] for value in data.column("value").to_pylist()]


def test_published_offsets_are_those_of_the_timeline(
    kafka: KafkaServer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic(topic, 2)
    kafka.produce(topic, in_partition(0, range(5)))
    wait_until(lambda: tells_offsets(kafka, topic), "the broker has made its topic of offsets, which takes its time")
    reading = reading_of(kafka, topic, publish_offsets_to=f"group-{topic}")
    reading.all()
    assert published(kafka, topic) == {0: 5, 1: 0}
    kafka.produce(topic, in_partition(1, range(3)))
    reading.all()
    assert published(kafka, topic) == {0: 5, 1: 3}
    kafka.delete_topic(topic)
    reading.source = source_of(kafka, topics=[topic], accept_loss=True, publish_offsets_to=f"group-{topic}")
    reading.all()
    assert "not published" not in caplog.text, "a shard that has ended is not told to the group"


def published(kafka: KafkaServer, topic: str) -> dict[int, int]:
    request = ConsumerGroupTopicPartitions(f"group-{topic}", [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    (answer,) = kafka.admin.list_consumer_group_offsets([request]).values()
    return {place.partition: place.offset for place in answer.result(30).topic_partitions or ()}


def tells_offsets(kafka: KafkaServer, topic: str) -> bool:
    try:
        published(kafka, topic)
    except KafkaException:
        return False
    return True


# Security.


def secured_source(kafka: KafkaServer, listener: Listener, topic: str, **changes: str | None) -> KafkaSource:
    options = {**kafka.client_options(listener), "debug": "security,broker", **changes}
    given = {name: value for name, value in options.items() if value is not None}
    address = given.pop("bootstrap.servers")
    return source_of(kafka, topics=[topic], bootstrap_servers=address, options=given)


@pytest.mark.parametrize("listener", [Listener.SASL_PLAINTEXT, Listener.SASL_SSL, Listener.SSL])
def test_one_block_of_options_secures_driver_and_tasks(
    kafka: KafkaServer, topic: str, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    kafka.create_topic(topic)
    kafka.produce(topic, values(range(10)))
    reading = Reading(secured_source(kafka, listener, topic), COLUMNS)
    reading.all()
    assert ids(reading) == list(range(10))
    assert kafka.security is not None
    assert "librdkafka" in caplog.text
    assert kafka.security.password not in caplog.text


@pytest.mark.parametrize(
    ("listener", "changes"),
    [
        (Listener.SASL_SSL, {"sasl.password": "wrong-hunter2"}),
        (Listener.SASL_SSL, {"ssl.ca.location": None}),
        (Listener.SSL, {"ssl.certificate.location": None, "ssl.key.location": None}),
    ],
)
def test_refusal_is_final_in_driver_and_tasks_and_names_no_secret(
    kafka: KafkaServer, topic: str, listener: Listener, changes: dict[str, str | None]
) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, values([1]))
    plan = secured_source(kafka, listener, topic).plan({})
    refused = secured_source(kafka, listener, topic, **changes)
    for attempt in (lambda: refused.plan({}), lambda: list(refused.reader().read(plan.ranges[0]))):
        with pytest.raises(SourceError, match=r"refuse this job: .*; check source.options") as error:
            attempt()
        assert kafka.security is not None
        assert kafka.security.password not in str(error.value)
        assert "hunter2" not in str(error.value)
