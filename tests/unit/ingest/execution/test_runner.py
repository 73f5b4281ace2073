"""An engine is started by the first epoch that needs one, and only once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from ingest.check_store.numbers import NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import Pipeline
from ingest.execution.runner import EngineOnDemand, LocalRunner
from ingest.execution.task import Outputs, TaskReport, TaskSpec
from ingest.sources.base import SplitSize
from sinks.base import WriteReport
from tests.contract.sink_contract import planned, ref
from timeline.epoch import OffsetRange


@dataclass
class Engine(LocalRunner):
    """A local runner that records its calls."""

    ran: list[int] = field(default_factory=list)
    spreads: int = 0
    is_closed: bool = False

    @property
    def slots(self) -> int:  # type: ignore[override]
        return 2

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        self.ran.append(len(specs))
        return super().run(specs, stop)

    def parallel(self, calls: Sequence[object]) -> None:
        self.spreads += 1

    def close(self) -> None:
        self.is_closed = True


class TenRecordsAreWorthATask(NumberSource):
    @property
    def split_size(self) -> SplitSize:
        return SplitSize(smallest=10, largest=1000, overhead=0)


@dataclass
class Counting:
    """A writer that counts rows."""

    rows: int = 0

    def open(self, attempt: object) -> Counting:
        return Counting()

    def write(self, batch: object) -> None:
        self.rows += batch.num_rows  # type: ignore[attr-defined]

    def close(self) -> WriteReport:
        return WriteReport(self.rows, 0, ())

    def abort(self) -> None:
        pass


@dataclass
class World:
    """Started engines, and writes of one epoch through a runner."""

    engines: list[Engine] = field(default_factory=list)

    def start(self) -> Engine:
        self.engines.append(Engine())
        return self.engines[-1]

    def write(self, runner: EngineOnDemand, records: int) -> int:
        pipeline = Pipeline(TenRecordsAreWorthATask({"a": records}, most=records), NUMBER_SCHEMA, False, runner)
        plan = planned(ref(0))
        plan = type(plan)(plan.ref, "job", "me", (OffsetRange("a", 0, records),), (), {}, "token")
        outputs = Outputs((("rows", Counting()),), ("bad", Counting()))
        reports = pipeline.write(plan, outputs, threading.Event())
        return sum((report.reports or {})["rows"].rows for report in reports)


@pytest.fixture
def world() -> World:
    return World()


def test_small_epochs_start_no_engine(world: World) -> None:
    runner = EngineOnDemand(world.start)
    assert [world.write(runner, records) for records in (1, 10)] == [1, 10]
    runner.parallel([lambda: None, lambda: None])
    runner.close()
    assert not world.engines


def test_the_first_larger_epoch_starts_the_engine_and_small_ones_still_do_without(world: World) -> None:
    runner = EngineOnDemand(world.start)
    assert [world.write(runner, records) for records in (5, 11, 5, 30)] == [5, 11, 5, 30]
    assert [engine.ran for engine in world.engines] == [[1, 1]]


def test_what_targets_spread_runs_on_the_engine_once_that_is_there(world: World) -> None:
    runner = EngineOnDemand(world.start)
    world.write(runner, 11)
    runner.parallel([lambda: None])
    runner.close()
    assert [(engine.spreads, engine.is_closed) for engine in world.engines] == [(1, True)]


def test_an_engine_that_does_not_start_is_tried_again_with_the_next_epoch(world: World) -> None:
    def fails() -> Engine:
        raise RuntimeError("no JVM")

    runner = EngineOnDemand(fails)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no JVM"):
            world.write(runner, 11)
    runner.close()
