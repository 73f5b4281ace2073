"""`tideline run`: once, continuous, stopped, started twice, frozen. Tasks run without Spark; with it: test_spark.py."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import pytest

from tests.job import Job, finish
from tests.waiting import read_until, wait_for, wait_until_frozen


def test_second_run_has_nothing_new_and_needs_no_engine(job: Job) -> None:
    assert "cli: done: 1 epoch, 100 rows committed, 2 quarantined" in job.tideline("run").out
    again = job.tideline("run")
    assert (again.code, again.out.partition(" in ")[0]) == (0, "cli: done: nothing new")
    assert job.ids() == Counter(range(100))


def test_continuous_run_picks_up_a_file_that_grows_and_a_new_one(job: Job) -> None:
    process = job.start("run", "--continuous")
    wait_for(lambda: job.lake.exists() and bool(job.tideline("show", "--json").json), process)
    job.append("a.jsonl", range(100, 150))
    job.append("b.jsonl", range(150, 200))
    wait_for(lambda: job.ids().total() == 200, process)
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 0
    assert "cli: stopped by a signal" in ended.out
    assert job.ids() == Counter(range(200))


@pytest.mark.parametrize(
    ("point", "fate"),
    [
        ("begun", "stopped by a signal (epoch 0 was rolled back): nothing committed"),
        ("written", "stopped by a signal (epoch 0 was finished): 1 epoch, 100 rows committed"),
        ("decided", "stopped by a signal (epoch 0 was finished): 1 epoch, 100 rows committed"),
    ],
)
def test_first_signal_settles_the_open_epoch_and_says_how(job: Job, point: str, fate: str) -> None:
    stopped = job.tideline("run", "--continuous", env={"TIDELINE_SIGNAL_AT": point})
    assert stopped.code == 0
    assert fate in stopped.out
    assert "SIGTERM: stopping; the open epoch is settled first (again: stop at once)" in stopped.err
    assert job.is_settled()
    again = job.tideline("run")
    assert again.code == 0
    assert "holds the lease" not in again.err, "a released lease is not waited for"
    assert job.ids() == Counter(range(100))


def test_signal_ends_the_wait_for_another_writers_lease(job: Job) -> None:
    job.write(writer={"lease_ttl": "60s"})
    wait_until_frozen(job.start("run", env={"TIDELINE_FREEZE_AT": "begun"}))
    waiting = job.start("run")
    read_until(waiting, "holds the lease")
    waiting.send_signal(signal.SIGINT)
    ended = finish(waiting)
    assert ended.code == 0
    assert "stopped by a signal (another writer's lease was waited for)" in ended.out


def test_second_of_two_jobs_says_who_works_and_ends_with_code_3(job: Job) -> None:
    job.write(writer={"lease_ttl": "12s"})
    works = job.start("run", "--continuous")
    wait_for(lambda: job.lake.exists() and bool(job.pending() or job.ids()), works)
    second = job.tideline("run")
    assert second.code == 3
    assert f"process {works.pid} on " in second.err and "generation 1" in second.err and "alive" in second.err
    works.send_signal(signal.SIGTERM)
    assert finish(works).code == 0
    assert job.ids() == Counter(range(100))
    assert job.is_settled()


def test_two_jobs_started_at_once_commit_every_row_once(job: Job) -> None:
    job.write(writer={"lease_ttl": "12s"})
    both = [job.start("run", "--continuous") for _ in range(2)]
    while (loser := next((each for each in both if each.poll() is not None), None)) is None:
        time.sleep(0.02)
    winner = next(each for each in both if each is not loser)
    ended = finish(loser)
    assert ended.code == 3, ended.err
    assert f"process {winner.pid} on " in ended.err
    wait_for(lambda: bool(job.ids()), winner)
    winner.send_signal(signal.SIGTERM)
    assert finish(winner).code == 0
    assert job.ids() == Counter(range(100))


def test_lease_of_a_dead_process_of_this_machine_is_taken_over_at_once(job: Job) -> None:
    job.write(writer={"lease_ttl": "1h"})
    job.killed_at("written")
    ended = job.tideline("run")
    assert ended.code == 0
    assert "holds the lease" not in ended.err
    assert job.ids() == Counter(range(100))
    assert job.is_settled()


@pytest.mark.parametrize("point", ["begun", "written", "manifest", "decided", "part-committing", "part-committed"])
def test_frozen_writer_is_taken_over_and_leaves_nothing_behind_when_it_wakes(job: Job, point: str) -> None:
    job.write(writer={"lease_ttl": "1s"})
    frozen = job.start("run", env={"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(frozen)
    taker = job.tideline("run")
    assert taker.code == 0, taker.err
    assert f"process {frozen.pid} on " in taker.err
    frozen.send_signal(signal.SIGCONT)
    woken = finish(frozen)
    # A writer frozen after its decision has committed: it ends normally or reports the takeover.
    is_decided = point in ("decided", "part-committing", "part-committed")
    assert woken.code in ((0, 7) if is_decided else (7,)), woken.err
    assert job.ids() == Counter(range(100))
    assert job.tideline("recover").code == 0
    assert job.is_settled()


@pytest.mark.parametrize("point", ["inflight", "completed"])
def test_log_is_json_to_the_last_line_when_asked_for(job: Job, point: str) -> None:
    ended = job.tideline("run", "--log-json", env={"TIDELINE_CRASH_AT": point})
    assert ended.code in (0, -signal.SIGKILL)
    for line in ended.err.splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()


def test_failure_is_a_json_line_when_asked_for(job: Job) -> None:
    job.write(source=job.source(path=f"{job.folder}/nowhere"))
    ended = job.tideline("run", "--log-json")
    assert ended.code == 4
    last = json.loads(ended.err.splitlines()[-1])
    assert (last["level"], last["kind"]) == ("ERROR", "SourceError") and "does not exist" in last["message"]


@pytest.mark.parametrize("change", ["shrunk", "rewritten"])
def test_file_changed_below_its_offset_stops_the_job_and_takes_nothing(job: Job, change: str) -> None:
    assert job.tideline("run").code == 0
    log = job.folder / "logs" / "a.jsonl"
    text = log.read_text()
    log.write_text(text[: len(text) // 2] if change == "shrunk" else text.replace("h1", "H1") + text)
    ended = job.tideline("run")
    assert ended.code == 4
    assert "a.jsonl" in ended.err
    assert job.is_settled()
    assert job.ids() == Counter(range(100))


def test_range_that_vanishes_behind_the_plan_rolls_the_epoch_back_and_is_named(job: Job) -> None:
    frozen = job.start("run", env={"TIDELINE_FREEZE_AT": "begun"})
    wait_until_frozen(frozen)
    (job.folder / "logs" / "a.jsonl").unlink()
    frozen.send_signal(signal.SIGCONT)
    ended = finish(frozen)
    assert ended.code == 4
    assert "shard a.jsonl, range [0, " in ended.err and "does not exist any more" in ended.err
    assert job.is_settled()


def test_unknown_field_stops_the_job_where_the_job_file_says_so(job: Job) -> None:
    job.write(schema={"id": "bigint"}, on_unknown_field="fail")
    ended = job.tideline("run")
    assert ended.code == 4
    assert "host" in ended.err and "a.jsonl" in ended.err
    assert job.is_settled()


def test_full_disk_of_a_target_is_one_message_and_settles_the_epoch(job: Job) -> None:
    full = job.folder / "other"
    job.write(
        targets=[{"type": "delta", "path": f"{job.folder}/lake"}, {"type": "delta", "path": str(full), "name": "other"}]
    )
    full.write_text("in the way")
    ended = job.tideline("run")
    assert ended.code in (5, 6), ended.err
    assert str(full) in ended.err
    assert not job.pending() and not job.stray_files()
    full.unlink()
    assert job.tideline("run").code == 0
    assert job.ids() == job.ids("other") == Counter(range(100))


def test_inferred_schema_is_kept_when_later_files_have_more_fields(job: Job) -> None:
    job.write(schema=None)
    assert job.tideline("run").code == 0
    with (job.folder / "logs" / "b.jsonl").open("w") as out:
        out.write('{"id": 100, "host": "h1", "more": true}\n')
    ended = job.tideline("run")
    assert ended.code == 0
    assert job.ids() == Counter(range(101))
