"""Targets that the job file left out for some epochs: no start skips the gap silently."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.job import Job


def write(job: Job, *tables: str, name: str = "job.yaml", **changes: object) -> None:
    """Write the job file with these tables as its targets."""
    job.write(
        targets=[{"type": "delta", "path": f"{job.folder}/{table}", "name": table} for table in tables],
        timeline={"path": f"{job.folder}/timeline"},
        quarantine={"path": f"{job.folder}/bad"},
        spark=None,
        **changes,
    )
    if name != "job.yaml":
        job.file.rename(job.folder / name)


def ingest(job: Job, call: Call, *epochs: Sequence[str]) -> None:
    """Write one epoch of 10 rows for each list of tables; the job file keeps the last list."""
    for tables in epochs:
        write(job, *tables)
        number = sum(len(path.read_text().splitlines()) for path in (job.folder / "logs").iterdir())
        job.append("a.jsonl", range(number, number + 10))
        ended = call("run", job.file)
        assert ended.code == 0, ended.err


@pytest.fixture
def empty(job: Job) -> Job:
    """A job without records."""
    (job.folder / "logs" / "a.jsonl").write_text("")
    return job


BOTH = ("lake", "copy")
GAPS: list[tuple[Sequence[Sequence[str]], str, int]] = [
    ([BOTH, ["lake"]], "copy was left out of epoch 1 (10 rows)", 20),
    ([BOTH, ["lake"], ["lake"]], "copy was left out of epochs 1-2 (20 rows)", 30),
    ([["lake"], ["lake"]], "copy was left out of epochs 0-1 (20 rows)", 20),
]


@pytest.mark.parametrize(("epochs", "words", "rows"), GAPS)
def test_a_target_without_epochs_that_others_have_stops_the_start_and_a_replay_copies_them(
    empty: Job, call: Call, epochs: Sequence[Sequence[str]], words: str, rows: int
) -> None:
    ingest(empty, call, *epochs)
    write(empty, *BOTH)
    empty.append("a.jsonl", range(rows, rows + 10))
    before = empty.ids("copy")
    for command in ("run", "recover"):
        ended = call(command, empty.file)
        said = " ".join((ended.out + ended.err).split())
        assert ended.code == 5, said
        assert words in said and "not among the job's targets" in said and "tideline replay" in said
    assert empty.ids("copy") == before
    checked = call("fsck", empty.file)
    assert checked.code == 6 and words in checked.out
    shutil.rmtree(empty.folder / "logs")  # another target has the rows, so no source is needed
    (empty.folder / "logs").mkdir()
    dry = call("replay", empty.file, "--dry-run")
    assert dry.code == 5 and "would be put there from the data files of another target" in dry.out, dry.out
    done = call("replay", empty.file)
    assert done.code == 0, done.err
    assert empty.ids("copy") == empty.ids("lake") == Counter(range(rows))
    shown = call("show", empty.file).out
    assert re.search(r"lake:\s+0\s+written\s+\+\s+\d+\s+left\s+to\s+others", shown) and "dropped" not in shown
    assert call("replay", empty.file).out.startswith("nothing is lost")
    empty.append("b.jsonl", range(rows, rows + 10))
    assert call("run", empty.file).code == 0
    assert empty.ids("copy") == empty.ids("lake") == Counter(range(rows + 10))
    checked = call("fsck", empty.file, "--deep")
    assert checked.code == 0, checked.out
    assert empty.stray_files("copy") == set()


@pytest.mark.parametrize(("epochs", "words", "rows"), GAPS)
def test_epochs_that_a_target_was_left_out_of_are_read_again_where_no_other_has_their_files(
    empty: Job, call: Call, epochs: Sequence[Sequence[str]], words: str, rows: int
) -> None:
    ingest(empty, call, *epochs)
    write(empty, "copy")
    ended = call("run", empty.file)
    assert ended.code == 5 and words in " ".join(ended.err.split())
    done = call("replay", empty.file)
    assert done.code == 0, done.err
    assert empty.ids("copy") == Counter(range(rows))
    assert call("run", empty.file).code == 0


@pytest.mark.parametrize(("epochs", "words", "rows"), GAPS)
def test_a_target_may_begin_behind_what_it_was_left_out_of_where_a_person_says_so(
    empty: Job, call: Call, epochs: Sequence[Sequence[str]], words: str, rows: int
) -> None:
    ingest(empty, call, *epochs)
    write(empty, *BOTH)
    before = empty.ids("copy")
    assert call("replay", empty.file, "--accept-loss").code == 0
    empty.append("a.jsonl", range(rows, rows + 10))
    assert call("run", empty.file).code == 0
    assert empty.ids("copy") == before + Counter(range(rows, rows + 10))
    assert empty.ids("lake") == Counter(range(rows + 10))
    assert "epochs given up for copy" in " ".join(call("show", empty.file).out.split())
    assert call("fsck", empty.file).code == 0
    which = words.removeprefix("copy was left out of ")
    assert call("replay", empty.file).out.startswith(f"nothing more is lost; {which} of copy w")


def test_two_job_files_with_other_targets_on_one_timeline_do_not_take_turns(empty: Job, call: Call) -> None:
    ingest(empty, call, ["lake"])
    write(empty, "copy", name="other.yaml")
    write(empty, "lake")
    empty.append("a.jsonl", range(10, 20))
    refused = call("run", empty.folder / "other.yaml")
    assert refused.code == 5 and "copy was left out of epoch 0 (10 rows)" in " ".join(refused.err.split())
    assert call("run", empty.file).code == 0
    assert empty.ids("lake") == Counter(range(20))
    assert empty.ids("copy") == Counter()


def test_a_target_may_go_and_one_may_have_another_name(empty: Job, call: Call) -> None:
    ingest(empty, call, BOTH, ["lake"], ["lake"])
    write(empty, "lake")
    empty.file.write_text(empty.file.read_text().replace("name: lake", "name: renamed"))
    empty.append("a.jsonl", range(30, 40))
    assert call("run", empty.file).code == 0
    assert call("run", empty.file).code == 0
    assert empty.ids("lake") == Counter(range(40))
    assert call("replay", empty.file, "--dry-run").out.startswith("nothing is lost")


def test_epochs_that_a_table_lost_and_one_that_it_never_had_come_in_one_replay(empty: Job, call: Call) -> None:
    ingest(empty, call, BOTH, BOTH, BOTH)
    made = sorted((empty.folder / "timeline" / ".hoodie" / "timeline").glob("*.inflight"))[1]
    manifest = json.loads(made.read_text())
    manifest["parts"] = [part for part in manifest["parts"] if part["target"] != "copy"]
    made.write_text(json.dumps(manifest))
    shutil.rmtree(empty.folder / "copy")
    write(empty, *BOTH)
    assert call("replay", empty.file).code == 0  # the table lost epochs 0 and 2, and never had epoch 1
    assert empty.ids("copy") == Counter(range(30))
    assert call("fsck", empty.file).code == 0


def test_an_epoch_in_the_past_that_a_target_was_left_out_of_is_found(empty: Job, call: Call) -> None:
    """An older version continued both: the newest epoch is in both; only older manifests show the gap."""
    ingest(empty, call, BOTH, ["lake"], ["lake"])
    made = sorted((empty.folder / "timeline" / ".hoodie" / "timeline").glob("*.inflight"))[2]
    manifest = json.loads(made.read_text())
    (lake,) = [part for part in manifest["parts"] if part["target"] == "lake"]
    manifest["parts"].insert(1, lake | {"target": "copy", "rows": 0, "files": [], "dropped": lake["rows"]})
    made.write_text(json.dumps(manifest))
    write(empty, *BOTH)
    checked = call("fsck", empty.file)
    assert "copy was left out of epoch 1 (10 rows)" in checked.out
    assert call("replay", empty.file).code == 0
    assert empty.ids("copy") == Counter(range(20))
    assert call("replay", empty.file).out.startswith("nothing is lost")


def test_a_replay_of_one_target_is_no_gap_of_another(empty: Job, call: Call) -> None:
    ingest(empty, call, BOTH, ["lake"])
    shutil.rmtree(empty.lake)
    assert call("replay", empty.file).code == 0
    assert empty.ids("lake") == Counter(range(20))
    write(empty, *BOTH)
    said = " ".join(call("run", empty.file).err.split())
    assert "copy was left out of epoch 1 (10 rows)" in said
    assert call("replay", empty.file).code == 0
    assert empty.ids("copy") == Counter(range(20))
    assert call("fsck", empty.file, "--deep").code == 0


@pytest.mark.parametrize("tables", [BOTH, ["copy"]])
def test_data_files_with_partition_values_that_readers_do_not_take_are_not_copied(
    empty: Job, call: Call, tables: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions wrote negative fractions, with which delta-rs cannot read the table."""
    layout: dict[str, Any] = {"schema": {"id": "bigint", "p": "decimal(5,2)"}, "partition_by": ["p"]}
    log = empty.folder / "logs" / "a.jsonl"
    with monkeypatch.context() as older:
        older.setattr("sinks.parquet.partition_rows.unfit_rows", lambda *_, **__: {})
        for number, fraction in enumerate(("-0.05", "0.05", "-2.00")):
            write(empty, "lake", **layout)
            with log.open("a") as file:
                file.write(f'{{"id": {2 * number}, "p": {fraction}}}\n{{"id": {2 * number + 1}, "p": 1}}\n')
            assert call("run", empty.file).code == 0
    write(empty, *tables, **layout)
    assert call("run", empty.file).code == 5
    words = "epoch 0 cannot be put back: it has rows that copy refuses, and the quarantine not: p: -0.05 cannot be a"
    for options in ([], ["--dry-run"]):
        refused = call("replay", empty.file, *options)
        assert refused.code == (5 if options else 2)
        assert words in " ".join((refused.out + refused.err).split())
    assert not (empty.folder / "copy").exists()
    done = call("replay", empty.file, "--epochs", "1..2", "--accept-loss")
    assert done.code == 0, done.err
    assert call("run", empty.file).code == 0
    copy = empty.table("copy")
    assert copy is not None
    assert sorted(copy.to_pyarrow_table()["id"].to_pylist()) == [2, 3, 4, 5]
    assert call("fsck", empty.file).code == 0


def test_rows_of_an_older_version_that_a_table_refuses_now_are_named_when_they_are_read_again(
    empty: Job, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout: dict[str, Any] = {"schema": {"id": "bigint", "p": "decimal(5,2)"}, "partition_by": ["p"]}
    write(empty, "lake", **layout)
    (empty.folder / "logs" / "a.jsonl").write_text('{"id": 1, "p": -0.05}\n{"id": 2, "p": 1}\n')
    with monkeypatch.context() as older:
        older.setattr("sinks.parquet.partition_rows.unfit_rows", lambda *_, **__: {})
        assert call("run", empty.file).code == 0
    shutil.rmtree(empty.folder / "lake")
    refused = call("replay", empty.file)
    assert refused.code == 5
    assert "lake: it refuses 1 row of epoch 0 that no target refused when it was committed" in refused.err
