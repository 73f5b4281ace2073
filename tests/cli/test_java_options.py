"""JVM options of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.execution.spark.runner import java_options
from tests.job import Job
from timeline.errors import SparkJobError

ONE_COMPILER = "-XX:TieredStopAtLevel=1"


def test_a_jvm_that_only_hands_bytes_on_does_without_its_second_compiler() -> None:
    assert ONE_COMPILER in java_options("", runs_queries=False).split()
    assert ONE_COMPILER not in java_options("", runs_queries=True).split()


def test_the_options_of_a_job_come_last_and_win() -> None:
    for runs_queries in (False, True):
        options = java_options("-XX:TieredStopAtLevel=4 -Dlog4j2.configurationFile=mine", runs_queries=runs_queries)
        assert options.split()[-2:] == ["-XX:TieredStopAtLevel=4", "-Dlog4j2.configurationFile=mine"]
        assert any(option.endswith("log4j2.properties") for option in options.split())


@pytest.mark.parametrize("transform", [None, "SELECT id FROM source"])
def test_only_a_job_with_a_query_has_spark_look_at_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: str | None
) -> None:
    job = Job(tmp_path)
    job.write(transform=transform)
    job.append("a.jsonl", range(3))
    told: list[bool] = []

    class Noting:
        def __init__(self, *given: object, runs_queries: bool) -> None:
            told.append(runs_queries)
            raise SparkJobError("that is all")

    monkeypatch.setattr("ingest.execution.spark.runner.SparkRunner", Noting)
    ended = CliRunner().invoke(app, ["run", str(job.file), "--once"])
    assert ended.exit_code != 0
    assert told == [transform is not None]
