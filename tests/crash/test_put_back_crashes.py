"""A replay of lost epochs that is killed at any step, repeated, or run twice at once restores every row once."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Call
from tests.cli.conftest import call as call
from tests.job import Job, finish
from tests.waiting import wait_until_frozen
from timeline.failpoints import COMMON_POINTS

POINTS = [*COMMON_POINTS[: COMMON_POINTS.index("rollback-requested")], "lease-taken"]
"""Crash points of an epoch without a rollback."""

FROM_THE_SOURCE = ("task-started", "file-announced", "task-written")
"""Crash points of tasks; a replay from existing data files runs no task."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with three epochs in its table, and a copy of its folder."""
    job = Job(tmp_path_factory.mktemp("crash") / "job")
    job.folder.mkdir()
    job.write(spark=None, timeline={"path": f"{job.folder}/timeline"}, quarantine={"path": f"{job.folder}/bad"})
    for number in range(3):
        job.append("a.jsonl", range(100 * number, 100 * number + 100), bad=1)
        assert job.tideline("run").code == 0
    shutil.copytree(job.folder, job.folder.with_name("copy"))
    return job


@pytest.fixture
def lake(made: Job) -> Iterator[Job]:
    """The job restored from its copy."""
    shutil.rmtree(made.folder)
    shutil.copytree(made.folder.with_name("copy"), made.folder)
    job = Job(made.folder)
    yield job
    job.close()


def lose(lake: Job, *, are_files_gone: bool) -> None:
    """Delete the quarantine's log, restore the table to version 0, and optionally delete their files."""
    shutil.rmtree(lake.folder / "bad" / "_delta_log")
    DeltaTable(lake.lake).restore(0)
    if are_files_gone:
        shutil.rmtree(lake.folder / "bad")
        seen = {Path(uri).name for uri in DeltaTable(lake.lake).file_uris()}
        for path in lake.lake.glob("*.parquet"):
            if path.name not in seen:
                path.unlink()


def check(lake: Job, call: Call, rows: int = 300, rejected: int = 3) -> None:
    """Every row exists once, no stray file remains, and the job goes on."""
    assert call("replay", lake.file).code == 0
    assert call("run", lake.file).code == 0
    assert lake.ids() == Counter(range(rows))
    assert DeltaTable(lake.folder / "bad").to_pyarrow_table().num_rows == rejected
    assert lake.stray_files() == lake.stray_files("bad") == set()
    checked = call("fsck", lake.file, "--deep")
    assert checked.code == 0, checked.out
    assert not call("recover", lake.file, "--json").json["found"]


@pytest.mark.parametrize(
    ("point", "are_files_gone"),
    [(point, gone) for point in POINTS for gone in (False, True) if gone or point not in FROM_THE_SOURCE],
)
def test_a_replay_that_is_killed_anywhere_and_repeated_puts_every_row_back_once(
    lake: Job, call: Call, point: str, are_files_gone: bool
) -> None:
    lose(lake, are_files_gone=are_files_gone)
    assert lake.tideline("replay", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
    check(lake, call)


@pytest.mark.parametrize("point", ["written", "manifest", "decided", "part-committed", "applied"])
def test_a_start_of_the_job_after_a_killed_replay_settles_it_and_adds_nothing_behind_a_gap(
    lake: Job, call: Call, point: str
) -> None:
    lose(lake, are_files_gone=True)
    assert lake.tideline("replay", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
    ended = call("run", lake.file)
    assert ended.code == (5 if point == "written" else 0), ended.err
    check(lake, call)


def test_replays_at_once_of_which_one_is_killed_end_as_one(lake: Job, call: Call) -> None:
    draw = random.Random(7)
    lose(lake, are_files_gone=True)
    for _ in range(3):
        points = draw.sample(["manifest", "decided", "part-committed", "requested"], 2)
        both = [lake.start("replay", env={"TIDELINE_CRASH_AT": points[0]}), lake.start("replay")]
        ended = [finish(process) for process in both]
        assert ended[0].code in (0, 3, 7, -signal.SIGKILL), ended[0].err
        assert ended[1].code in (0, 3, 7), ended[1].err
    check(lake, call)


def overwrite(lake: Job) -> None:
    table = DeltaTable(lake.lake).to_pyarrow_table()
    write_deltalake(lake.lake, table.slice(0, 0), mode="overwrite")


@pytest.mark.parametrize("point", [None, "part-committed", "part-committed:2", "completed", "manifest", "decided"])
def test_an_epoch_that_was_decided_before_its_table_lost_others_is_applied_with_them(
    lake: Job, call: Call, point: str | None
) -> None:
    """The decided epoch waits; if a replay is killed after its commit, a start reports the lost epochs."""
    lake.append("a.jsonl", range(300, 400))
    process = lake.start("run", env={"TIDELINE_FREEZE_AT": "manifest"})
    wait_until_frozen(process)
    overwrite(lake)
    process.send_signal(signal.SIGCONT)
    assert finish(process).code == 5
    assert call("run", lake.file).code == 5
    assert len(lake_pending(lake)) == 1
    if point is not None:
        assert lake.tideline("replay", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
        if point in ("part-committed", "completed"):
            said = call("run", lake.file)
            assert said.code == 5 and "epochs 0-2 (300 rows)" in " ".join(said.err.split())
    check(lake, call, rows=400)


def lake_pending(lake: Job) -> list[str]:
    return [path.name for path in (lake.folder / "timeline" / ".hoodie" / "timeline").glob("*.requested")][3:]


@pytest.mark.parametrize("point", ["file-announced:2", "written", "manifest", "decided", "part-committed", "completed"])
def test_a_replay_that_copies_another_tables_files_and_is_killed_leaves_none_over_and_doubles_none(
    lake: Job, call: Call, point: str
) -> None:
    tables = [{"type": "delta", "path": f"{lake.folder}/{name}"} for name in ("lake", "copy")]
    places = {"timeline": {"path": f"{lake.folder}/timeline"}, "quarantine": {"path": f"{lake.folder}/bad"}}
    lake.write(spark=None, targets=tables, **places)
    assert call("run", lake.file).code == 5
    assert lake.tideline("replay", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
    check(lake, call)
    assert lake.ids("copy") == Counter(range(300))
    assert lake.stray_files("copy") == set()


@pytest.mark.parametrize("is_table_gone", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        *("lease-taken", "applying", "part-committing", "part-committed", "part-committed:2", "applied", "completed"),
        *(
            "part-released",
            "requested",
            "inflight",
            "written",
            "manifest",
            "decided",
            "part-committed:3",
            "completed:2",
        ),
    ],
)
def test_a_pending_epoch_whose_data_files_are_gone_comes_back_once_however_its_replay_is_killed(
    lake: Job, call: Call, point: str, is_table_gone: bool
) -> None:
    lake.append("a.jsonl", range(300, 400), bad=1)
    lake.killed_at("part-committing")
    backup = lake.folder / "backup"
    shutil.copytree(lake.lake, backup)
    for name in lake.stray_files():
        (lake.lake / name).unlink()
    if is_table_gone:
        shutil.rmtree(lake.lake)
    assert call("run", lake.file).code == 5
    assert lake.tideline("replay", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
    check(lake, call, rows=400, rejected=4)
    for path in backup.glob("*.parquet"):
        shutil.copy(path, lake.lake)
    assert lake.ids() == Counter(range(400))
