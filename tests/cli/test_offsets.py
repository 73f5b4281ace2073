"""`tideline offsets`: committed, newest and lag of each shard, with files; with Kafka see `tests/real`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.past import job_with_a_past, objects
from tests.job import SPARK, Job

ROW = ["shard", "state", "committed", "newest", "lag", "epoch", "lost", "holes", "note"]


@pytest.fixture
def past(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_with_a_past(tmp_path_factory)


def shards(call: Call, job: Job, *options: str) -> dict[str, dict[str, Any]]:
    ended = call("offsets", job.file, "--json", *options)
    assert ended.code == 0, ended.err
    return {row["shard"]: row for row in ended.json["shards"]}


def size(job: Job, name: str) -> int:
    return os.path.getsize(job.folder / "logs" / name)


def places(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("state", "committed", "newest", "lag", "epoch"))


def test_lag_is_what_is_there_and_not_committed(call: Call, past: Job) -> None:
    found = call("offsets", past.file, "--json").json
    assert list(found) == ["unit", "next_epoch", "looked_from_epoch", "pending", "unknown", "total", "shards"]
    assert (found["unit"], found["next_epoch"], found["unknown"]) == ("bytes", 2, None)
    rows = {row["shard"]: row for row in found["shards"]}
    assert all(list(row) == ROW for row in rows.values())
    a, b, c = (size(past, name) for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    assert places(rows["a.jsonl"]) == ("behind", 2_516, a, a - 2_516, 1)
    assert places(rows["b.jsonl"]) == ("new", None, b, b, None), "prepared is not committed"
    assert places(rows["c.jsonl"]) == ("new", None, c, c, None)
    assert (found["total"]["lag"], found["total"]["committed"]) == (a + b + c - 2_516, 2_516)
    assert (found["total"]["behind"], found["total"]["new"], found["total"]["shards"]) == (1, 2, 3)


def test_shards_that_are_current_gone_or_shorter_than_what_was_read(call: Call, job: Job) -> None:
    job.append("b.jsonl", range(100, 110))
    job.append("c.jsonl", range(110, 120))
    assert job.tideline("run").code == 0
    (job.folder / "logs" / "b.jsonl").unlink()
    with (job.folder / "logs" / "c.jsonl").open("r+") as file:
        file.truncate(10)
    rows = shards(call, job)
    assert places(rows["a.jsonl"]) == ("current", 2_516, 2_516, 0, 0)
    assert places(rows["b.jsonl"])[:1] + places(rows["b.jsonl"])[2:4] == ("gone", None, 0)
    assert places(rows["c.jsonl"])[:1] + places(rows["c.jsonl"])[2:4] == ("lost", 10, 0)
    printed = call("offsets", job.file).out
    assert "3 shards · nothing behind · 1 lost · 1 gone" in printed
    assert "c.jsonl: no more than 10 bytes left of what was read: tideline run stops at this file" in printed
    assert job.tideline("run").code == 4, "as it said"


def test_a_renamed_file_is_its_shard_still(call: Call, job: Job) -> None:
    assert job.tideline("run").code == 0
    (job.folder / "logs" / "a.jsonl").rename(job.folder / "logs" / "a-1.jsonl")
    job.append("a.jsonl", range(5))
    rows = shards(call, job)
    assert rows["a.jsonl"]["state"] == "current"
    assert rows["a.jsonl#2"]["lag"] == size(job, "a.jsonl")


def test_a_job_that_has_not_begun_is_all_zero_and_no_error(call: Call, job: Job) -> None:
    ended = call("offsets", job.file, "--json")
    assert ended.code == 0
    assert ended.json["next_epoch"] == ended.json["total"]["committed"] == 0
    assert ended.json["total"]["lag"] == size(job, "a.jsonl")
    assert "no epoch yet, 1 shard · 2.5 kB behind" in call("offsets", job.file).out
    job.write(source=job.source(path=f"{job.folder}/nothing-yet"))
    ended = call("offsets", job.file)
    assert (ended.code, ended.out) == (0, "no epoch yet, 0 shards · nothing behind\n")
    assert not job.lake.exists()


def test_a_source_that_does_not_answer_leaves_what_is_committed_and_ends_with_4(call: Call, job: Job) -> None:
    assert job.tideline("run").code == 0
    job.write(
        source=job.source(path="s3://nowhere/logs/*.jsonl"),
        storage={
            "endpoint_url": "http://127.0.0.1:9",
            "key": "k",
            "secret": "s",
            "config_kwargs": {"retries": {"total_max_attempts": 1}},
        },
    )
    ended = call("offsets", job.file, "--json")
    assert ended.code == 4
    (row,) = ended.json["shards"]
    assert places(row) == ("unknown", 2_516, None, None, 0)
    assert "cannot be listed" in ended.json["unknown"] or "cannot be opened" in ended.json["unknown"]
    assert (ended.json["total"]["lag"], ended.json["total"]["committed"]) == (None, 2_516)
    ended = call("offsets", job.file)
    assert ended.code == 4
    assert "newest and lag are not known: " in ended.out and "2,516" in ended.out


def test_the_source_of_a_streaming_query_is_not_asked(call: Call, job: Job) -> None:
    job.write(source={"type": "stream"}, spark=None, epoch=None)
    ended = call("offsets", job.file)
    assert ended.code == 0
    assert "newest and lag are not known: a streaming query reads the source" in ended.out


def test_the_most_urgent_shards_come_first_and_the_rest_is_counted(call: Call, past: Job) -> None:
    lines = call("offsets", past.file, "--limit", "1").out.splitlines()
    assert lines[1] == "1 instant pending: not committed before it is decided"
    assert lines[3].startswith("a.jsonl ")
    assert lines[4] == "2 more shards not shown (--limit 0 shows all)"
    assert len(call("offsets", past.file, "--limit", "0").out.splitlines()) == 6


def test_epochs_that_are_not_looked_at_are_said(call: Call, job: Job) -> None:
    assert job.tideline("run").code == 0
    job.append("b.jsonl", range(3))
    assert job.tideline("run").code == 0
    assert [row["epoch"] for row in shards(call, job).values()] == [0, 1]
    assert [row["epoch"] for row in shards(call, job, "--epochs", "1").values()] == [None, 1]
    assert "moved before epoch 1 (--epochs 0 looks at all)" in call("offsets", job.file, "--epochs", "1").out
    assert [row["epoch"] for row in shards(call, job, "--epochs", "0").values()] == [0, 1]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal(call: Call, past: Job, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = call("offsets", past.file).out.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[2].split() == ["shard", "state", "committed", "newest", "lag", "epoch"]


def test_no_java_is_needed_and_nothing_is_touched(past: Job) -> None:
    before = objects(past.folder)
    no_java = {"JAVA_HOME": "/nowhere", "PATH": os.path.dirname(os.__file__)}
    assert past.tideline("offsets", program=SPARK, env=no_java).code == 0
    assert past.tideline("watch", "--once", program=SPARK, env=no_java).code == 0
    assert past.tideline("show", program=SPARK, env=no_java).code == 0
    assert past.tideline("inspect", "latest", program=SPARK, env=no_java).code == 0
    assert objects(past.folder) == before
