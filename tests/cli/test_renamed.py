"""A target that is renamed in the job file: its epochs are those of its table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Call
from tests.job import Job


def write(job: Job, quarantine: str = "bad", **tables: str) -> None:
    """Write the job file with these tables as targets, each under its name."""
    job.write(
        targets=[{"type": "delta", "path": f"{job.folder}/{path}", "name": name} for name, path in tables.items()],
        timeline={"path": f"{job.folder}/timeline"},
        quarantine={"path": f"{job.folder}/bad", "name": quarantine},
        spark=None,
    )


def ingest(job: Job, call: Call) -> None:
    """Write one epoch of 10 rows and a rejected record."""
    lines = (job.folder / "logs" / "a.jsonl").read_text().splitlines()
    number = sum(1 for line in lines if '"id"' in line)
    job.append("a.jsonl", range(number, number + 10), bad=1)
    ended = call("run", job.file)
    assert ended.code == 0, ended.err


@pytest.fixture
def lake(job: Job, call: Call) -> Job:
    """A job with three epochs under the name ``old``."""
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, old="lake")
    for _ in range(3):
        ingest(job, call)
    return job


def check(job: Job, call: Call, rows: int, *tables: str) -> None:
    """Every row is in each table once, and no command finds a problem."""
    assert call("run", job.file).code == 0
    for table in tables:
        assert job.ids(table) == Counter(range(rows)), table
    checked = call("fsck", job.file, "--deep")
    assert checked.code == 0, checked.out
    assert call("replay", job.file).out.startswith("nothing is lost")


def restore(table: Path) -> None:
    DeltaTable(table).restore(0)


def overwrite(table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table()
    write_deltalake(table, rows.slice(0, 0), mode="overwrite")


def delete(table: Path) -> None:
    shutil.rmtree(table)


def delete_the_log(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def make_anew(table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table()
    shutil.rmtree(table)
    write_deltalake(table, rows.slice(0, 0))


def test_a_target_that_is_renamed_keeps_its_epochs_and_leaves_nothing_for_fsck(lake: Job, call: Call) -> None:
    write(lake, new="lake", quarantine="rejected")
    check(lake, call, 30, "lake")
    ingest(lake, call)
    check(lake, call, 40, "lake")
    assert DeltaTable(lake.folder / "bad").to_pyarrow_table().num_rows == 4


@pytest.mark.parametrize("epochs_since", [0, 1])
@pytest.mark.parametrize(
    ("lose", "first"), [(restore, 1), (overwrite, 0), (delete, 0), (delete_the_log, 0), (make_anew, 0)]
)
def test_what_a_renamed_table_lost_is_told_and_put_back_under_the_new_name(
    lake: Job, call: Call, lose: Callable[[Path], None], first: int, epochs_since: int
) -> None:
    write(lake, new="lake")
    for _ in range(epochs_since):
        ingest(lake, call)
    last = 2 + epochs_since
    lose(lake.lake)
    said = call("run", lake.file)
    assert said.code == 5, said.err
    assert f"epochs {first}-{last} ({10 * (last - first + 1)} rows)" in " ".join(said.err.split())
    assert call("replay", lake.file).code == 0
    check(lake, call, 10 * (last + 1), "lake")
    write(lake, newest="lake")  # epochs restored under one name count under the next one
    check(lake, call, 10 * (last + 1), "lake")
    lake.lake.rename(lake.folder / "moved")
    write(lake, moved="moved")
    ingest(lake, call)
    check(lake, call, 10 * (last + 2), "moved")


@pytest.mark.parametrize("epochs_before", [1, 2])
def test_targets_that_exchange_their_names_stay_the_tables_that_they_are(
    job: Job, call: Call, epochs_before: int
) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake", b="lake2")
    for _ in range(epochs_before):
        ingest(job, call)
    write(job, b="lake", a="lake2")
    rows = 10 * epochs_before
    check(job, call, rows, "lake", "lake2")
    ingest(job, call)
    check(job, call, rows + 10, "lake", "lake2")
    delete_the_log(job.folder / "lake2")
    assert "a was deleted" in call("replay", job.file, "--dry-run").out
    assert call("replay", job.file).code == 0
    check(job, call, rows + 10, "lake", "lake2")


def test_a_target_that_was_left_out_and_renamed_gets_what_it_lacks_and_what_it_lost(job: Job, call: Call) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake", b="lake2")
    for _ in range(2):
        ingest(job, call)
    write(job, a2="lake")
    for _ in range(2):
        ingest(job, call)
    write(job, a3="lake", b3="lake2")
    said = call("run", job.file)
    assert said.code == 5 and "b3 was left out of epochs 2-3 (20 rows)" in " ".join(said.err.split())
    assert call("replay", job.file).code == 0
    check(job, call, 40, "lake", "lake2")
    restore(job.folder / "lake2")
    assert call("run", job.file).code == 5
    assert call("replay", job.file).code == 0
    check(job, call, 40, "lake", "lake2")


def test_a_name_that_another_table_had_before_tells_nothing(job: Job, call: Call) -> None:
    """``a`` is removed and ``b`` gets its name: the table that was ``b`` has every epoch."""
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake", b="lake2")
    for _ in range(2):
        ingest(job, call)
    write(job, a="lake2")
    check(job, call, 20, "lake2")
    ingest(job, call)
    check(job, call, 30, "lake2")


@pytest.mark.parametrize("point", ["completed", "part-released", "decided", "part-committing", "part-committed"])
def test_names_that_are_exchanged_after_a_kill_take_no_table_the_files_of_its_epoch(
    job: Job, call: Call, point: str
) -> None:
    """Files of a killed epoch belong to the table that contains them, whatever its name."""
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake", b="lake2")
    ingest(job, call)
    ingest(job, call)
    job.append("a.jsonl", range(20, 30), bad=1)
    job.killed_at(point)
    write(job, b="lake", a="lake2")
    assert call("run", job.file).code == 0
    check(job, call, 30, "lake", "lake2")


@pytest.mark.parametrize("point", ["manifest", "decided", "part-committed"])
def test_a_target_may_be_renamed_while_an_epoch_of_it_is_pending(lake: Job, call: Call, point: str) -> None:
    lake.append("a.jsonl", range(30, 40), bad=1)
    lake.killed_at(point)
    write(lake, new="lake")
    check(lake, call, 40, "lake")


def exchange_folders(job: Job) -> None:
    job.lake.rename(job.folder / "aside")
    (job.folder / "lake2").rename(job.lake)
    (job.folder / "aside").rename(job.folder / "lake2")


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("point", ["part-committing:2", "applied", "completed", "part-released"])
def test_folders_that_are_exchanged_behind_a_killed_first_epoch_keep_their_files(
    job: Job, call: Call, point: str, is_told: bool
) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake", b="lake2")
    job.append("a.jsonl", range(10))
    job.killed_at(point)
    exchange_folders(job)
    if is_told:
        write(job, a="lake2", b="lake")
    check(job, call, 10, "lake", "lake2")
    ingest(job, call)
    check(job, call, 20, "lake", "lake2")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_new_target_at_the_place_of_one_that_was_moved_takes_none_of_its_epochs(
    job: Job, call: Call, name: str
) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake")
    ingest(job, call)
    job.lake.rename(job.folder / "old")
    write(job, **{name: "old"})
    for _ in range(2):
        ingest(job, call)
    write(job, **{name: "old"}, c="lake")
    assert call("run", job.file).code == 5
    assert call("replay", job.file).code == 0
    check(job, call, 30, "old", "lake")


def test_a_copy_of_a_table_that_becomes_a_target_has_what_the_table_had(job: Job, call: Call) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake")
    for _ in range(2):
        ingest(job, call)
    shutil.copytree(job.lake, job.folder / "lake2")
    write(job, a="lake", b="lake2")
    ingest(job, call)
    replayed = call("replay", job.file)
    assert replayed.code == 0 and replayed.out.startswith("nothing is lost")
    assert job.ids("lake") == job.ids("lake2") == Counter(range(30))


@pytest.mark.parametrize("gone", ["_delta_log", "_delta_log and all data files but the newest", "everything"])
def test_a_table_that_was_moved_renamed_and_deleted_behind_a_killed_epoch_comes_back_whole(
    job: Job, call: Call, gone: str
) -> None:
    (job.folder / "logs" / "a.jsonl").write_text("")
    write(job, a="lake")
    for _ in range(2):
        ingest(job, call)
    old = set(job.lake.glob("*.parquet"))
    job.append("a.jsonl", range(20, 30))
    moved = job.folder / "moved"
    job.lake.rename(moved)
    write(job, b="moved")
    job.killed_at("part-committing")
    shutil.rmtree(moved / "_delta_log")
    if gone == "everything":
        shutil.rmtree(moved)
    elif gone != "_delta_log":
        for path in old:
            (moved / path.name).unlink()
    assert call("run", job.file).code == 5
    assert call("replay", job.file).code == 0
    check(job, call, 30, "moved")
