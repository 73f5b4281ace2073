"""Small transactions: rows that cannot be written are refused alone, the others are written, memory is bounded."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sinks.base import SelectiveBatchWriter, SinkContext, TaskAttempt
from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.minibatch import MinibatchSink, MinibatchWriter
from sinks.tikv.options import TikvOptions
from sinks.tikv.staged import MAX_ROW_BYTES
from tests.unit.sinks.tikv.scripted_cluster import ScriptedCluster, scripted
from timeline.epoch import EpochRef, Plan, WriteReport
from timeline.errors import DataError

SCHEMA = pa.schema([("id", pa.string()), ("note", pa.string())])
EPOCH = EpochRef(0, "20260101000000000", 1)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as cluster:
        # Every status check reports a committed transaction.
        cluster.says("KvCheckTxnStatus", *[pb.CheckTxnStatusResponse(commit_version=1 << 60)] * 100)
        yield cluster


def sink(cluster: ScriptedCluster, **block: Any) -> MinibatchSink:
    options = {"type": "tikv", "pd": cluster.leaders, "prefix": "t_", "key": ["id"], "transaction": "minibatch"}
    return MinibatchSink.open(TikvOptions.model_validate(options | block), SinkContext("job", SCHEMA))


def opened(cluster: ScriptedCluster, **block: Any) -> SelectiveBatchWriter:
    plan = Plan(EPOCH, "job", "test", (), (), {}, "token")
    writer = sink(cluster, **{"max_interval": 1000} | block).begin(plan)
    return writer.open_selective(TaskAttempt(0, 0, 0))


def rows_of(*rows: tuple[str | None, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": key, "note": note} for key, note in rows], SCHEMA)


def take(task: SelectiveBatchWriter, batch: pa.RecordBatch, first: int = 0) -> list[dict[str, Any]]:
    offsets = pa.array(range(first, first + batch.num_rows), pa.int64())
    refused: list[dict[str, Any]] = task.take(batch, "shard", offsets).to_pylist()
    return refused


def written(cluster: ScriptedCluster) -> list[list[bytes]]:
    """The keys of each transaction, in order, without prefix and flag."""
    transactions: dict[int, list[bytes]] = {}
    for request in cluster.asked("KvPrewrite"):
        body = request.body
        assert isinstance(body, pb.PrewriteRequest)
        transactions.setdefault(body.start_version, []).extend(
            bytes(mutation.key[3:]).rstrip(b"\0\xf8\xf9") for mutation in body.mutations
        )
    return list(transactions.values())


LARGE = "x" * MAX_ROW_BYTES


def test_rows_that_cannot_be_written_are_refused_with_their_places_and_the_others_are_written(
    cluster: ScriptedCluster,
) -> None:
    task = opened(cluster, on_null_key="quarantine", max_rows=2)
    refused = take(task, rows_of(("a", "1"), (None, "2"), ("c", LARGE), ("d" * 4096, "4"), ("e", "5")), first=7)
    assert [(row["shard"], row["offset"]) for row in refused] == [("shard", 8), ("shard", 9), ("shard", 10)]
    whys = [row["reason"] for row in refused]
    assert whys[0] == "key column `id` is null" and "key and value are" in whys[1] and "its key is" in whys[2]
    assert json.loads(refused[1]["raw"]) == {"id": "c", "note": LARGE}
    report = task.close()
    assert replace(report, bytes=0) == WriteReport(2, 0, rejected=3)
    assert written(cluster) == [[b"a"], [b"e"]]


def test_batch_of_which_nothing_can_be_written_begins_no_transaction(cluster: ScriptedCluster) -> None:
    task = opened(cluster)
    assert [row["offset"] for row in take(task, rows_of(("a", LARGE), ("b", LARGE)))] == [0, 1]
    assert task.close() == WriteReport(0, 0, rejected=2)
    assert not cluster.requests


def test_part_counts_what_was_refused(cluster: ScriptedCluster) -> None:
    part = sink(cluster).prepare(EPOCH, [WriteReport(3, 30, dropped=1, rejected=2), WriteReport(1, 10, rejected=1)])
    assert (part.rows, part.dropped, part.rejected) == (4, 1, 3)


def test_row_without_a_key_stops_the_task_where_the_job_file_says_so(cluster: ScriptedCluster) -> None:
    task = opened(cluster)
    with pytest.raises(DataError, match=r"key column 'id' is null in 1 row, the first at shard offset 5"):
        take(task, rows_of(("a", "1"), (None, "2")), first=4)
    assert not cluster.requests


def test_of_rows_of_one_key_in_a_transaction_one_stays_and_the_others_are_counted(cluster: ScriptedCluster) -> None:
    task = opened(cluster, max_rows=4)
    take(task, rows_of(("a", "old"), ("b", "1")))
    take(task, rows_of(("a", "new"), ("c", "1"), ("a", "newest")), first=2)
    report = task.close()
    assert (report.rows, report.dropped) == (4, 1)
    assert written(cluster) == [[b"a", b"b", b"c"], [b"a"]]


def test_large_rows_do_not_wait_for_so_many_others(cluster: ScriptedCluster) -> None:
    task = opened(cluster, max_rows=1000)
    batch = rows_of(*((f"{number:02}", "x" * (4_000_000)) for number in range(20)))
    for place in range(20):
        take(task, batch.slice(place, 1), place)
    assert len(cluster.asked("KvCommit")) == 1, "64 MiB are there"
    assert task.close().rows == 20


def test_writer_travels_to_executors(cluster: ScriptedCluster) -> None:
    writer = sink(cluster).begin(Plan(EPOCH, "job", "test", (), (), {}, "token"))
    assert isinstance(writer, MinibatchWriter)
    assert pickle.loads(pickle.dumps(writer)) == writer
