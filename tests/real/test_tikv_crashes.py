"""A job with a TiKV target that dies at every crash point, alone and beside a Delta table: every row exists once.

Processes die as in `tests/crash`, on a real PD and a store that speaks TiKV's protocol. With ``insert`` a row that is
written twice is refused and quarantined, so both modes are tested.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from ingest.check_store.lakes import DeltaLake
from ingest.check_store.numbers import NumberSource
from ingest.check_store.processes import CrashAt, run_process
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_lake import TikvLake, verdict
from timeline.active import ActiveTimeline
from timeline.failpoints import CRASH_POINTS
from timeline.instant import Action

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOURCE = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)
"""Two epochs of two shards with the same numbers; every second record is malformed."""

OF_ROLLBACKS = CRASH_POINTS[CRASH_POINTS.index("rollback-requested") : CRASH_POINTS.index("lease-taken")]

ALONE, BESIDE = "alone", "beside Delta"
MakeLake: TypeAlias = Callable[[str, str], TikvLake]


@pytest.fixture
def make_lake(tikv: TikvCluster, tmp_path: Path) -> MakeLake:
    """Creates lakes with prefixes of their own; with ``insert`` one of the numbers already exists."""
    numbers = itertools.count()

    def make(mode: str, place: str) -> TikvLake:
        number = next(numbers)
        beside = DeltaLake(str(tmp_path / str(number))) if place == BESIDE else None
        return TikvLake(tuple(tikv.pd), mode, (1,) if mode == "insert" else (), beside, is_first=number % 2 == 1)

    return make


def crash_and_run(lake: TikvLake, crashes: Sequence[CrashAt]) -> int:
    """Run processes that die one after the other, then one that survives; returns how many died."""
    died = sum(not run_process(lake, SOURCE, number, crash) for number, crash in enumerate(crashes))
    assert run_process(lake, SOURCE, 99)
    assert verdict(lake, SOURCE, lake.existing) == []
    return died


@pytest.mark.parametrize(("mode", "place"), [("upsert", ALONE), ("insert", BESIDE)])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_leaves_every_row_once(make_lake: MakeLake, point: str, mode: str, place: str) -> None:
    for count in (1, 2):
        died = crash_and_run(make_lake(mode, place), [CrashAt(point, count)])
        assert died or count == 2 or point in OF_ROLLBACKS, "a job passes it"


@pytest.mark.parametrize("first", CRASH_POINTS)
def test_a_crash_of_the_recovery_of_a_crash_leaves_every_row_once(make_lake: MakeLake, first: str) -> None:
    draw = random.Random(first)
    for second in draw.sample(CRASH_POINTS, 3):
        crash_and_run(make_lake("insert", ALONE), [CrashAt(first), CrashAt(second)])


@pytest.mark.parametrize("second", OF_ROLLBACKS)
def test_a_crash_in_a_rollback_leaves_no_lock_and_every_row_once(make_lake: MakeLake, second: str) -> None:
    assert crash_and_run(make_lake("insert", BESIDE), [CrashAt("written"), CrashAt(second)]) == 2


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_around_an_epoch_that_the_cluster_lost_leaves_every_row_once(make_lake: MakeLake, point: str) -> None:
    lake = make_lake("insert", BESIDE)
    lake.losses[0] = 1
    crash_and_run(lake, [CrashAt(point, 2)])
    assert lake.losses[0] == 0


def test_a_crash_in_the_middle_of_writing_it_again_leaves_every_row_once(make_lake: MakeLake) -> None:
    """Guards the matrix above: the process that takes over does die while it writes the lost epoch again."""
    for point in ("begun", "transaction-begun", "task-written", "written", "part-prepared", "primary-committed"):
        lake = make_lake("insert", BESIDE)
        lake.losses[0] = 2
        assert crash_and_run(lake, [CrashAt("applying"), CrashAt(point)]) == 2


@pytest.mark.parametrize(("point", "rollbacks"), [("manifest", 1), ("decided", 0)])
def test_an_epoch_that_readers_rolled_back_is_given_up_unless_it_is_decided(
    make_lake: MakeLake, point: str, rollbacks: int
) -> None:
    lake = make_lake("upsert", BESIDE)
    assert not run_process(lake, SOURCE, 0, CrashAt(point))
    lake.expire()
    crash_and_run(lake, [])
    assert len(ActiveTimeline.load(lake.timeline_store()).completed().by_action(Action.ROLLBACK)) == rollbacks


def test_a_rollback_lists_the_transaction_that_went(make_lake: MakeLake) -> None:
    lake = make_lake("upsert", BESIDE)
    assert not run_process(lake, SOURCE, 0, CrashAt("written"))
    (attempt,) = lake.keyed.records.attempts()
    assert run_process(lake, SOURCE, 1)
    (rollback,) = ActiveTimeline.load(lake.timeline_store()).completed().by_action(Action.ROLLBACK)
    assert f"keyed: transaction {attempt.start_ts}".encode() in lake.timeline_store().get(rollback.path)
