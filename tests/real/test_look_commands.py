"""The read-only commands on real servers: Kafka's offsets, and a timeline on S3."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import s3fs

from tests.job import Finished, Job
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.real.s3_server import S3Server

pytestmark = [pytest.mark.real]


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"looked-at-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 2)
    return name


@pytest.fixture
def job(kafka: KafkaServer, topic: str, tmp_path: Path) -> Iterator[Job]:
    """A job on an empty topic of two partitions."""
    job = Job(tmp_path)
    job.write(source=source_of(kafka, topic))
    yield job
    job.close()


def source_of(kafka: KafkaServer, topic: str, **changes: Any) -> dict[str, Any]:
    source = {"type": "kafka", "bootstrap_servers": kafka.bootstrap_servers, "topics": [topic], "format": "json"}
    return source | changes


def produce(kafka: KafkaServer, topic: str, ids: range) -> None:
    """A record for each id, half of them in each partition."""
    kafka.produce(topic, [KafkaRecord(json.dumps({"id": number, "host": "h"}), partition=number % 2) for number in ids])


def ends(kafka: KafkaServer, topic: str) -> dict[str, int]:
    """Shard → end offset of its partition."""
    return {f"{topic}/{number}": end for number, (_, end) in kafka.offsets(topic).items()}


def rows_of(found: Finished) -> dict[str, dict[str, Any]]:
    return {row["shard"]: row for row in found.json["shards"]}


def states(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {shard: tuple(row[name] for name in ("state", "committed", "newest", "lag")) for shard, row in rows.items()}


def test_offsets_follow_a_topic_from_before_the_first_epoch_to_its_end(
    kafka: KafkaServer, topic: str, job: Job
) -> None:
    found = job.tideline("offsets", "--json")
    assert found.code == 0
    assert states(rows_of(found)) == {f"{topic}/{number}": ("new", None, 0, 0) for number in (0, 1)}
    produce(kafka, topic, range(50))
    found = job.tideline("offsets", "--json")
    assert (found.json["unit"], found.json["total"]["lag"], found.json["total"]["committed"]) == ("records", 50, 0)
    assert job.tideline("run").code == 0
    at = ends(kafka, topic)
    assert states(rows_of(job.tideline("offsets", "--json"))) == {
        shard: ("current", end, end, 0) for shard, end in at.items()
    }
    produce(kafka, topic, range(50, 80))
    kafka.add_partitions(topic, 3)
    now = ends(kafka, topic)
    rows = rows_of(job.tideline("offsets", "--json"))
    assert sum(row["lag"] for row in rows.values()) == 30
    assert {shard: row["newest"] for shard, row in rows.items()} == now
    assert rows[f"{topic}/2"]["state"] == "new" and rows[f"{topic}/2"]["committed"] is None
    frame = job.tideline("watch", "--once", "--json").json
    assert (frame["lag"]["units"], frame["lag"]["unit"], frame["lag"]["shards"]) == (30, "records", 3)


def test_offsets_say_what_retention_took_and_lag_counts_only_what_is_left(
    kafka: KafkaServer, topic: str, job: Job
) -> None:
    produce(kafka, topic, range(40))
    assert job.tideline("run").code == 0
    before = ends(kafka, topic)
    produce(kafka, topic, range(40, 100))
    now = ends(kafka, topic)
    shard, number = f"{topic}/0", 0
    assert now[shard] - before[shard] > 2
    kafka.delete_records(topic, {number: now[shard] - 1})
    row = rows_of(job.tideline("offsets", "--json"))[shard]
    assert (row["state"], row["committed"], row["newest"], row["lag"]) == ("lost", before[shard], now[shard], 1)
    assert row["lost"] == {"start": before[shard], "until": now[shard] - 1, "reason": "deleted by retention"}
    printed = job.tideline("offsets").out
    assert f"{shard}: not read and gone: [{before[shard]}, {now[shard] - 1}): deleted by retention" in printed
    assert job.tideline("run").code == 4, "as it said"
    assert job.tideline("run", "--accept-loss").code == 0
    row = rows_of(job.tideline("offsets", "--json"))[shard]
    assert (row["state"], row["lag"], row["lost"]) == ("current", 0, None)
    assert [(hole["epoch"], hole["start"], hole["until"]) for hole in row["holes"]] == [
        (1, before[shard], now[shard] - 1)
    ]
    assert "epoch 1 went on behind a loss" in job.tideline("offsets").out


def test_offsets_of_a_topic_that_is_gone_and_made_again(kafka: KafkaServer, topic: str, job: Job) -> None:
    produce(kafka, topic, range(20))
    assert job.tideline("run").code == 0
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    produce(kafka, topic, range(20, 26))
    rows = rows_of(job.tideline("offsets", "--json"))
    assert {shard: rows[shard]["state"] for shard in (f"{topic}/0", f"{topic}/1")} == dict.fromkeys(
        (f"{topic}/0", f"{topic}/1"), "lost"
    )
    assert rows[f"{topic}/0"]["newest"] is None
    assert sum(row["lag"] for row in rows.values()) == 6, "of the partitions' next lives"
    assert {rows[f"{topic}/{number}~1"]["state"] for number in (0, 1)} == {"new"}


def test_brokers_that_do_not_answer_leave_what_is_committed_and_end_with_4(
    kafka: KafkaServer, topic: str, job: Job
) -> None:
    produce(kafka, topic, range(20))
    assert job.tideline("run").code == 0
    job.write(source=source_of(kafka, topic, bootstrap_servers="127.0.0.1:9", broker_timeout="2s"))
    found = job.tideline("offsets", "--json")
    assert found.code == 4
    assert found.json["unknown"] and found.json["total"]["lag"] is None
    assert found.json["total"]["committed"] == 20
    assert {row["state"] for row in found.json["shards"]} == {"unknown"}
    watched = job.tideline("watch", "--once")
    assert watched.code == 0
    assert "lag      not known: " in watched.out


@pytest.fixture
def job_on_s3(s3: S3Server, tmp_path: Path) -> Iterator[tuple[Job, s3fs.S3FileSystem, str]]:
    """A job with everything on S3 and a history: a rollback, a commit, a prepared instant."""
    prefix = f"lake/looked-at-{uuid.uuid4().hex[:8]}"
    fs = s3fs.S3FileSystem(**s3.options, use_listings_cache=False, skip_instance_cache=True)
    job = Job(tmp_path)
    job.write(
        source=job.source(path=f"s3://{prefix}/logs/*.jsonl"),
        targets=[{"type": "delta", "name": "lake", "path": f"s3://{prefix}/lake"}],
        quarantine={"path": f"s3://{prefix}/bad"},
        storage=s3.options,
    )

    def put(name: str, ids: range) -> None:
        lines = "".join(json.dumps({"id": number, "host": "h"}) + "\n" for number in ids)
        fs.pipe_file(f"{prefix}/logs/{name}", lines.encode())

    put("a.jsonl", range(20))
    job.killed_at("written")
    assert job.tideline("run").code == 0
    put("b.jsonl", range(20, 30))
    job.killed_at("manifest")
    yield job, fs, prefix
    job.close()


def test_all_of_them_look_at_s3_and_leave_every_object_as_it_was(
    job_on_s3: tuple[Job, s3fs.S3FileSystem, str],
) -> None:
    job, fs, prefix = job_on_s3

    def objects() -> dict[str, tuple[str, bytes]]:
        found = fs.find(prefix, detail=True)
        return {path: (info["ETag"], fs.cat_file(path)) for path, info in found.items()}

    before = objects()
    shown = job.tideline("show", "--json").json
    assert [row["action"] for row in shown] == ["rollback", "commit", "commit"]
    assert job.tideline("show", "--epoch", "0").code == 0
    found = job.tideline("inspect", "latest", "--json").json
    assert found["recovery"]["found"]["step"] == "claim commit"
    assert job.tideline("inspect", "epoch:0").code == 0
    rows = rows_of(job.tideline("offsets", "--json"))
    assert [rows[name]["state"] for name in ("a.jsonl", "b.jsonl")] == ["current", "new"]
    frame = job.tideline("watch", "--once", "--json").json
    assert frame["problem"] is None
    assert frame["lag"]["behind"] == 1
    assert [epoch["state"] for epoch in frame["epochs"]] == ["rolled back", "committed", "pending"]
    assert objects() == before
