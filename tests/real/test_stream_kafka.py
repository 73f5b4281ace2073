"""A streaming query with Spark's Kafka source: the offsets on the timeline outlive its checkpoint."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.stream import starting_offsets
from tests.conftest import absent
from tests.job import write_job
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.real.spark_jars import spark_kafka_jars
from tests.real.toolchain import MissingToolchainError
from tests.spark.stream_process import Answer, Query, StreamDriver, stream_driver
from timeline.active import ActiveTimeline
from timeline.instant import Action
from timeline.stores.opening import open_store

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.slow]

DONE = Answer()


@pytest.fixture(scope="module")
def driver() -> Iterator[StreamDriver]:
    """One driver with Spark's Kafka source for all queries of this file."""
    try:
        jars = spark_kafka_jars()
    except MissingToolchainError as missing:
        absent(str(missing))
    with stream_driver(jars) as driver:
        yield driver


@dataclass
class World:
    """A topic, a job file, and a query on them."""

    folder: Path
    kafka: KafkaServer
    driver: StreamDriver
    topic: str
    produced: int = 0

    @property
    def conf(self) -> Path:
        return self.folder / "job.yaml"

    def produce(self, records: int, partition: int) -> None:
        values = [f"{partition}-{self.produced + number}" for number in range(records)]
        self.kafka.produce(self.topic, [KafkaRecord(value, partition=partition) for value in values])
        self.produced += records

    def run(self, starting: str = "earliest", *, begins_at_timeline: bool = False, most: int = 1000) -> Answer | None:
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": starting,
            "maxOffsetsPerTrigger": str(most),
        }
        columns = ["cast(value as string) as value", "partition", "offset"]
        checkpoint = str(self.folder / "checkpoint")
        return self.driver.run(
            Query(str(self.conf), checkpoint, "kafka", options, columns, begins_at_timeline=begins_at_timeline)
        )

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.folder / "checkpoint")

    def forget_commits(self) -> None:
        """Leave the checkpoint as a crash does before Spark has logged the end of its newest batch."""
        commits = self.folder / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for name in (str(newest), f".{newest}.crc"):
            (commits / name).unlink()

    def is_exact(self) -> bool:
        """Whether every produced record is in the table once."""
        rows = DeltaTable(self.folder / "lake").to_pyarrow_table().to_pylist()
        counts = Counter((row["partition"], row["offset"]) for row in rows)
        return len(rows) == len(counts) == self.produced

    def epochs(self) -> int:
        return len(ActiveTimeline.load(open_store(f"{self.folder}/lake")).completed().by_action(Action.COMMIT))


@pytest.fixture
def world(tmp_path: Path, kafka: KafkaServer, driver: StreamDriver) -> World:
    topic = f"stream-{uuid.uuid4().hex}"
    kafka.create_topic(topic, partitions=2)
    world = World(tmp_path, kafka, driver, topic)
    settings = {
        "name": "events",
        "source": {"type": "stream"},
        "targets": [{"type": "delta", "path": f"{tmp_path}/lake"}],
    }
    write_job(world.conf, settings)
    return world


def refusal(answer: Answer | None) -> str:
    assert answer is not None and answer.error == "SourceChangedError", answer
    assert "Nothing of it was written" in answer.message and "starting_offsets(conf)" in answer.message
    return answer.message


def test_a_query_that_begins_at_the_timeline_goes_on_exactly_without_its_checkpoint(world: World) -> None:
    assert starting_offsets(world.conf, default="latest") == "latest"
    world.produce(30, 0)
    assert world.run(begins_at_timeline=True, most=10) == DONE
    world.produce(7, 0)
    world.produce(5, 1)
    world.lose_checkpoint()
    assert starting_offsets(world.conf) == f'{{"{world.topic}":{{"0":30,"1":0}}}}'
    assert world.run(begins_at_timeline=True) == DONE
    world.produce(3, 1)
    assert world.run(begins_at_timeline=True) == DONE, "with a checkpoint Spark does not look at the option"
    assert world.is_exact()
    assert world.epochs() == 5


@pytest.mark.parametrize(
    ("starting", "doubt"),
    [
        ("earliest", "partition {}/0: the batch has [0, 37), committed is [0, 30): [0, 30) would be twice"),
        ("latest", "partition {}/0: the batch has [37, 37), committed is [0, 30): [30, 37) would be lost"),
    ],
    ids=["earliest", "latest"],
)
def test_a_query_that_begins_elsewhere_without_its_checkpoint_is_refused_with_the_range_in_doubt(
    world: World, starting: str, doubt: str
) -> None:
    world.produce(30, 0)
    assert world.run() == DONE
    world.produce(7, 0)
    world.lose_checkpoint()
    assert doubt.format(world.topic) in refusal(world.run(starting))
    assert world.epochs() == 1
    world.lose_checkpoint()
    assert world.run(begins_at_timeline=True) == DONE
    assert world.is_exact()


def test_batches_that_are_committed_are_skipped_whatever_checkpoint_replays_them(world: World) -> None:
    world.produce(20, 0)
    assert world.run(most=10) == DONE
    world.forget_commits()
    assert world.run() == DONE
    world.lose_checkpoint()
    assert world.run() == DONE, "one batch of what two epochs have committed"
    assert world.epochs() == 2
    world.produce(5, 1)
    assert world.run() == DONE
    assert world.is_exact()


def test_where_an_empty_topic_was_begun_is_on_the_timeline(world: World) -> None:
    world.produce(9, 0)
    assert world.run("latest") == DONE
    assert world.epochs() == 1
    assert starting_offsets(world.conf) == f'{{"{world.topic}":{{"0":9,"1":0}}}}'
    world.produce(4, 0)
    world.lose_checkpoint()
    assert world.run(begins_at_timeline=True) == DONE
    table = DeltaTable(world.folder / "lake").to_pyarrow_table()
    assert sorted(table["offset"].to_pylist()) == [9, 10, 11, 12]


def test_a_partition_that_joins_is_read_from_its_beginning_or_refused(world: World) -> None:
    world.produce(5, 0)
    assert world.run() == DONE
    world.kafka.add_partitions(world.topic, 3)
    world.produce(6, 2)
    world.lose_checkpoint()
    assert (
        f"partition {world.topic}/2: the batch has [6, 6), nothing of it is committed: [0, 6) would be lost"
        in refusal(world.run("latest"))
    )
    world.lose_checkpoint()
    unnamed = world.run(begins_at_timeline=True)
    assert unnamed is not None and "you must specify all TopicPartitions" in unnamed.message
    world.lose_checkpoint()
    assert world.run(f'{{"{world.topic}":{{"0":5,"1":0,"2":-2}}}}') == DONE
    world.kafka.add_partitions(world.topic, 4)
    world.produce(2, 3)
    assert world.run() == DONE
    assert world.is_exact()
