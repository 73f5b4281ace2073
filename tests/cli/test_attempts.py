"""A task that runs more than once (a retry, a speculative copy, a late straggler) adds no row and leaves no file."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from ingest.cli.console import ProgressLine
from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode
from ingest.execution.runner import LocalRunner
from ingest.execution.task import TaskReport, TaskSpec, run_task
from sinks.base import TaskAttempt
from tests.cli.conftest import Call
from tests.job import Job


class SpeculativeRunner(LocalRunner):
    """Runs each task twice to its end and accepts one of the reports; keeps the task specs."""

    def __init__(self, accepted: int) -> None:
        self.accepted = accepted
        self.specs: list[TaskSpec] = []

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        self.specs += specs
        attempts = [
            [run_task(spec, TaskAttempt(number, 0, 2 * number + copy)) for copy in (0, 1)]
            for number, spec in enumerate(specs)
        ]
        return [reports[self.accepted] for reports in attempts]


def ingest(file: Path, runner: SpeculativeRunner) -> None:
    progress = ProgressLine(Console(stderr=True, force_terminal=False))
    opened = open_timeline(load_config(file))
    IngestLoop(opened, lambda: runner, mode=Mode.ONCE, stop=threading.Event(), listeners=(progress,)).run()


@pytest.mark.parametrize("accepted", [0, 1])
def test_losing_copy_of_a_task_is_removed_before_the_commit(job: Job, accepted: int) -> None:
    ingest(job.file, SpeculativeRunner(accepted))
    assert job.ids() == Counter(range(100))
    assert job.is_settled()


def test_copy_that_ends_after_the_commit_is_removed_by_the_next_start(call: Call, job: Job) -> None:
    runner = SpeculativeRunner(0)
    ingest(job.file, runner)
    run_task(runner.specs[0], TaskAttempt(0, 0, 9))
    assert job.stray_files() and job.ids() == Counter(range(100)), "written, and not visible"
    ended = call("recover", job.file)
    assert ended.code == 0
    assert "looked after late files of 1 settled instant" in ended.out
    assert job.ids() == Counter(range(100))
    assert job.is_settled()
