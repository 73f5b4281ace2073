"""How an epoch's tasks are run: the protocol, and the runner that needs no engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from ingest.task import TaskReport, TaskSpec, run_task
from sinks.base import TaskAttempt
from timeline.errors import StoppedError


class Runner(Protocol):
    """Runs tasks somewhere and brings back one report for each, of the attempt that counts."""

    @property
    def slots(self) -> int:
        """Tasks that run at once."""

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """Run all tasks; the engine may run a task several times, only the returned reports count.

        Raises:
            StoppedError: `stop` was set while tasks were running; they were cancelled.
        """

    def close(self) -> None:
        """Give back what the runner holds."""


class LocalRunner:
    """Runs tasks one after another in this process; nothing is retried."""

    slots = 1

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner."""
        reports: list[TaskReport] = []
        for number, spec in enumerate(specs):
            if stop.is_set():
                raise StoppedError("stopped before the epoch's tasks were done")
            reports.append(run_task(spec, TaskAttempt(number, 0, 0)))
        return reports

    def close(self) -> None:
        """See Runner; nothing is held."""
