"""One epoch reaches several targets, despite kills, freezes and refusals between them."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.job import Finished, Job, finish
from tests.waiting import wait_until_frozen

TABLES = ("lake", "copy", "third")


@pytest.fixture
def fan_out(job: Job) -> Job:
    """The job with three tables."""
    targets = [{"type": "delta", "name": name, "path": f"{job.folder}/{name}"} for name in TABLES]
    job.write(targets=targets, writer={"lease_ttl": "1s"})
    return job


def commits_of_each(job: Job) -> list[int]:
    return [len(DeltaTable(job.folder / name).history()) for name in TABLES]


def tables_with_rows(job: Job) -> list[str]:
    return [name for name in TABLES if job.ids(name)]


def is_everywhere_once(job: Job, rows: int = 100) -> bool:
    is_there = all(job.ids(name) == Counter(range(rows)) and not job.stray_files(name) for name in TABLES)
    return is_there and job.is_settled()


@pytest.mark.parametrize("applied", [1, 2, 3])
def test_recovery_completes_the_targets_that_a_killed_writer_had_not_reached(fan_out: Job, applied: int) -> None:
    killed = fan_out.tideline("run", env={"TIDELINE_CRASH_AT": f"part-committed:{applied}"})
    assert killed.code == -signal.SIGKILL
    assert tables_with_rows(fan_out) == list(TABLES[:applied])
    recovered = fan_out.tideline("recover", "--json")
    assert recovered.code == 0, recovered.err
    assert [settled["step"] for settled in recovered.json["settled"]] == ["recommit"]
    assert is_everywhere_once(fan_out)
    assert commits_of_each(fan_out) == [1, 1, 1]


def test_next_epoch_reaches_no_target_before_the_last_one_reached_all(fan_out: Job) -> None:
    fan_out.killed_at("part-committed:1")
    fan_out.append("b.jsonl", range(100, 150))
    assert fan_out.tideline("run").code == 0
    assert is_everywhere_once(fan_out, 150)
    for name in TABLES:
        log = sorted((fan_out.folder / name / "_delta_log").glob("*.json"))
        assert [epoch_of(path.read_text()) for path in log] == ["0", "1"]


def epoch_of(entry: str) -> str:
    actions = [json.loads(line) for line in entry.splitlines()]
    return str(next(action["commitInfo"]["tideline.epoch"] for action in actions if "commitInfo" in action))


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_writer_frozen_inside_a_targets_commit_adds_nothing_when_it_wakes(fan_out: Job, passes: int) -> None:
    frozen = fan_out.start("run", env={"TIDELINE_FREEZE_AT": f"part-committing:{passes}"})
    wait_until_frozen(frozen)
    taker = fan_out.tideline("run")
    assert taker.code == 0, taker.err
    assert is_everywhere_once(fan_out)
    frozen.send_signal(signal.SIGCONT)
    assert_knows_its_end(finish(frozen))
    assert is_everywhere_once(fan_out)
    assert commits_of_each(fan_out) == [1, 1, 1]


def assert_knows_its_end(woken: Finished) -> None:
    """Another writer applied its decision: the process ends normally or reports the takeover."""
    assert woken.code in (0, 7), woken.err


@pytest.mark.parametrize("refusing", TABLES[1:])
def test_target_that_refuses_keeps_the_epoch_pending_until_it_is_mended(fan_out: Job, refusing: str) -> None:
    assert fan_out.tideline("run").code == 0
    fan_out.append("b.jsonl", range(100, 150))
    frozen = fan_out.start("run", env={"TIDELINE_FREEZE_AT": "decided"})
    wait_until_frozen(frozen)
    log = fan_out.folder / refusing / "_delta_log"
    log.rename(log.with_name("hidden"))
    write_deltalake(log.parent, pa.table({"other": [1]}))
    frozen.send_signal(signal.SIGCONT)
    refused = finish(frozen)
    assert refused.code == 5, refused.err
    assert refusing in refused.err
    assert len(fan_out.pending()) == 1, "decided, so it is never rolled back"
    shutil.rmtree(log)
    for stray in log.parent.glob("part-*.parquet"):
        stray.unlink()
    log.with_name("hidden").rename(log)
    assert fan_out.tideline("recover").code == 0
    assert is_everywhere_once(fan_out, 150)
