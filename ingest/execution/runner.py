"""Runners of an epoch's tasks: the protocol, the runner without an engine, and the one that starts it on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ingest.config.models import JobConfig, SmallEpochs
from ingest.execution.shuffle import ShuffleConfig, exchange_here, has_keys
from ingest.execution.task import TaskReport, TaskSpec, run_task
from sinks.base import TaskAttempt, sequential
from timeline.errors import StoppedError


class Runner(Protocol):
    """Runs tasks and returns one report for each, of the accepted attempt.

    Where an epoch has targets with keys, its tasks have two stages, and the reports of both are returned:
    see `ingest.execution.shuffle`.
    """

    @property
    def slots(self) -> int:
        """Tasks that run at once."""

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """Run all tasks; the engine may run a task several times, only the returned reports count.

        Raises:
            StoppedError: `stop` was set while tasks were running; they were cancelled.
        """

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run independent calls in parallel, wherever tasks run. See `sinks.base.ParallelRunner`.

        Args:
            calls: picklable; each may be run several times.
        """

    def close(self) -> None:
        """Release the runner's resources."""


class LocalRunner:
    """Runs tasks one after another in this process; nothing is retried."""

    slots = 1

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner."""

        def check() -> None:
            if stop.is_set():
                raise StoppedError("stopped before the epoch's tasks were done")

        if has_keys(specs):
            shuffle = ShuffleConfig.over(len(specs), self.slots)
            return exchange_here(specs, shuffle, lambda stage, task: TaskAttempt(task, stage, 0), check=check)
        reports: list[TaskReport] = []
        for number, spec in enumerate(specs):
            check()
            reports.append(run_task(spec, TaskAttempt(number, 0, 0)))
        return reports

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        """See Runner; one after another."""
        sequential(calls)

    def close(self) -> None:
        """See Runner; nothing is held."""


def open_runner(config: JobConfig, start: Callable[[], Runner]) -> Runner:
    """The runner that a job file asks for.

    Args:
        config: the job file; a query (`transform`) always needs the engine.
        start: starts the engine.
    """
    on_demand = config.spark.small_epochs is SmallEpochs.DRIVER and config.transform is None
    return EngineOnDemand(start) if on_demand else start()


class EngineOnDemand:
    """Runs small epochs in this process, and starts the engine for the first that is not small.

    A Spark job takes a tenth of a second before it reads anything; its JVM takes 5 s to start, and 500 MB.
    """

    def __init__(self, start: Callable[[], Runner]) -> None:
        """Start nothing yet.

        Args:
            start: starts the engine; called at most once.
        """
        self._start = start
        self._engine: Runner | None = None
        self._here = LocalRunner()

    @property
    def slots(self) -> int:
        """See Runner; starts the engine."""
        return self._started().slots

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner."""
        is_small = len(specs) == 1 and specs[0].is_small
        return (self._here if is_small else self._started()).run(specs, stop)

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        """See Runner; on the engine if it runs, else in this process."""
        (self._engine or self._here).parallel(calls)

    def close(self) -> None:
        """See Runner."""
        if self._engine is not None:
            self._engine.close()

    def _started(self) -> Runner:
        if self._engine is None:
            self._engine = self._start()
        return self._engine
