"""Whole jobs with a TiKV target, by the command line: job files, output, and rows after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.refused import as_json_lines
from sinks.sql_types import parse_type
from sinks.tikv.reader import read_rows
from sinks.tikv.staged import MAX_ROW_BYTES
from tests.job import ROOT, SPARK, finish
from tests.random_rows import plain, random_array, random_type
from tests.real.processes import HOST, on_free_ports
from tests.real.tikv_clients import connected, patiently
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_job import PAD, TikvJob
from tests.spark.test_job_files import expected_rows
from tests.waiting import wait_until, wait_until_frozen

pytestmark = [pytest.mark.real, pytest.mark.slow]

NO_JVM = {"JAVA_HOME": "/nowhere"}


@pytest.fixture
def job(tmp_path: Path, tikv: TikvCluster) -> Iterator[TikvJob]:
    """A job with its job file: a hundred rows and two malformed lines for a table and a TiKV target."""
    job = TikvJob(tmp_path, tikv)
    job.write_job(job.target())
    job.append("a.jsonl", range(100), bad=2)
    yield job
    job.close()


def ids(job: TikvJob, name: str | None = None) -> list[int]:
    return [row["id"] for row in job.rows(name)]


def wait_until_rolled_back(job: TikvJob) -> None:
    """Read as another client does, until the read has rolled back a dead writer's transaction."""
    client = connected(job.cluster.pd)

    def read() -> None:
        snapshot = client.snapshot(client.current_timestamp(), pessimistic=False)
        snapshot.scan(job.prefix.encode(), end=job.prefix.encode() + b"\x04", limit=1000)

    def is_read() -> bool:
        try:
            patiently(read)
        except Exception as error:
            assert "lock" in str(error)
            return False
        return True

    wait_until(is_read, "another client reads", 30)


# Epochs whose writer dies


def test_epoch_that_readers_rolled_back_is_told_by_recover_and_written_again_by_run(job: TikvJob) -> None:
    job.write_job(job.target(lock_ttl="1s"))
    job.killed_at("part-committing:2")
    wait_until_rolled_back(job)
    for options in ((), ("--dry-run",)):
        told = job.tideline("recover", *options, env=NO_JVM)
        assert told.code == 9, told.err
        assert "tideline run CONF" in told.out and "was rolled back" in told.out
    assert job.rows() == [] and len(job.pending()) == 1
    # Killed while it writes the epoch again, before and after the point from which readers see it.
    for point in ("task-written", "part-prepared", "primary-committed"):
        job.killed_at(point)
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert ids(job) == list(range(100))
    assert job.ids() == Counter(range(100)) and len(job.quarantined()) == 2
    assert job.is_settled()
    (row,) = job.tideline("show", "--json").json
    assert row["targets"]["keyed"] == {"written": 100, "dropped": 0, "rejected": 0}


@pytest.mark.parametrize("point", ["task-written", "manifest", "part-committing:2"])
def test_recovery_of_a_tikv_job_needs_no_jvm_and_leaves_no_lock(job: TikvJob, point: str) -> None:
    job.killed_at(point)
    assert job.locks()
    recovered = job.tideline("recover", program=SPARK, env=NO_JVM)
    assert recovered.code == 0, recovered.err
    is_prepared = point in ("manifest", "part-committing:2")
    assert ids(job) == sorted(job.ids()) == (list(range(100)) if is_prepared else [])
    assert job.is_settled()
    assert job.tideline("run").code == 0
    assert ids(job) == list(range(100)) and job.ids() == Counter(range(100))


@pytest.mark.parametrize("point", ["manifest", "part-committing:2"])
def test_writer_that_wakes_behind_its_successor_adds_nothing(job: TikvJob, point: str) -> None:
    job.write_job(job.target(lock_ttl="1s"))
    frozen = job.start("run", env={"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(frozen)
    taker = job.tideline("run")
    assert taker.code == 0, taker.err
    job.put("b.jsonl", [{"id": number, "host": "later"} for number in range(50, 150)])
    assert job.tideline("run").code == 0
    frozen.send_signal(signal.SIGCONT)
    assert finish(frozen).code in ((7,) if point != "part-committing:2" else (0, 7))
    assert {row["id"]: row["host"] for row in job.rows()} == {
        number: "later" if number >= 50 else f"h{number % 3}" for number in range(150)
    }
    assert sum(job.ids().values()) == 200
    assert job.tideline("recover").code == 0
    assert job.is_settled()


# Transaction levels


def test_global_takes_all_of_the_source_in_one_epoch_and_is_refused_for_a_job_without_end(job: TikvJob) -> None:
    for number in range(1, 5):
        job.append(f"b-{number}.jsonl", range(100 * number, 100 * number + 100))
    source = job.source(max_files_per_epoch=1)
    job.write_job(job.target(transaction="global"), source=source)
    refused = job.tideline("run", "--continuous")
    assert refused.code == 2
    assert "run it with --once, or let the target commit epoch by epoch (transaction: checkpoint)" in refused.err
    assert not job.lake.exists()
    job.killed_at("written")
    ended = job.tideline("run")
    assert ended.code == 0 and "done: 1 epoch, 500 rows" in ended.out, ended
    assert ids(job) == list(range(500)) and job.ids() == Counter(range(500))
    assert job.is_settled()


def test_minibatch_shows_rows_before_its_epoch_ends_and_the_same_rows_after_a_kill(job: TikvJob) -> None:
    job.write_job(job.target(transaction="minibatch", max_rows=30))
    job.killed_at("task-written")
    early = job.rows()
    assert len(early) == 100, "visible, though nothing was decided"
    assert job.ids() == Counter()
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.rows() == early and job.ids() == Counter(range(100))
    assert job.is_settled()
    rows = {row["state"]: row for row in job.tideline("show", "--json").json if row["action"] == "commit"}
    assert rows["completed"]["targets"]["keyed"] == {"written": 100, "dropped": 0, "rejected": 0}


# Rows that a target cannot take


def test_rows_whose_keys_exist_go_to_the_quarantine_as_json(job: TikvJob) -> None:
    job.write_job(job.target(mode="insert"))
    assert job.tideline("run").code == 0
    job.append("b.jsonl", range(90, 110))
    job.killed_at("manifest:1")
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert ids(job) == list(range(110)) and sum(job.ids().values()) == 120
    refused = [row for row in job.quarantined() if row["shard"].endswith("b.jsonl")]
    assert [json.loads(row["raw"]) for row in refused] == [{"id": n, "host": f"h{n % 3}"} for n in range(90, 100)]
    assert {row["reason"] for row in refused} == {"its key exists in target keyed"}
    commits = job.tideline("show", "--json").json
    assert commits[-1]["targets"]["keyed"] == {"written": 10, "dropped": 0, "rejected": 10}
    assert job.is_settled()


def test_row_whose_key_exists_stops_the_job_and_nothing_is_written(job: TikvJob) -> None:
    job.write_job(job.target(mode="insert", on_existing="fail"))
    assert job.tideline("run").code == 0
    job.append("b.jsonl", range(99, 110))
    failed = job.tideline("run")
    assert failed.code == 4
    assert "keyed: rows whose key exists already: 1, the first at b.jsonl offset 0" in failed.err
    assert "on_existing: quarantine sets such rows aside" in failed.err
    assert ids(job) == list(range(100)) and job.ids() == Counter(range(100))
    assert job.is_settled()


def test_row_without_a_key_stops_the_job_before_anything_is_written(job: TikvJob) -> None:
    (job.folder / "logs" / "b.jsonl").write_text('{"id": null, "host": "h"}\n')
    failed = job.tideline("run")
    assert failed.code == 4
    assert "key column 'id' is null in 1 row, the first at b.jsonl offset 0" in failed.err
    assert "on_null_key: quarantine sets such rows aside" in failed.err
    assert job.rows() == [] and not job.ids() and job.is_settled()
    job.write_job(job.target(on_null_key="quarantine"))
    assert job.tideline("run").code == 0
    assert ids(job) == list(range(100)) and sum(job.ids().values()) == 101
    (aside,) = [row for row in job.quarantined() if row["shard"] == "b.jsonl"]
    assert json.loads(aside["raw"])["host"] == "h" and "null" in aside["reason"]


LEVELS: dict[str, dict[str, Any]] = {
    "checkpoint": {},
    "insert": {"mode": "insert"},
    "minibatch": {"transaction": "minibatch", "max_rows": 7},
}


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_clients_cannot_read_are_set_aside_alone_and_all_others_are_read(job: TikvJob, level: str) -> None:
    """Many rows of 1 MiB up to the limit, three above the limit, and a key above the limit of keys."""
    (job.folder / "logs" / "a.jsonl").unlink()
    job.write_job(job.target(key=["word"], **LEVELS[level]), schema={"word": "string", "text": "string"})
    beside = len(job.prefix) + 1 + 9 + (7 + 1 + 4)  # prefix, flag, group; header, bitmap, end of the text
    lengths = [1 << 20, 1_500_000, 3 << 20, MAX_ROW_BYTES - beside, 20, 20] * 4
    rows = [{"word": f"w{number:04}", "text": "x" * length} for number, length in enumerate(lengths)]
    large = [
        {"word": f"l{number}", "text": "x" * (MAX_ROW_BYTES - beside + over)}
        for number, over in enumerate((1, 4096, 1 << 21))
    ]
    long_key = {"word": "k" * 4096, "text": "k"}
    job.put("a.jsonl", [*rows[:9], large[0], *rows[9:18], large[1], large[2], long_key, *rows[18:]])
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.rows() == rows
    lake = job.table("lake")
    assert lake is not None and lake.to_pyarrow_table().num_rows == len(rows) + 4, "other targets have them all"
    refused = job.quarantined()
    assert [(row["offset"] > 0, row["target"]) for row in refused] == [(True, "keyed")] * 4
    assert [json.loads(row["raw"]) for row in refused] == [*large, long_key]
    found = [re.sub(r"\d+ bytes;", "N bytes;", row["reason"]) for row in refused]
    assert found == [
        f"its key and value are N bytes; at most {MAX_ROW_BYTES} are allowed, because clients take answers of "
        "4 MiB: leave large columns out of this target"
    ] * 3 + ["its key is N bytes; at most 4096 are allowed"]
    (shown,) = job.tideline("show", "--json").json
    assert shown["targets"]["keyed"] == {"written": len(rows), "dropped": 0, "rejected": 4}
    assert job.is_settled()
    if level == "insert":
        job.put("b.jsonl", [row | {"text": "small"} for row in rows])
        again = job.tideline("run")
        assert again.code == 0, again.err
        assert job.rows() == rows, "rows that exist are found, however large they are"
        assert job.tideline("show", "--json").json[-1]["targets"]["keyed"]["rejected"] == len(rows)


@pytest.mark.spark
def test_targets_keep_what_their_rules_say_of_rows_that_several_tasks_read(job: TikvJob) -> None:
    """One epoch, two tasks with the same keys, a target for each rule: rows and counts are right."""
    count = 2_500
    (job.folder / "logs" / "a.jsonl").unlink()
    for name, at, gone in (("a.jsonl", "2024-05-02T00:00:00Z", 5), ("b.jsonl", "2024-05-01T00:00:00Z", count + 1)):
        rows: list[dict[str, Any]] = [
            {"id": n, "at": at, "word": f"{name[0]}-wört-{n}", "maybe": n or None, "gone": n % gone == 0}
            for n in range(count)
        ]
        job.put(name, rows, pad=PAD)
    schema = {"id": "bigint", "at": "timestamp", "word": "string", "maybe": "int", "gone": "boolean"}
    rules: dict[str, dict[str, Any]] = {
        "last-by": {"dedup": {"rule": "last", "by": "at"}},
        "first-by": {"dedup": {"rule": "first", "by": "at"}},
        "last": {},
        "first": {"dedup": {"rule": "first"}},
        "any": {"dedup": {"rule": "any"}},
        "deletes": {"dedup": {"rule": "last", "by": "at"}, "delete_marker": "gone"},
        "composite": {"key": ["word", "at", "id"]},
        "nulls": {"key": ["maybe", "id"], "on_null_key": "quarantine"},
    }
    targets = [job.target(name=name, prefix=f"{job.prefix}{name}_", **options) for name, options in rules.items()]
    job.write_job(*targets, schema=schema, spark={"master": "local[2]", "small_epochs": "executors"})
    ended = job.tideline("run", program=SPARK)
    assert ended.code == 0, ended.err
    (shown,) = job.tideline("show", "--json").json
    halved = {"written": count, "dropped": count, "rejected": 0}
    expected = dict.fromkeys(rules, halved) | {
        "composite": {"written": 2 * count, "dropped": 0, "rejected": 0},
        "nulls": {"written": count - 1, "dropped": count - 1, "rejected": 2},
    }
    assert {name: shown["targets"][name] for name in rules} == expected
    kept = {name: {row["id"]: row["word"][0] for row in job.rows(name)} for name in rules if name != "composite"}
    assert all(len(found) == count for name, found in kept.items() if name not in ("deletes", "nulls"))
    assert {name: set(kept[name].values()) for name in ("last-by", "first-by", "last", "first")} == {
        "last-by": {"a"},
        "first-by": {"b"},
        "last": {"b"},
        "first": {"a"},
    }
    assert sorted(kept["deletes"]) == [n for n in range(count) if n % 5]
    composite = job.rows("composite")
    assert [(row["word"], row["id"]) for row in composite] == sorted((row["word"], row["id"]) for row in composite)
    assert {row["at"] for row in composite} == {datetime(2024, 5, day, tzinfo=UTC) for day in (1, 2)}
    assert [json.loads(row["raw"])["id"] for row in job.quarantined()] == [0, 0]


# Wrong job files and wrong clusters


def test_pd_that_does_not_answer_is_named_in_bounded_time_and_nothing_is_written(job: TikvJob) -> None:
    nobody = on_free_ports(1, lambda ports: f"{HOST}:{ports[0]}")
    job.write_job(job.target(pd=[nobody], patience="1s"))
    failed = job.tideline("run", program=SPARK, env=NO_JVM)
    assert failed.code == 6
    assert f"no PD answers: {nobody}" in failed.err and "check pd and tls of the target" in failed.err
    assert not job.ids() and not job.pending()


def test_another_cluster_than_the_one_that_is_meant_is_refused(job: TikvJob) -> None:
    job.write_job(job.target(cluster_id=4711))
    failed = job.tideline("run")
    assert failed.code == 2
    assert f"{job.cluster.pd[0]} is cluster" in failed.err and "cluster_id says 4711" in failed.err
    assert not job.ids() and not job.pending()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefix": "t"}, "prefix"),
        ({"key": ["nobody"]}, "key: there is no column `nobody`; allowed are host, id, share"),
        ({"key": ["id", "share"]}, "share"),
    ],
    ids=["prefix", "missing-column", "type-of-a-column"],
)
def test_target_that_cannot_be_is_refused_before_anything_is_written(
    job: TikvJob, options: dict[str, Any], words: str
) -> None:
    job.write_job(job.target(**options), schema={"id": "bigint", "host": "string", "share": "double"})
    failed = job.tideline("run")
    assert failed.code == 2, failed
    assert words in failed.err
    assert not job.ids() and not job.pending()


def test_rows_of_another_layout_below_the_prefix_are_not_mixed_with(job: TikvJob, tmp_path: Path) -> None:
    assert job.tideline("run").code == 0
    (tmp_path / "other").mkdir()
    other = TikvJob(tmp_path / "other", job.cluster)
    other.write_job(job.target(key=["host"]))
    other.append("a.jsonl", range(10))
    failed = other.tideline("run")
    assert failed.code == 5
    assert f"rows below prefix {job.prefix} have another layout" in failed.err
    assert "the key is host string, not id int64" in failed.err and "Write to another prefix" in failed.err
    assert not other.ids() and not other.pending()


def test_missing_packages_are_named_with_the_extra_that_brings_them(job: TikvJob) -> None:
    (job.folder / "without").mkdir()
    (job.folder / "without" / "grpc.py").write_text("raise ModuleNotFoundError('no grpc', name='grpc')\n")
    failed = job.tideline("run", env={"PYTHONPATH": f"{job.folder}/without{os.pathsep}{ROOT}"})
    assert failed.code == 2
    assert "target type tikv needs a package that is not installed (grpc): pip install 'tideline[tikv]'" in failed.err


# Output of `tideline read`


def test_read_says_which_targets_there_are_and_shows_their_rows(job: TikvJob) -> None:
    early = job.tideline("read")
    assert early.code == 2 and "no epoch was written yet; tideline run" in early.err
    job.write_job(
        job.target(),
        job.target(name="none", prefix=f"tnone{job.prefix}", delete_marker="gone"),
        schema={"id": "bigint", "host": "string", "gone": "boolean"},
    )
    job.put("a.jsonl", [{"id": number, "host": "h", "gone": True} for number in range(3)])
    assert job.tideline("run").code == 0
    several = job.tideline("read")
    assert several.code == 2
    assert "several targets are read; name one by --target: keyed, none" in several.err
    for name, lines in (("keyed", 3), ("none", 1)):
        shown = job.tideline("read", "--target", name, "--limit", "2")
        assert shown.code == 0 and len(shown.out.splitlines()) == lines, shown
        assert "host" in shown.out.splitlines()[0]
    as_json = job.tideline("read", "--target", "keyed", "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in as_json] == [0, 1, 2]


def test_nested_columns_are_read_from_tikv_as_they_are_in_the_delta_table_of_the_same_job(job: TikvJob) -> None:
    """Random rows of random types from a Parquet file; rows that the source refuses are in neither target."""
    random, rows = Random(20260101), 3000  # most have a value outside of its type, or a duplicate key
    drawn = [random_type(random) for _ in range(100)]
    kinds = [kind for form in ("array", "map", "struct") for kind in drawn if kind.startswith(form)][::4]
    schema = {"id": "bigint", **{f"c{place:02}": kind for place, kind in enumerate(kinds)}}
    columns = [pa.array(range(rows), pa.int64()), *(random_array(random, parse_type(kind), rows) for kind in kinds)]
    pq.write_table(pa.table(columns, names=list(schema)), job.folder / "rows.parquet")
    (job.folder / "rows.parquet").rename(job.folder / "logs" / "rows.parquet")
    source = job.source(format="parquet", path=f"{job.folder}/logs/*.parquet")
    job.write_job(job.target(), schema=schema, source=source)
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    lake = job.table("lake")
    assert lake is not None
    table = lake.to_pyarrow_table().sort_by("id").select(list(schema))
    assert table.num_rows + len(job.quarantined()) == rows and table.num_rows > 100
    read = pa.Table.from_batches(list(read_rows(job.place()))).select(list(schema))
    for name, kind in schema.items():
        assert plain(read[name]) == plain(table[name]), kind
    expected = [line.decode() for batch in table.to_batches() for line in as_json_lines(batch).to_pylist()]
    assert job.tideline("read", "--json", "--limit", str(rows)).out.removesuffix("\n").split("\n") == expected
    assert job.tideline("read", "--limit", str(rows)).code == 0, "for people too"


# The job file that comes with Tideline


@pytest.mark.spark
def test_the_job_file_for_access_logs_keeps_the_last_request_of_each_client(
    tikv: TikvCluster, logs: Path, tmp_path: Path
) -> None:
    job_file = ROOT / "conf" / "access-log-to-tikv.yaml"
    environment = os.environ | {"LOGS": str(logs), "PD": tikv.pd[0], "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def tideline(*arguments: str) -> str:
        command = [sys.executable, "-m", "ingest", arguments[0], str(job_file), *arguments[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tideline("run")
    accepted, rejected = expected_rows(job_file, logs)
    last: dict[str, dict[str, Any]] = {}
    for row in accepted:  # in the order of the file
        if row["host"] not in last or row["ts"] >= last[row["host"]]["ts"]:
            last[row["host"]] = row
    read = [json.loads(line) for line in tideline("read", "--json", "--limit", "1000000").splitlines()]
    assert [row["host"] for row in read] == sorted(last)
    for row in read:
        expected = last[row["host"]]
        assert (row["path"], row["status"], row["bytes"]) == (expected["path"], expected["status"], expected["bytes"])
    (shown,) = json.loads(tideline("show", "--json"))
    assert (shown["rows"], shown["rejected"]) == (len(accepted), rejected)
    written = shown["targets"]["tikv:tlast_request_"]
    assert written == {"written": len(last), "dropped": len(accepted) - len(last), "rejected": 0}
    assert len(tideline("read", "--limit", "3").splitlines()) == 4
