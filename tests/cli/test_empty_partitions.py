"""A row with a partition value that cannot be read back is quarantined; the job file can map '' to null."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.job import Job

ROWS: list[dict[str, Any]] = [
    {"id": 1, "host": "a"},
    {"id": 2, "host": ""},
    {"id": 3, "host": None},
    {"id": 4, "host": ""},
]
REASON = (
    "host: '' cannot be a partition's value, tables read it as null; on_empty_partition: to_null in the job file "
    "writes null"
)


def _run(job: Job, **changes: Any) -> None:
    job.write(**changes)
    (job.folder / "logs" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.tideline("fsck").code == 0


def _rows(job: Job, table: str = "lake") -> list[dict[str, Any]]:
    opened = job.table(table)
    assert opened is not None
    rows: list[dict[str, Any]] = opened.to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["id"] if "id" in row else row["offset"]))


@pytest.mark.parametrize("lineage", [True, False])
def test_row_with_an_empty_partition_value_goes_to_the_quarantine_of_each_table(job: Job, lineage: bool) -> None:
    targets = [{"type": "delta", "path": f"{job.folder}/{name}"} for name in ("lake", "copy")]
    _run(job, partition_by=["host"], targets=targets, lineage=lineage)
    for table in ("lake", "copy"):
        assert [(row["id"], row["host"]) for row in _rows(job, table)] == [(1, "a"), (3, None)]
    refused = _rows(job, "lake_quarantine")
    assert [(row["offset"], row["reason"], json.loads(row["raw"])["id"]) for row in refused] == [
        (offset, REASON, number) for offset, number in ((23, 2), (23, 2), (69, 4), (69, 4))
    ]
    assert {row["target"] for row in refused} == {f"delta:{job.folder}/{name}" for name in ("lake", "copy")}
    (shown,) = job.tideline("show", "--json").json
    assert (shown["rows"], shown["rejected"]) == (4, 4)


def test_target_without_partitions_has_the_row_that_a_table_refuses(job: Job) -> None:
    targets = [{"type": "delta", "path": f"{job.folder}/lake"}, {"type": "memory", "path": f"{job.folder}/plain"}]
    _run(job, partition_by=["host"], targets=targets)
    assert [row["id"] for row in _rows(job)] == [1, 3]
    assert len(_rows(job, "lake_quarantine")) == 2
    found = [pa.ipc.open_stream(path.read_bytes()).read_all() for path in (job.folder / "plain").rglob("*.arrow")]
    rows = pa.concat_tables(found).to_pylist()
    assert sorted((row["id"], row["host"] or "") for row in rows) == [(row["id"], row["host"] or "") for row in ROWS]


def test_job_file_can_say_that_an_empty_partition_value_is_null(job: Job) -> None:
    _run(job, partition_by=["host"], on_empty_partition="to_null")
    assert [(row["id"], row["host"]) for row in _rows(job)] == [(1, "a"), (2, None), (3, None), (4, None)]
    assert job.table("lake_quarantine") is None


def test_empty_text_in_a_column_that_is_no_partition_is_kept(job: Job) -> None:
    _run(job, partition_by=["id"])
    assert _rows(job) == ROWS
    assert job.table("lake_quarantine") is None


@pytest.mark.parametrize("policy", ["quarantine", "to_null"])
def test_row_with_a_negative_fraction_in_a_partition_column_goes_to_the_quarantine(job: Job, policy: str) -> None:
    job.write(schema={"n": "bigint", "p": "decimal(5,2)"}, partition_by=["p"], on_empty_partition=policy)
    values = ["-0.05", "1.00", "-1.00", "-123.45", "null"]
    lines = [f'{{"n": {number}, "p": {value}}}\n' for number, value in enumerate(values)]
    (job.folder / "logs" / "a.jsonl").write_text("".join(lines))
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    lake, quarantine = job.table("lake"), job.table("lake_quarantine")
    assert lake is not None and quarantine is not None
    read = lake.to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["p"]) for row in read] == [(1, Decimal("1.00")), (2, Decimal("-1.00")), (4, None)]
    refused = quarantine.to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(json.loads(row["raw"])["n"], row["reason"].split(" (")[0]) for row in refused] == [
        (0, "p: -0.05 cannot be a partition's value: delta-rs"),
        (3, "p: -123.45 cannot be a partition's value: delta-rs"),
    ]
    assert job.tideline("fsck").code == 0
