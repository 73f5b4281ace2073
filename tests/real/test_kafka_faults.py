"""A Kafka job whose broker is killed or does not answer, whose driver is frozen or loses its JVM, stays exact."""

from __future__ import annotations

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.job import Job, finish
from tests.real.kafka_server import KafkaServer
from tests.waiting import wait_until, wait_until_frozen

pytestmark = [pytest.mark.real, pytest.mark.slow]

ON_SPARK = {"TIDELINE_ON_SPARK": "1"}


class KafkaJob(Job):
    """A job that reads a topic of its own, with a hundred records and two malformed ones in four partitions."""

    def __init__(self, folder: Path, broker: KafkaServer) -> None:
        super().__init__(folder)
        self._broker, self._topic = broker, f"faults-{uuid.uuid4().hex}"
        broker.create_topic(self._topic, 4)
        self.write_source()
        self.produce(0, 100)
        broker.produce(self._topic, ["{malformed"] * 2)

    def write_source(self, **options: object) -> None:
        source = {
            "type": "kafka",
            "bootstrap_servers": self._broker.bootstrap_servers,
            "topics": [self._topic],
            "format": "json",
        }
        spark = {"master": "local[2]", "small_epochs": "executors"}
        self.write(source=source | options, writer={"lease_ttl": "1s"}, spark=spark)

    def produce(self, first: int, until: int) -> None:
        self._broker.produce(self._topic, [json.dumps({"id": number, "host": "h"}) for number in range(first, until)])

    def assert_exact(self, rows: int) -> None:
        assert self.ids() == Counter(range(rows))
        quarantine = self.table("lake_quarantine")
        assert quarantine is not None and quarantine.to_pyarrow_table().num_rows == 2
        assert self.is_settled()


@pytest.fixture
def kafka_job(tmp_path: Path, kafka: KafkaServer) -> Iterator[KafkaJob]:
    job = KafkaJob(tmp_path, kafka)
    yield job
    job.close()


def test_broker_that_is_killed_in_an_epoch_and_comes_back_changes_nothing(
    kafka_job: KafkaJob, kafka: KafkaServer
) -> None:
    ingests = kafka_job.start("run", env={"TIDELINE_FREEZE_AT": "begun"})
    wait_until_frozen(ingests)
    kafka.kill()
    ingests.send_signal(signal.SIGCONT)
    kafka.start()
    ended = finish(ingests)
    assert ended.code == 0, ended.err
    kafka_job.assert_exact(100)


def test_broker_that_comes_back_is_asked_about_every_partition_and_each_gets_its_turn(
    kafka_job: KafkaJob, kafka: KafkaServer
) -> None:
    assert kafka_job.tideline("run").code == 0
    kafka_job.produce(100, 40_000)  # more than is fetched of each partition before all have answered
    kafka.stop()
    kafka.start()  # a new leader epoch: the logs may have been truncated
    kafka_job.write_source(broker_timeout="10s")
    ended = kafka_job.tideline("run")
    assert ended.code == 0, ended.err
    kafka_job.assert_exact(40_000)


@pytest.mark.spark
def test_broker_that_stays_away_in_an_epoch_rolls_it_back_and_is_named(kafka_job: KafkaJob, kafka: KafkaServer) -> None:
    kafka_job.write_source(broker_timeout="5s")
    ingests = kafka_job.start("run", env=ON_SPARK | {"TIDELINE_FREEZE_AT": "begun"})
    wait_until_frozen(ingests)
    kafka.kill()
    try:
        ingests.send_signal(signal.SIGCONT)
        failed = finish(ingests)
        planning = kafka_job.tideline("run")
    finally:
        kafka.start()
    silent = f"brokers {kafka.bootstrap_servers} have not answered for 5 s"
    assert failed.code == 6 and silent in failed.err, failed.err
    assert planning.code == 4 and silent in planning.err, planning.err
    assert not kafka_job.pending() and not kafka_job.stray_files()
    kafka_job.write_source()
    ended = kafka_job.tideline("run")
    assert ended.code == 0, ended.err
    kafka_job.assert_exact(100)


@pytest.mark.spark
@pytest.mark.parametrize("point", ["manifest", "decided", "part-committing"])
def test_driver_on_spark_that_is_frozen_adds_nothing_when_it_wakes(kafka_job: KafkaJob, point: str) -> None:
    frozen = kafka_job.start("run", env=ON_SPARK | {"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(frozen)
    kafka_job.produce(100, 150)
    taker = kafka_job.tideline("run")
    assert taker.code == 0, taker.err
    kafka_job.assert_exact(150)
    frozen.send_signal(signal.SIGCONT)
    woken = finish(frozen)
    # Before its decision the frozen writer loses; after it, the successor has completed the decided epoch.
    assert woken.code in ((7,) if point == "manifest" else (0, 7)), woken.err
    assert kafka_job.tideline("recover").code == 0
    kafka_job.assert_exact(150)


@pytest.mark.spark
def test_jvm_that_dies_between_two_epochs_is_named_and_leaves_no_trace_in_the_log(kafka_job: KafkaJob) -> None:
    kafka_job.write_source(max_records_per_epoch=60)
    ingests = kafka_job.start("run", "--log-json", env=ON_SPARK | {"TIDELINE_FREEZE_AT": "manifest"})
    wait_until_frozen(ingests)
    (java,) = [process for process in psutil.Process(ingests.pid).children(recursive=True) if process.name() == "java"]
    java.kill()
    # The frozen parent cannot reap the process.
    wait_until(lambda: java.status() == psutil.STATUS_ZOMBIE, "the JVM has ended")
    ingests.send_signal(signal.SIGCONT)
    failed = finish(ingests)
    assert failed.code == 8, failed.err
    records = [json.loads(line) for line in failed.err.splitlines()]
    assert "Spark's JVM does not answer any more" in records[-1]["message"]
    assert records[-1]["kind"] == "SparkJobError"
    assert len(kafka_job.ids()) in range(50, 61), "the epoch that was written needs no JVM"
    assert kafka_job.tideline("run").code == 0
    kafka_job.assert_exact(100)
