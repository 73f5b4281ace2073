"""`tideline fsck` and `replay-quarantine` on real servers: Kafka records and S3 objects."""

from __future__ import annotations

import json
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.job import Job
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.real.s3_job import S3Job
from tests.real.s3_server import S3Server

pytestmark = [pytest.mark.real, pytest.mark.slow]

_numbers = count()


def test_rejected_messages_come_back_with_key_time_and_headers(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = f"mended-{next(_numbers)}"
    now_ms = round(time.time() * 1000)  # older records would exceed the topic's retention
    kafka.create_topic(topic, 2)
    kafka.produce(
        topic,
        [
            KafkaRecord(
                json.dumps({"id": number, "at": f"0{number}.03.2026"}),
                key=f"key-{number}",
                headers=[("trace", b"\xff%d" % number)],
                timestamp_ms=now_ms + number,
            )
            for number in range(1, 7)
        ],
    )
    job = Job(tmp_path)
    source: dict[str, Any] = {
        "type": "kafka",
        "bootstrap_servers": kafka.bootstrap_servers,
        "topics": [topic],
        "format": "json",
        "columns": {"key": "k", "timestamp": "t", "headers": "h"},
        "timestamp_format": "%Y-%m-%d",
    }
    job.write(source=source, schema={"id": "bigint", "at": "timestamp"}, lineage=True)
    ran = job.tideline("run")
    assert "6 quarantined" in ran.out, ran
    job.write(
        source=source | {"timestamp_format": "%d.%m.%Y"}, schema={"id": "bigint", "at": "timestamp"}, lineage=True
    )
    replayed = job.tideline("replay-quarantine")
    assert replayed.out == "cli: 6 records replayed: 6 accepted, none rejected again\n", replayed.err
    table = job.table()
    assert table is not None
    rows = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
    assert rows.keys() == set(range(1, 7))
    for number, row in rows.items():
        assert (row["k"], row["at"].day) == (f"key-{number}", number)
        assert row["h"] == [{"key": "trace", "value": b"\xff%d" % number}]
        assert round(row["t"].timestamp() * 1000) == now_ms + number
        assert row["_shard"].startswith(topic)
    assert job.tideline("fsck").code == 0


def test_everything_on_s3_is_compared_mended_and_replayed(s3: S3Server, tmp_path: Path) -> None:
    job = S3Job(tmp_path, s3, on_unknown_field="quarantine")
    job.put("a.jsonl", range(50))
    lines = "".join(json.dumps({"id": number, "extra": 1}) + "\n" for number in range(50, 53))
    job.fs.pipe_file(f"{job.prefix}/logs/b.jsonl", lines.encode())
    assert job.tideline("run", env={"TIDELINE_CRASH_AT": "task-written"}).code < 0
    assert job.tideline("recover").code == 0
    assert job.tideline("run").code == 0
    assert job.tideline("fsck").out.splitlines()[-1] == "clean"
    (file,) = (uri.removeprefix("s3://") for uri in job.table("table").file_uris())
    copy = file.replace(file.rpartition("/")[2][:8], "0badc0de")
    job.fs.copy(file, copy)
    found = job.tideline("fsck")
    assert found.code == 6 and "orphan: 1" in found.out and copy.rpartition("/")[2] in found.out
    job.write()
    replayed = job.tideline("replay-quarantine")
    assert replayed.out == "on-s3: 3 records replayed: 3 accepted, none rejected again\n", replayed.err
    assert job.ids() == job.ids("copy") == Counter(range(53))
    assert job.fs.exists(copy), "only fsck --fix deletes what nobody announced"
