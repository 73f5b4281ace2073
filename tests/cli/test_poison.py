"""A record that ends its decoder fails two starts; the third quarantines it, in the driver and on Spark."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.job import Finished, Job
from tests.poison import CRASH, HANG, MEMORY
from tests.waiting import wait_for
from timeline.instant import Action, State

POISONED = (sys.executable, "-m", "tests.cli.poisoned_tideline")
DRIVER = {"master": "local[1]", "small_epochs": "driver"}
SPARK = {"master": "local[2,1]", "small_epochs": "executors"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.close()


def run(job: Job) -> Finished:
    """Start the job and wait for its end, whatever its exit code."""
    process = job.start("run", program=POISONED)
    out, err = process.communicate(timeout=240)
    return Finished(process.wait(), out, err)


def killed_in_its_epoch(job: Job) -> None:
    """Start a hanging job and kill it in its epoch, like an operator."""
    before = {instant.time for instant in job.pending()}
    process = job.start("run", program=POISONED)

    def is_reading() -> bool:
        # A requested epoch has read nothing yet, nor has the rollback of the previous one.
        commits = (each for each in job.pending() if each.action is Action.COMMIT and each.state is State.INFLIGHT)
        return any(each.time not in before for each in commits)

    wait_for(is_reading, process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def poisoned(job: Job, *poisons: str, **changes: Any) -> None:
    job.write(**changes)
    job.append("a.jsonl", range(20))
    with (job.folder / "logs" / "a.jsonl").open("a") as out:
        out.writelines(f'{{"id":{100 + number},"host":"{poison}"}}\n' for number, poison in enumerate(poisons))
    job.append("a.jsonl", range(20, 40))


def rejected(job: Job) -> Mapping[bytes, str]:
    table = job.table("lake_quarantine")
    assert table is not None
    rows = table.to_pyarrow_table(columns=["raw", "reason"]).to_pylist()
    return {row["raw"]: row["reason"] for row in rows}


def line(number: int, poison: str) -> bytes:
    return f'{{"id":{number},"host":"{poison}"}}'.encode()


def test_record_that_kills_the_driver_is_quarantined_at_the_third_start_and_the_job_goes_on(job: Job) -> None:
    poisoned(job, CRASH, spark=DRIVER)
    assert run(job).code == -signal.SIGSEGV
    assert run(job).code == -signal.SIGSEGV
    third = run(job)
    assert third.code == 0, third.err
    assert "a crash ended 2 epochs from these offsets" in third.err
    assert sorted(job.ids().elements()) == [*range(40)]
    assert rejected(job) == {line(100, CRASH): "crashed the decoder (signal 11)"}
    job.append("a.jsonl", range(40, 50))
    after = run(job)
    assert after.code == 0 and "a crash ended" not in after.err
    assert sorted(job.ids().elements()) == [*range(50)]


def test_record_that_hangs_the_driver_is_quarantined_once_the_job_was_killed_twice(job: Job) -> None:
    poisoned(job, HANG, spark=DRIVER)
    killed_in_its_epoch(job)
    killed_in_its_epoch(job)
    third = run(job)
    assert third.code == 0, third.err
    assert sorted(job.ids().elements()) == [*range(40)]
    assert rejected(job) == {line(100, HANG): "crashed the decoder (no answer in 3 s)"}


def test_record_that_eats_the_drivers_memory_is_quarantined_at_the_third_start(job: Job) -> None:
    poisoned(job, MEMORY, spark=DRIVER)
    assert run(job).code != 0
    assert run(job).code != 0
    assert run(job).code == 0
    assert sorted(job.ids().elements()) == [*range(40)]
    assert rejected(job) == {line(100, MEMORY): "crashed the decoder (out of memory)"}


@pytest.mark.spark
@pytest.mark.parametrize("more", [{}, {"transform": "SELECT id, upper(host) AS host FROM source"}])
def test_records_that_end_sparks_workers_are_quarantined_at_the_third_start(job: Job, more: Mapping[str, Any]) -> None:
    poisoned(job, CRASH, HANG, MEMORY, spark=SPARK, **more)
    for _ in range(2):
        assert run(job).code == 8
    third = run(job)
    assert third.code == 0, third.err
    assert sorted(job.ids().elements()) == [*range(40)]
    assert rejected(job) == {
        line(100, CRASH): "crashed the decoder (signal 11)",
        line(101, HANG): "crashed the decoder (no answer in 3 s)",
        line(102, MEMORY): "crashed the decoder (out of memory)",
    }
