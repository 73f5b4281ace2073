"""Every crash point, alone and in pairs: after the next start every row exists once, and no orphan remains."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest.check_store.lakes import DeltaLake, ObjectLake
from ingest.check_store.numbers import NumberSource
from ingest.check_store.processes import CrashAt, Lake, faults, run_process
from timeline.failpoints import COMMON_POINTS
from timeline.stores.memory import MemoryStore

SOURCE = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)
"""Two epochs of two shards; every second record is malformed."""


def memory_lake() -> Lake:
    return ObjectLake(MemoryStore("memory://table"), MemoryStore("memory://quarantine"))


def crash_and_recover(lake: Lake, crashes: Sequence[CrashAt]) -> int:
    """Run processes that crash in turn, then one that does not; returns the number of crashes."""
    died = 0
    for number, crash in enumerate(crashes):
        died += not run_process(lake, SOURCE, number, crash)
    assert run_process(lake, SOURCE, 99)
    assert faults(lake, SOURCE) == []
    return died


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", COMMON_POINTS)
def test_a_crash_at_any_point_leaves_every_row_once(point: str, count: int) -> None:
    crash_and_recover(memory_lake(), [CrashAt(point, count)])


@pytest.mark.parametrize("first", COMMON_POINTS)
def test_a_crash_of_the_recovery_of_a_crash_leaves_every_row_once(first: str) -> None:
    for second, count in itertools.product(COMMON_POINTS, (1, 2)):
        crash_and_recover(memory_lake(), [CrashAt(first, count), CrashAt(second)])


def test_every_crash_point_is_passed_by_some_process() -> None:
    passed = set()
    for first, second in itertools.product(("begun", "manifest", "decided"), COMMON_POINTS):
        if crash_and_recover(memory_lake(), [CrashAt(first), CrashAt(second)]) == 2:
            passed.add(second)
    assert passed == set(COMMON_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("point", COMMON_POINTS)
def test_a_crash_at_any_point_leaves_every_row_once_in_delta(point: str, tmp_path: Path) -> None:
    for count in (1, 2):
        crash_and_recover(DeltaLake(str(tmp_path / str(count))), [CrashAt(point, count)])


@pytest.mark.slow
@pytest.mark.parametrize("first", COMMON_POINTS)
def test_a_crash_of_the_recovery_of_a_crash_leaves_every_row_once_in_delta(first: str, tmp_path: Path) -> None:
    for second in COMMON_POINTS:
        crash_and_recover(DeltaLake(str(tmp_path / second)), [CrashAt(first), CrashAt(second)])
