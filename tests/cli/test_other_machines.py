"""Writers and recoveries that share only the store: clocks an hour apart, concurrent starts, kills."""

from __future__ import annotations

import random
import signal
from collections import Counter
from itertools import pairwise

import pytest

from tests.job import Job, finish
from tests.waiting import wait_for, wait_until_frozen
from timeline.instant import Action

HOUR_S = 3600


def clock(ahead_s: int) -> dict[str, str]:
    return {"TIDELINE_CLOCK_AHEAD_S": str(ahead_s)}


def epochs(job: Job) -> list[tuple[str, str]]:
    """Time and completion time of each completed commit, in the order of the timeline."""
    commits = job.timeline().completed().by_action(Action.COMMIT).instants
    return [(instant.time, str(instant.completion_time)) for instant in commits]


def test_instants_go_forward_though_each_writers_clock_is_an_hour_off(job: Job) -> None:
    rows = 100
    for ahead_s in (0, HOUR_S, -HOUR_S, HOUR_S // 2, -HOUR_S):
        assert job.tideline("run", env=clock(ahead_s)).code == 0
        job.append("a.jsonl", range(rows, rows + 10))
        rows += 10
    assert job.tideline("run").code == 0
    assert job.ids() == Counter(range(rows))
    assert all(first[1] < second[0] for first, second in pairwise(epochs(job))), epochs(job)


@pytest.mark.parametrize("point", ["begun", "manifest", "decided", "part-committing"])
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_writer_that_wakes_with_a_clock_an_hour_off_adds_nothing(job: Job, point: str, ahead_s: int) -> None:
    job.write(writer={"lease_ttl": "1s"})
    frozen = job.start("run", env=clock(ahead_s) | {"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(frozen)
    taker = job.tideline("run", env=clock(-ahead_s))
    assert taker.code == 0, taker.err
    frozen.send_signal(signal.SIGCONT)
    assert finish(frozen).code in (0, 7)
    assert job.ids() == Counter(range(100))
    assert job.tideline("recover", env=clock(ahead_s)).code == 0
    assert job.is_settled()


def test_lease_of_another_machine_is_judged_by_the_observers_own_clock(job: Job) -> None:
    job.write(writer={"lease_ttl": "12s"})
    works = job.start("run", "--continuous", env=clock(-HOUR_S))
    wait_for(lambda: bool(job.ids()), works)
    # A live writer keeps its lease although its times are an hour old.
    second = job.tideline("run", env=clock(HOUR_S))
    assert second.code == 3, second.err
    works.send_signal(signal.SIGTERM)
    assert finish(works).code == 0
    assert job.ids() == Counter(range(100))


@pytest.mark.parametrize("point", ["task-written", "manifest", "decided", "part-committing"])
def test_two_recoveries_at_once_and_one_of_them_killed_end_as_one(job: Job, point: str) -> None:
    draw = random.Random(point)
    crash_points = ["lease-taken", "decided", "part-committing", "part-committed", "completed", "part-aborted"]
    job.killed_at(point)
    for _ in range(3):
        both = [
            job.start("recover", "--force", env={"TIDELINE_CRASH_AT": draw.choice(crash_points)}),
            job.start("recover", "--force"),
        ]
        ended = [finish(process) for process in both]
        assert ended[0].code in (0, 3, 7, -signal.SIGKILL), ended[0].err
        assert ended[1].code in (0, 3, 7), ended[1].err
    assert job.tideline("recover").code == 0
    assert job.is_settled()
    assert job.tideline("run").code == 0
    assert job.ids() == Counter(range(100))
    assert job.is_settled()


@pytest.mark.parametrize("point", ["task-started", "task-written", "part-prepared"])
def test_writer_that_loses_its_lease_while_it_writes_stops_before_it_decides(job: Job, point: str) -> None:
    job.write(writer={"lease_ttl": "1h"})
    writes = job.start("run", env={"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(writes)
    assert job.tideline("recover", "--force").code == 0
    job.append("b.jsonl", range(100, 150))
    assert job.tideline("run").code == 0
    writes.send_signal(signal.SIGCONT)
    fenced = finish(writes)
    assert fenced.code == 7, fenced.err
    assert job.ids() == Counter(range(150))
    assert job.tideline("recover").code == 0
    assert job.is_settled()


@pytest.mark.parametrize("point", ["task-started", "manifest"])
def test_writer_goes_on_behind_an_epoch_that_the_one_before_it_decided_after_all(job: Job, point: str) -> None:
    job.write(writer={"lease_ttl": "1s"})
    before = job.start("run", env={"TIDELINE_FREEZE_AT": "planned"})
    wait_until_frozen(before)
    writer = job.start("run", env={"TIDELINE_FREEZE_AT": point})
    wait_until_frozen(writer)
    before.send_signal(signal.SIGCONT)
    woken = finish(before)
    assert woken.code in (0, 7), woken.err
    assert job.ids() == Counter(range(100)), "it has decided the epoch that the other one has open"
    job.append("b.jsonl", range(100, 150))
    writer.send_signal(signal.SIGCONT)
    ended = finish(writer)
    assert ended.code == 0, ended.err
    assert f"process {before.pid} on " in ended.err and "decided it first" in ended.err
    assert job.ids() == Counter(range(150))
    assert job.tideline("recover").code == 0
    assert job.is_settled()
