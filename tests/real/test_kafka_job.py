"""Jobs that read Kafka, run as a user runs them, and their tables compared with the produced records."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cli.test_spark import below, has_markers
from tests.job import ROOT, SPARK, Job, finish
from tests.real.kafka_properties import Listener
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.spark.test_job_files import expected_rows, sorted_rows
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow]

_numbers = count()


@pytest.fixture
def topic() -> str:
    return f"clicks-{next(_numbers)}"


@pytest.fixture
def job(kafka: KafkaServer, topic: str, tmp_path: Path) -> Iterator[Job]:
    """A job on an empty topic of four partitions."""
    kafka.create_topic(topic, 4)
    job = Job(tmp_path)
    job.write(source=source_of(kafka, topic), lineage=True)
    yield job
    job.close()


def source_of(kafka: KafkaServer, topic: str, **changes: Any) -> dict[str, Any]:
    return {
        "type": "kafka",
        "bootstrap_servers": kafka.bootstrap_servers,
        "topics": [topic],
        "format": "json",
    } | changes


def produce(kafka: KafkaServer, topic: str, ids: range, size: int = 0) -> None:
    kafka.produce(topic, [json.dumps({"id": number, "host": f"h{number % 3}", "pad": "x" * size}) for number in ids])


def assert_every_record_once(job: Job, ids: range) -> None:
    """Each id is in the table once, at an offset of its own."""
    table = job.table()
    assert table is not None
    rows = table.to_pyarrow_table(columns=["id", "_shard", "_offset"]).to_pylist()
    assert set(Counter((row["_shard"], row["_offset"]) for row in rows).values()) == {1}
    assert Counter(row["id"] for row in rows) == Counter(ids)


def rows_in(table: DeltaTable | None) -> int:
    return 0 if table is None else table.count()


@pytest.mark.spark
def test_access_log_from_a_topic_is_the_table_that_the_file_makes(
    kafka: KafkaServer, logs: Path, tmp_path: Path
) -> None:
    kafka.create_topic("access-log", 4)
    lines = (logs / "apache_access.log").read_bytes().splitlines(keepends=True)
    kafka.produce("access-log", lines)
    job = Job(tmp_path)
    job.file.write_text((ROOT / "conf" / "kafka-access-log.yaml").read_text())
    for _ in range(2):  # the second run finds nothing new
        ended = job.tideline("run", program=SPARK, env={"KAFKA": kafka.bootstrap_servers})
        assert ended.code == 0, ended.err
    accepted, rejected = expected_rows(ROOT / "conf" / "access-log.yaml", logs)
    table = DeltaTable(tmp_path / "lake" / "kafka_access_log").to_pyarrow_table()
    assert table["received_at"].null_count == 0
    assert sorted_rows(table.select(list(accepted[0])).to_pylist()) == sorted_rows(accepted)
    quarantine = tmp_path / "lake" / "kafka_access_log_quarantine"
    assert (DeltaTable(quarantine).to_pyarrow_table().num_rows if quarantine.exists() else 0) == rejected


def test_events_of_many_topics_arrive_in_one_table(kafka: KafkaServer, tmp_path: Path) -> None:
    for name in ("events.web", "events.app"):
        kafka.create_topic(name, 2)
        event = {"id": 1, "ts": "2026-03-01T12:00:00Z", "kind": "login", "user": {"id": 7, "country": "DE"}}
        kafka.produce(name, [KafkaRecord(json.dumps(event), "k"), KafkaRecord(None, "k"), KafkaRecord("{", "k")])
    job = Job(tmp_path)
    job.file.write_text((ROOT / "conf" / "kafka-json.yaml").read_text())
    ended = job.tideline("run", env={"KAFKA": kafka.bootstrap_servers})
    assert ended.code == 0, ended.err
    rows = DeltaTable(tmp_path / "lake" / "kafka_json").to_pyarrow_table().sort_by("topic").to_pylist()
    assert [(row["topic"], row["event_key"], row["user"]["country"]) for row in rows] == [
        ("events.app", "k", "DE"),
        ("events.web", "k", "DE"),
    ]
    assert DeltaTable(tmp_path / "lake" / "kafka_json_quarantine").to_pyarrow_table().num_rows == 2


@pytest.mark.spark
def test_job_killed_while_it_writes_goes_on_with_every_record_once(kafka: KafkaServer, topic: str, job: Job) -> None:
    produce(kafka, topic, range(60_000), size=200)
    job.write(source=source_of(kafka, topic, max_records_per_epoch=25_000), lineage=True)
    process = job.start("run", program=SPARK)
    wait_for(lambda: job.table() is not None and bool(job.pending()) and has_markers(job.lake), process)
    children = below(process.pid, "")
    process.send_signal(signal.SIGKILL)
    finish(process)
    for child in children:
        child.wait(60)
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert_every_record_once(job, range(60_000))
    assert job.is_settled()


@pytest.mark.spark
def test_broker_restarted_in_an_epoch_while_records_arrive_fails_no_epoch(
    kafka: KafkaServer, topic: str, job: Job
) -> None:
    # A small prefetch: most of the first epoch is unread when the broker is killed.
    ahead = {"queued.max.messages.kbytes": "1024", "max.partition.fetch.bytes": "65536"}
    job.write(source=source_of(kafka, topic, max_records_per_epoch=30_000, options=ahead), lineage=True)
    produce(kafka, topic, range(50_000), size=1000)
    process = job.start("run", "--continuous", program=SPARK)
    wait_for(lambda: bool(job.pending()) and has_markers(job.lake), process)
    kafka.kill()
    kafka.start()
    arriving = threading.Thread(target=produce, args=(kafka, topic, range(50_000, 60_000)))
    arriving.start()
    wait_for(lambda: rows_in(job.table()) == 60_000, process)
    arriving.join()
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert_every_record_once(job, range(60_000))
    rows = job.tideline("show", "--limit", "0", "--json").json
    assert {row["action"] for row in rows} == {"commit"}
    assert job.is_settled()


def test_loss_stops_the_job_and_shows_on_the_timeline_once_it_is_accepted(
    kafka: KafkaServer, topic: str, job: Job
) -> None:
    kafka.produce(topic, [KafkaRecord(b'{"id": %d}' % number, partition=0) for number in range(10)])
    assert job.tideline("run").code == 0
    kafka.produce(topic, [KafkaRecord(b'{"id": %d}' % number, partition=0) for number in range(10, 40)])
    kafka.delete_records(topic, {0: 25})
    stopped = job.tideline("run")
    assert stopped.code == 4
    assert f"{topic}/0 [10, 25): deleted by retention" in stopped.err.splitlines()[-1]
    assert "--accept-loss" in stopped.err.splitlines()[-1]
    went_on = job.tideline("run", "--accept-loss")
    assert went_on.code == 0, went_on.err
    assert f"WARNING shard {topic}/0 goes on behind a loss: [10, 25): deleted by retention" in went_on.err
    assert job.ids() == Counter([*range(10), *range(25, 40)])
    first, second = job.tideline("show", "--json").json
    assert first["lost"] is None
    assert second["lost"] == {f"{topic}/0": [{"start": 10, "until": 25, "reason": "deleted by retention"}]}
    assert f"lost: {topic}/0 [10, 25): deleted by retention" in " ".join(job.tideline("show").out.split())
    assert job.tideline("run").code == 0
    assert len(job.tideline("show", "--json").json) == 2


@pytest.mark.parametrize("crash", ["begun", "manifest"])
def test_hole_survives_a_crash_and_is_recorded_once(kafka: KafkaServer, topic: str, job: Job, crash: str) -> None:
    kafka.produce(topic, [KafkaRecord(b'{"id": %d}' % number, partition=0) for number in range(10)])
    assert job.tideline("run").code == 0
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 4)
    kafka.produce(topic, [KafkaRecord(b'{"id": %d}' % number, partition=0) for number in range(50, 60)])
    assert job.tideline("run", "--accept-loss", env={"TIDELINE_CRASH_AT": crash}).code not in (0, 4)
    assert job.tideline("recover").code == 0
    ended = job.tideline("run", "--accept-loss")
    assert ended.code == 0, ended.err
    assert job.ids() == Counter([*range(10), *range(50, 60)])
    commits = [row for row in job.tideline("show", "--json").json if row["action"] == "commit" and row["lost"]]
    assert len(commits) == 1
    assert commits[0]["offsets"][f"{topic}/0~1"] == 10
    assert job.is_settled()


def test_wrong_password_and_unknown_option_end_the_job_without_a_word_of_them(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    kafka.create_topic(topic)
    options = kafka.client_options(Listener.SASL_SSL)
    address = options.pop("bootstrap.servers")
    job = Job(tmp_path)
    for code, changes in ((4, {"sasl.password": "hunter2-wrong"}), (2, {"sasl.pasword": "hunter2-wrong"})):
        job.write(source=source_of(kafka, topic, bootstrap_servers=address, options=options | changes))
        ended = job.tideline("run", "--verbose")
        assert ended.code == code, ended.err
        assert "hunter2" not in ended.err + ended.out
        assert kafka.security is not None
        assert kafka.security.password not in ended.err + ended.out
