"""Rows with keys go through Spark's shuffle: a worker that is killed, a task that fails, parallel calls.

The session lives in a process of its own: `SparkRunner` owns its session, and this process has another one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ingest.config.models import SparkConfig
from ingest.execution.runner import LocalRunner
from ingest.execution.spark.runner import SparkRunner
from ingest.execution.task import TaskReport, TaskSpec
from tests.keyed_sink import KeyRules, Touch
from tests.real.spark_cluster import SparkCluster
from tests.unit.ingest.execution.test_shuffle import World
from timeline.errors import CommitUnknownError, DataError, StoppedError, TargetBusyError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TResult = TypeVar("TResult")
ROOT = Path(__file__).parents[2]
TASKS = ([(0, 3000), (3000, 5000)], [(5000, 9000)], [(9000, 10_000)])

_runners: list[SparkRunner] = []
_progress: list[tuple[int, int]] = []


def start(config: SparkConfig) -> None:
    """In the driver's process: start its session."""
    os.environ["PYTHONPATH"] = str(ROOT)
    _runners.append(SparkRunner("exchange", config, lambda done, tasks: _progress.append((done, tasks))))


def end() -> None:
    """In the driver's process: end its session."""
    _runners.pop().close()


def run(specs: Sequence[TaskSpec]) -> list[TaskReport]:
    """In the driver's process: run tasks."""
    return list(_runners[0].run(specs, threading.Event()))


def run_and_stop(specs: Sequence[TaskSpec], at: str) -> list[tuple[int, int]]:
    """In the driver's process: run tasks until a file exists, then stop; returns the progress."""
    stop = threading.Event()

    def watch() -> None:
        while not Path(at).exists():
            time.sleep(0.05)
        time.sleep(1)
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    with pytest.raises(StoppedError):
        _runners[0].run(specs, stop)
    return _progress


def parallel(calls: Sequence[Callable[[], None]]) -> None:
    """In the driver's process: run calls in parallel."""
    _runners[0].parallel(calls)


@contextlib.contextmanager
def started(config: SparkConfig) -> Iterator[ProcessPoolExecutor]:
    """A process with a session of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(start, config).result()
        yield pool
        pool.submit(end).result()


@pytest.fixture(scope="module")
def driver() -> Iterator[ProcessPoolExecutor]:
    """A driver on this machine; Spark tries a task four times."""
    with started(SparkConfig(master="local[2,4]")) as pool:
        yield pool


def test_the_exchange_through_spark_writes_what_the_one_in_this_process_writes(
    driver: ProcessPoolExecutor, tmp_path: Path
) -> None:
    rules = KeyRules(keys=700, never=frozenset({3}), taken=frozenset({5}))
    here, there = World(tmp_path / "here", rules), World(tmp_path / "there", rules)
    expected = here.commit(LocalRunner().run(here.specs(*TASKS, bad_every=11), threading.Event()))
    reports = driver.submit(run, there.specs(*TASKS, bad_every=11)).result()
    parts = there.commit(reports)
    assert [[count.shard for count in report.counts] for report in reports] == [
        ["shard-0", "shard-0"],
        ["shard-1"],
        ["shard-2"],
        [],
        [],
        [],
    ]
    assert there.keyed.read() == here.keyed.read()
    assert len(there.keyed.read()) == 698
    for name, part in parts.items():
        assert (part.rows, part.dropped, part.rejected) == (
            expected[name].rows,
            expected[name].dropped,
            expected[name].rejected,
        )
    assert there.quarantine.read().sort_by("offset") == here.quarantine.read().sort_by("offset")


def test_a_bucket_whose_worker_is_killed_is_written_again_and_once(driver: ProcessPoolExecutor, tmp_path: Path) -> None:
    world = World(tmp_path, KeyRules(keys=700, taken=frozenset({5}), kill_at=str(tmp_path / "killed")))
    reports = driver.submit(run, world.specs(*TASKS)).result()
    assert (tmp_path / "killed").exists()
    parts = world.commit(reports)
    assert set(world.keyed.read()) == set(range(700)) - {5}
    assert parts["keyed"].rows + parts["keyed"].dropped + parts["keyed"].rejected == 10_000
    assert parts["quarantine"].rows == parts["keyed"].rejected == world.quarantine.read().num_rows


def test_a_row_that_stops_the_job_in_one_task_stops_every_bucket_on_spark(
    driver: ProcessPoolExecutor, tmp_path: Path
) -> None:
    world = World(tmp_path, KeyRules(fail_at=9500, error=DataError))
    reports = driver.submit(run, world.specs(*TASKS)).result()
    assert [report.failure for report in reports] == [None, None] + [("DataError", "cannot stage 9500")] * 4
    assert not world.files("keyed")


def test_one_task_does_both_stages_without_a_shuffle(driver: ProcessPoolExecutor, tmp_path: Path) -> None:
    world = World(tmp_path, KeyRules(keys=700))
    reports = driver.submit(run, world.specs(TASKS[0])).result()
    parts = world.commit(reports)
    assert len(reports) == 2
    (plain,), (keyed,) = world.files("plain"), world.files("keyed")
    assert plain.split("_")[1] == keyed.split("_")[1], "written by one attempt of one task"
    assert len(world.keyed.read()) == 700
    assert parts["keyed"].rows + parts["keyed"].dropped == 5000


def test_spread_calls_are_all_run(driver: ProcessPoolExecutor, tmp_path: Path) -> None:
    driver.submit(parallel, [Touch(str(tmp_path / f"{number}")) for number in range(30)]).result()
    assert len(list(tmp_path.iterdir())) == 30


def test_spread_raises_the_first_error_by_its_class_once_all_calls_have_ended(
    driver: ProcessPoolExecutor, tmp_path: Path
) -> None:
    errors = {3: TargetBusyError, 20: CommitUnknownError}
    calls = [Touch(str(tmp_path / f"{number:02}"), errors.get(number)) for number in range(30)]
    with pytest.raises(TargetBusyError, match="cannot do 03"):
        driver.submit(parallel, calls).result()
    assert len(list(tmp_path.iterdir())) == 30


def test_spread_calls_that_fail_for_another_reason_are_tried_again(driver: ProcessPoolExecutor, tmp_path: Path) -> None:
    calls = [Touch(str(tmp_path / f"{number}"), OSError if number == 3 else None, once=True) for number in range(5)]
    driver.submit(partial(parallel, calls)).result()
    assert len(list(tmp_path.iterdir())) == 5


def test_a_stop_cancels_buckets_that_are_being_written(tmp_path: Path) -> None:
    hang_at = str(tmp_path / "hangs")
    with started(SparkConfig(master="local[2,4]")) as driver:
        specs = World(tmp_path, KeyRules(hang_at=hang_at)).specs(*TASKS)
        progress = driver.submit(run_and_stop, specs, hang_at).result()
    assert progress[-1] == (3, 6)


@pytest.mark.real
def test_a_machine_that_is_lost_with_what_its_tasks_had_sent_leaves_every_row_once(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Its reading tasks run again: their files exist twice until the epoch is prepared."""
    conf = spark_cluster.conf | {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.pyspark.python": sys.executable,
    }
    world = World(tmp_path, KeyRules(700, taken=frozenset({5}), kill_at=str(tmp_path / "killed"), kill_executor=True))
    tasks = [(number, number + 1000) for number in range(0, 8000, 1000)]
    with started(SparkConfig(master=conf.pop("spark.master"), conf=conf)) as driver:
        reports = driver.submit(run, world.specs(*([each] for each in tasks))).result()
    assert (tmp_path / "killed").exists()
    assert len(world.files("plain")) > len(tasks)
    parts = world.commit(reports)
    assert len(world.files("plain")) == len(tasks)
    assert sorted(world.plain.read()["number"].to_pylist()) == list(range(8000))
    assert set(world.keyed.read()) == set(range(700)) - {5}
    assert parts["keyed"].rows + parts["keyed"].dropped + parts["keyed"].rejected == 8000
    assert world.quarantine.read().num_rows == parts["quarantine"].rows == parts["keyed"].rejected
