"""A target that loses prepared transactions, beside one that does not, and a crash at every point of the rewrite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from ingest.check_store.numbers import NumberSource
from ingest.check_store.processes import CrashAt, faults, run_process
from sinks.base import Sink
from sinks.memory import MemorySink
from tests.transaction_sink import LOSE, TransactionSink, committed, still_told, tell
from timeline.failpoints import CRASH_POINTS
from timeline.stores.base import ObjectStore
from timeline.stores.memory import MemoryStore

SOURCE = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)
"""Two epochs of two shards; every second record is malformed."""

DECIDED = CRASH_POINTS[CRASH_POINTS.index("decided") : CRASH_POINTS.index("rollback-requested")]
"""Crash points after the decision: a crash there leaves an epoch to apply."""


@dataclass
class LosingLake:
    """A table, a target with transactions and a quarantine. See `ingest.check_store.processes.Lake`."""

    losses: int
    keyed_first: bool = False
    table: MemoryStore = field(default_factory=lambda: MemoryStore("memory://table"))
    keyed: MemoryStore = field(default_factory=lambda: MemoryStore("memory://keyed"))
    quarantine: MemoryStore = field(default_factory=lambda: MemoryStore("memory://quarantine"))

    def __post_init__(self) -> None:
        tell(self.keyed, LOSE, self.losses)

    def timeline_store(self) -> ObjectStore:
        return self.table

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        targets: list[Sink] = [
            MemorySink("table", "app", reach_store(self.table)),
            TransactionSink("keyed", reach_store(self.keyed)),
        ]
        return (
            *(targets[::-1] if self.keyed_first else targets),
            MemorySink("quarantine", "app", reach_store(self.quarantine)),
        )

    def rows(self) -> list[int]:
        return sorted(MemorySink("table", "app", self.table).read()["number"].to_pylist())

    def rejected(self) -> list[int]:
        return sorted(MemorySink("quarantine", "app", self.quarantine).read()["offset"].to_pylist())

    def orphans(self) -> Sequence[str]:
        return TransactionSink("keyed", self.keyed).transactions("")


def crash_and_run(lake: LosingLake, crashes: Sequence[CrashAt]) -> int:
    """Run processes that crash in turn, then one that does not; returns the number of crashes."""
    died = sum(not run_process(lake, SOURCE, number, crash) for number, crash in enumerate(crashes))
    assert run_process(lake, SOURCE, 99)
    assert faults(lake, SOURCE) == []
    assert committed(lake.keyed) == SOURCE.accepted
    assert still_told(lake.keyed, LOSE) == 0
    return died


@pytest.mark.parametrize("losses", [1, 2])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_anywhere_while_it_is_written_again_leaves_every_row_once(point: str, losses: int) -> None:
    for count, keyed_first in itertools.product((1, 2, 3), (False, True)):
        crash_and_run(LosingLake(losses, keyed_first), [CrashAt(point, count)])


@pytest.mark.parametrize("first", DECIDED)
def test_a_crash_of_the_process_that_takes_over_leaves_every_row_once(first: str) -> None:
    for second, count in itertools.product(CRASH_POINTS, (1, 2)):
        crash_and_run(LosingLake(2), [CrashAt(first), CrashAt(second, count)])


def test_points_of_a_transaction_are_passed_again_when_it_is_written_again() -> None:
    """The crash matrix is effective: the process that takes over dies in the middle of the rewrite."""
    for point in ("begun", "transaction-begun", "task-written", "written", "part-prepared", "primary-committed"):
        lake = LosingLake(2)
        assert crash_and_run(lake, [CrashAt("applying"), CrashAt(point)]) == 2
