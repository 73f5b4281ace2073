"""Callbacks of whole runs: one call for each completed epoch; no run waits or fails because of one."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.local_tideline import SparkFreeRunner
from tests.job import Job
from tests.watched_run import fails_at, run_watched

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.execution.spark.runner.SparkRunner", SparkFreeRunner)


def keeper(job: Job) -> dict[str, Any]:
    """A callback that appends its input to a file."""
    return {"command": [sys.executable, "-c", KEEP, str(job.folder / "told")], "drain": "60s"}


def told(job: Job) -> list[dict[str, Any]]:
    file = job.folder / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_each_completed_epoch_is_told_once(job: Job, call: Call) -> None:
    job.write(on_commit=keeper(job), source=job.source(max_bytes_per_epoch=1000))
    ended = call("run", job.file)
    assert ended.code == 0
    calls = told(job)
    assert [each["epoch"] for each in calls] == list(range(len(calls))) and len(calls) > 1
    assert sum(each["rows"] for each in calls) == 100
    assert sum(each["rejected"] for each in calls) == 2
    shown = {row["time"]: row for row in call("show", job.file, "--json").json}
    for each in calls:
        assert shown[each["instant"]]["rows"] == each["rows"]
        assert shown[each["instant"]]["offsets"] == {shard: at["until"] for shard, at in each["offsets"].items()}
    assert call("run", job.file).code == 0
    assert len(told(job)) == len(calls), "nothing new, nobody is called"


def test_what_is_rolled_back_is_not_told(job: Job) -> None:
    job.write(on_commit=keeper(job))
    with run_watched(job.file, fails_at("written")):
        pass
    assert told(job) == []


def test_an_epoch_that_the_next_start_completes_is_told_by_it(job: Job) -> None:
    job.write(on_commit=keeper(job))
    with run_watched(job.file, fails_at("applied")):
        pass
    assert told(job) == []
    with run_watched(job.file):
        pass
    (one,) = told(job)
    assert (one["epoch"], one["recovered"], one["rows"]) == (0, True, 100)


def test_a_callback_that_fails_is_one_warning_and_the_run_ends_well(job: Job, call: Call) -> None:
    job.write(on_commit=[{"command": ["false"], "retries": 0}, keeper(job)], metrics={"port": 0})
    ended = call("run", job.file, "--log-json")
    assert ended.code == 0
    warnings = [record for line in ended.err.splitlines() if (record := json.loads(line))["level"] == "WARNING"]
    (warning,) = warnings
    assert warning["message"].startswith("on_commit[0] false was not told of epoch 0 (instant ")
    assert (warning["epoch"], warning["instant"]) == (0, told(job)[0]["instant"])
    assert job.ids() == Counter(range(100))


def test_calls_given_up_are_in_the_metrics(job: Job) -> None:
    job.write(on_commit={"command": ["false"], "retries": 1}, metrics={"port": 0})
    with run_watched(job.file) as run:
        seen = run.scraped
        while not seen("callbacks_total", callback="on_commit[0] false", outcome="given_up"):
            seen = run.scraped
        assert seen("callback_retries_total", callback="on_commit[0] false") == 1
        assert seen("callbacks_total", callback="on_commit[0] false", outcome="delivered") == 0


def test_a_callback_that_hangs_holds_up_the_end_for_its_drain_only(job: Job) -> None:
    job.write(on_commit={"command": ["sleep", "600"], "timeout": "1h", "drain": "0s"})
    with run_watched(job.file) as run:
        assert run.summary is not None and run.summary.epochs == 1
    assert job.ids() == Counter(range(100))


def test_a_program_that_is_not_there_is_refused_before_anything_is_written(job: Job, call: Call) -> None:
    job.write(on_commit={"command": ["no-such-program"]})
    ended = call("run", job.file)
    assert ended.code == 2
    assert "no program 'no-such-program'" in ended.err
    assert not job.lake.exists()
    assert call("show", job.file).code == 0, "a machine that only looks needs no such program"
