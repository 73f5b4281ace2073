"""Rejected records are ingested once, under the job file at the time of the replay."""

from __future__ import annotations

import datetime
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Call
from tests.job import Job

DAYS = range(1, 6)
BAD = 2


@pytest.fixture
def dated(job: Job) -> Job:
    """A job that has rejected every record: times in an unexpected format, and malformed lines."""
    write(job, "%d.%m.%Y")
    (job.folder / "logs" / "a.jsonl").unlink()
    with (job.folder / "logs" / "days.jsonl").open("w") as out:
        out.writelines(f'{{"id": {day}, "at": "2026-03-0{day}"}}\n' for day in DAYS)
        out.writelines("{malformed\n" for _ in range(BAD))
    assert job.tideline("run").code == 0
    assert not job.ids()
    return job


def write(job: Job, timestamp_format: str) -> None:
    job.write(
        source=job.source(timestamp_format=timestamp_format), schema={"id": "bigint", "at": "timestamp"}, lineage=True
    )


def test_corrected_job_file_takes_each_record_in_once_with_its_place(dated: Job) -> None:
    write(dated, "%Y-%m-%d")
    replayed = dated.tideline("replay-quarantine")
    assert replayed.code == 0, replayed.err
    assert replayed.out == "cli: 7 records replayed: 5 accepted, 2 rejected again\n"
    table = dated.table()
    assert table is not None
    rows = table.to_pyarrow_table().to_pylist()
    assert {row["id"]: row["_offset"] for row in rows} == {day: 30 * (day - 1) for day in DAYS}
    assert {row["_shard"] for row in rows} == {"days.jsonl"}
    again = dated.tideline("replay-quarantine")
    assert again.code == 0
    assert again.out.splitlines()[0] == "none of 2 records rejected would be accepted now: nothing was written"
    assert Counter(dated.ids().values()) == {1: 5}


def test_records_that_are_rejected_again_wait_for_the_next_replay(dated: Job) -> None:
    write(dated, "%Y-%m-%d")
    assert dated.tideline("replay-quarantine").code == 0
    job_file = dated.file.read_text()
    source = {**dated.source(), "format": "text", "pattern": r"\{malformed(?P<id>\d+)?(?P<at>\d+)?"}
    dated.write(source=source, schema={"id": "bigint", "at": "timestamp"})
    dry = dated.tideline("replay-quarantine", "--dry-run", "--json")
    assert dry.json == {"records": BAD, "accepted": BAD, "rejected": 0, "reasons": {}}
    dated.file.write_text(job_file)


def test_source_and_quarantine_go_on_side_by_side(dated: Job) -> None:
    write(dated, "%Y-%m-%d")
    with (dated.folder / "logs" / "days.jsonl").open("a") as out:
        out.write('{"id": 6, "at": "2026-03-06"}\n')
    assert dated.tideline("replay-quarantine").code == 0
    assert sorted(dated.ids()) == list(DAYS)
    assert dated.tideline("run").code == 0
    assert sorted(dated.ids()) == [*DAYS, 6]
    offsets = dated.tideline("offsets", "--json")
    assert offsets.code == 0
    assert [shard["shard"] for shard in offsets.json["shards"]] == ["days.jsonl"]


@pytest.mark.parametrize("point", ["inflight", "manifest", "decided", "part-committed", "applied"])
def test_replay_that_dies_is_recovered_and_takes_no_record_twice(dated: Job, point: str) -> None:
    write(dated, "%Y-%m-%d")
    assert dated.tideline("replay-quarantine", env={"TIDELINE_CRASH_AT": point}).code < 0
    assert dated.tideline("recover", "--force").code == 0
    assert dated.tideline("replay-quarantine").code == 0
    assert Counter(dated.ids()) == dict.fromkeys(DAYS, 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"schema": {"id": "string", "at": "timestamp"}},
            "id: the timeline was created with bigint, the job file has string",
        ),
        ({"name": "other"}, "this job file is job 'other'"),
    ],
)
def test_trial_promises_no_rows_that_a_replay_refuses(
    dated: Job, call: Call, changes: dict[str, object], why: str
) -> None:
    source = dated.source(timestamp_format="%Y-%m-%d")
    dated.write(**({"source": source, "schema": {"id": "bigint", "at": "timestamp"}, "lineage": True} | changes))
    for options in ([], ["--dry-run"]):
        refused = call("replay-quarantine", dated.file, *options)
        assert (refused.code, refused.out) == (2, ""), refused.out
        assert why in " ".join(refused.err.split())


def test_trial_writes_nothing(dated: Job, call: Call) -> None:
    write(dated, "%Y-%m-%d")
    before = files(dated.folder)
    tried = call("replay-quarantine", dated.file, "--dry-run")
    assert tried.code == 0
    counted, reason, unjudged = tried.out.splitlines()
    assert (counted, reason) == ("7 records rejected: 5 would be accepted now, 2 would not", "  2 malformed JSON")
    assert unjudged.startswith("  decoded only, no target was asked: it may refuse some of the accepted")
    assert files(dated.folder) == before


def test_records_that_a_target_refuses_in_a_replay_are_counted_once(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    schema = {"id": "bigint", "at": "timestamp", "host": "string"}
    job.write(source=job.source(timestamp_format="%d.%m.%Y"), schema=schema, partition_by=["host"])
    rows = [f'{{"id": {number}, "at": "2026-03-01", "host": "{host}"}}\n' for number, host in ((1, "a"), (2, ""))]
    (job.folder / "logs" / "b.jsonl").write_text("".join([*rows, "{malformed\n"]))
    assert job.tideline("run").code == 0
    job.write(source=job.source(timestamp_format="%Y-%m-%d"), schema=schema, partition_by=["host"])
    replayed = job.tideline("replay-quarantine")
    lake = f"delta:{job.folder}/lake: 1 written + 0 dropped + 1 rejected"
    assert replayed.out == f"cli: 3 records replayed: 2 accepted, 1 rejected again; {lake}\n", replayed.err
    assert list(job.ids()) == [1]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_job_that_never_ran_has_nothing_to_replay(job: Job, call: Call) -> None:
    refused = call("replay-quarantine", job.file)
    assert refused.code == 2
    assert "no epoch was written yet" in refused.err


def test_csv_records_keep_the_header_of_their_file(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    source = {"type": "files", "path": f"{job.folder}/logs/*.csv", "format": "csv", "close_after": "0s"}
    job.write(source=source | {"timestamp_format": "%d.%m.%Y"}, schema={"id": "bigint", "at": "timestamp"})
    (job.folder / "logs" / "a.csv").write_text("id,at\n1,2026-03-01\n2,2026-03-02\n")
    (job.folder / "logs" / "b.csv").write_text("at,id\n2026-03-03,3\n")
    assert job.tideline("run").code == 0
    job.write(source=source | {"timestamp_format": "%Y-%m-%d"}, schema={"id": "bigint", "at": "timestamp"})
    replayed = job.tideline("replay-quarantine")
    assert replayed.out == "cli: 3 records replayed: 3 accepted, none rejected again\n", replayed.err
    table = job.table()
    assert table is not None
    found = {row["id"]: row["at"].day for row in table.to_pyarrow_table().to_pylist()}
    assert found == {1: 1, 2: 2, 3: 3}


def test_parquet_rows_come_back_with_their_bytes(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    blobs = [b"\x00\xff", b"{}", b'{"$binary": "x"}']
    rows = {"id": pa.array([1, 2, 3]), "extra": pa.array([1, 1, 1]), "blob": pa.array(blobs, pa.binary())}
    pq.write_table(pa.table(rows), job.folder / "logs" / "a.parquet")
    source = {"type": "files", "path": f"{job.folder}/logs/*.parquet", "format": "parquet", "close_after": "0s"}
    schema = {"id": "bigint", "blob": "binary"}
    job.write(source=source, schema=schema, on_unknown_field="quarantine")
    assert job.tideline("run").code == 0
    assert not job.ids()
    job.write(source=source, schema=schema, on_unknown_field="drop")
    assert job.tideline("replay-quarantine").code == 0
    table = job.table()
    assert table is not None
    assert {row["id"]: row["blob"] for row in table.to_pyarrow_table().to_pylist()} == dict(enumerate(blobs, 1))


def test_parquet_rows_come_back_with_their_maps(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    maps = [[("a", [1, 2]), ("b", None)], [], None]
    plain = pa.array(maps, pa.map_(pa.string(), pa.list_(pa.int32())))
    inner = pa.array([[{"m": each}] for each in maps], pa.list_(pa.struct([("m", plain.type), ("n", pa.int8())])))
    rows = {"id": pa.array([1, 2, 3]), "extra": pa.array([1, 1, 1]), "plain": plain, "inner": inner}
    pq.write_table(pa.table(rows), job.folder / "logs" / "a.parquet")
    source = {"type": "files", "path": f"{job.folder}/logs/*.parquet", "format": "parquet", "close_after": "0s"}
    of = "map<string,array<bigint>>"
    schema = {"id": "bigint", "plain": of, "inner": f"array<struct<m:{of},n:int>>"}
    job.write(source=source, schema=schema, on_unknown_field="quarantine")
    assert job.tideline("run").code == 0
    assert not job.ids()
    job.write(source=source, schema=schema, on_unknown_field="drop")
    assert job.tideline("replay-quarantine").code == 0
    table = job.table()
    assert table is not None
    found = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
    assert {number: row["plain"] for number, row in found.items()} == dict(enumerate(maps, 1))
    assert [found[number]["inner"] for number in (1, 2, 3)] == [[{"m": each, "n": None}] for each in maps]


def test_what_could_not_be_read_and_what_a_target_refused_is_not_replayed(dated: Job, call: Call) -> None:
    write(dated, "%Y-%m-%d")
    quarantine = DeltaTable(next(path.parent for path in dated.folder.rglob("_delta_log") if "quarantine" in str(path)))
    shown = quarantine.to_pyarrow_table()
    refused = shown.slice(0, 1).set_column(
        shown.schema.get_field_index("target"), shown.schema.field("target"), pa.array(["tikv:t"], pa.string())
    )
    unread = shown.slice(1, 1)
    for name in ("raw", "context"):
        field = shown.schema.field(name)
        unread = unread.set_column(shown.schema.get_field_index(name), field, pa.nulls(1, field.type))
    from deltalake import write_deltalake

    write_deltalake(quarantine, pa.concat_tables([refused, unread]), mode="append")
    tried = call("replay-quarantine", dated.file, "--dry-run", "--json")
    assert tried.json["records"] == 7


def test_replayed_records_get_the_year_that_their_file_told_when_they_were_read(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    log = job.folder / "logs" / "auth.log"
    log.write_text("1 Dec 31 23:59:59\n2 Jan  1 00:00:01\n")
    written_s = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC).timestamp()
    os.utime(log, (written_s, written_s))
    source = {"type": "files", "path": f"{job.folder}/logs/*.log", "format": "text", "close_after": "0s"}
    source["pattern"] = r"(?P<id>\d+) (?P<at>.*)"
    schema = {"id": "bigint", "at": "timestamp"}
    job.write(source=source, schema=schema)
    assert job.tideline("run").code == 0
    os.utime(log, (written_s + 400 * 86_400,) * 2)
    job.write(source=source | {"timestamp_format": "%b %d %H:%M:%S", "year": "file"}, schema=schema)
    replayed = job.tideline("replay-quarantine")
    assert replayed.out == "cli: 2 records replayed: 2 accepted, none rejected again\n", replayed.err
    table = job.table()
    assert table is not None
    assert {row["id"]: row["at"].year for row in table.to_pyarrow_table().to_pylist()} == {1: 2025, 2: 2026}


def test_rejects_of_another_timeline_or_job_are_not_replayed(dated: Job) -> None:
    shutil.rmtree(dated.lake)
    assert dated.tideline("run", "--new-timeline").code == 0
    write(dated, "%Y-%m-%d")
    assert dated.tideline("replay-quarantine", "--dry-run", "--json").json["records"] == len(DAYS) + BAD
    assert dated.tideline("replay-quarantine").out.startswith("cli: 7 records replayed: 5 accepted")
    assert dated.ids() == Counter(DAYS)
