"""A job with a query: settings that its job file may have, and the schema that its timeline keeps."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.config.load import JobConfig, load_config
from ingest.driver.build import build_job, check_result, create_timeline, known_schema, open_timeline
from ingest.execution.runner import LocalRunner
from ingest.execution.task import TASK_REPORT, TaskReport
from ingest.transform.pipeline import open_query
from ingest.transform.query import reports_of
from ingest.transform.session import s3a_settings
from timeline.epoch import EpochRef, Plan
from timeline.errors import ConfigError, InvariantError

JOB = """\
name: queried
source: {type: files, path: logs, format: json}
schema: {ts: timestamp, host: string}
transform: "SELECT ts, upper(host) AS name FROM source;"
partition_by: [date(ts), name]
targets: [{type: delta, path: lake/t}]
"""
RESULT = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())])


def load(folder: Path, text: str) -> JobConfig:
    (folder / "job.yaml").write_text(text.replace("lake/", f"{folder}/lake/"))
    return load_config(folder / "job.yaml", {})


def problems(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value)


def test_partitions_of_a_query_are_not_looked_for_among_the_source_s_columns(tmp_path: Path) -> None:
    config = load(tmp_path, JOB)
    assert config.transform == "SELECT ts, upper(host) AS name FROM source"
    assert "no column 'name'" in problems(tmp_path, JOB.replace("transform", "# transform"))


def test_an_empty_query_is_refused(tmp_path: Path) -> None:
    query = '"SELECT ts, upper(host) AS name FROM source;"'
    assert "SELECT host, status FROM source" in problems(tmp_path, JOB.replace(query, '" ; "'))


def test_a_query_has_one_delta_target(tmp_path: Path) -> None:
    two = JOB.replace("[{type: delta, path: lake/t}]", "[{type: delta, path: lake/t}, {type: delta, path: lake/u}]")
    assert "one target is allowed with transform" in problems(tmp_path, two)
    tikv = JOB.replace("{type: delta, path: lake/t}", "{type: tikv, pd: ['pd:1'], prefix: t, key: [ts]}")
    tikv += "timeline: {path: lake/line}\nquarantine: {type: delta, path: lake/bad}\n"
    assert "targets[0].type: tikv does not take the rows of a query" in problems(tmp_path, tikv)


def test_a_stream_makes_its_rows_itself(tmp_path: Path) -> None:
    stream = JOB.replace("{type: files, path: logs, format: json}", "{type: stream}")
    assert "not for a stream" in problems(tmp_path, stream)


def test_the_columns_of_the_result_are_kept_and_recovery_needs_no_spark_for_them(tmp_path: Path) -> None:
    config = load(tmp_path, JOB)
    opened = open_timeline(config)
    create_timeline(opened, pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("host", pa.string())]), RESULT)
    again = open_timeline(config)
    job = build_job(again)
    target = job.sinks[0]
    assert getattr(target, "schema") == RESULT  # noqa: B009
    assert job.base_target is None, "Hudi's readers would stumble over Spark's names"
    decoded = known_schema(again)
    assert decoded is not None and decoded.names == ["ts", "host"]


def test_a_query_with_other_columns_than_at_birth_is_refused_by_their_names(tmp_path: Path) -> None:
    config = load(tmp_path, JOB)
    decoded = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("host", pa.string())])
    opened = create_timeline(open_timeline(config), decoded, RESULT)
    check_result(opened, decoded, RESULT)
    other = pa.schema([RESULT.field("ts"), pa.field("name", pa.int64()), pa.field("more", pa.string())])
    with pytest.raises(ConfigError) as caught:
        check_result(opened, decoded, other)
    assert "name: the query gives bigint, the timeline was created with string" in str(caught.value)
    assert "more: the query gives string, the timeline was created with none" in str(caught.value)


def test_a_query_that_comes_later_has_to_give_the_rows_that_the_table_has(tmp_path: Path) -> None:
    config = load(tmp_path, JOB)
    decoded = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("host", pa.string())])
    plain = config.model_copy(update={"transform": None, "partition_by": ()})
    opened = replace(create_timeline(open_timeline(plain), decoded), config=config)
    check_result(opened, decoded, decoded)
    with pytest.raises(ConfigError, match="created with string"):
        check_result(opened, decoded, RESULT)


def test_storage_options_have_names_of_hadoop() -> None:
    storage = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1", "client_kwargs": {"region_name": "r"}}
    assert s3a_settings(storage) == {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert s3a_settings({}) == {}, "what is not given is found where Hadoop looks for it"
    assert "Temporary" in s3a_settings({"token": "t"})["fs.s3a.aws.credentials.provider"]
    assert "Anonymous" in s3a_settings({"anon": True})["fs.s3a.aws.credentials.provider"]


def test_a_command_that_starts_no_spark_says_that_the_query_needs_it(tmp_path: Path) -> None:
    decoded = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("host", pa.string())])
    with pytest.raises(ConfigError, match="the query needs Spark"):
        open_query(LocalRunner(), load(tmp_path, JOB), decoded, threading.Event())


@pytest.mark.parametrize("numbers", [[0], [0, 1, 1], [0, 2], []])
def test_an_epoch_needs_exactly_one_report_of_each_task(numbers: list[int]) -> None:
    plan = Plan(EpochRef(3, "20260301101500000", 1), "job", "me", (), (), {}, "token")
    body = TASK_REPORT.dump(TaskReport())
    assert len(reports_of(plan, [("w", 1, body), ("w", 0, body), ("older", 1, body)], "w", 2)) == 2
    with pytest.raises(InvariantError, match="2 tasks decoded rows"):
        reports_of(plan, [("w", number, body) for number in numbers], "w", 2)
