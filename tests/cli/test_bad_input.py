"""Every mistake gets one message that says what to do, the documented exit code, and no traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Call
from tests.job import SPARK, Job

JOB = """
name: cli
source: {type: files, path: logs/*.jsonl, format: json}
targets: [{type: delta, path: lake}]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [unclosed\nfoo: {", "job.yaml: line 2: not valid YAML"),
        ("", "a job file is a mapping"),
        ("- a\n- b\n", "a job file is a mapping"),
        ("\x00", "not valid YAML"),
        (JOB + "targetz: []\n", "line 5: targetz: unknown key; did you mean 'targets'?"),
        (JOB.replace("format: json", "format: jsn"), "source.format"),
        (JOB + "epoch: {interval: soon}\n", "epoch.interval: a duration of 0 or more is allowed"),
        (JOB + "writer: {lease_ttl: 10ms}\n", "writer.lease_ttl: 1s to 1d is allowed"),
        (JOB + "lineage: perhaps\n", "lineage: true or false is allowed (found 'perhaps')"),
        (JOB + "partition_by: [year(ts)]\n", "partition_by[0]"),
        (JOB + "schema: {id: number}\n", "schema.id"),
        (JOB.replace("logs/*.jsonl", "${TIDELINE_UNSET}"), 'inside of { } a reference needs quotes: "${NAME}"'),
        (
            JOB.replace("logs/*.jsonl", '"${TIDELINE_UNSET}"'),
            "environment variable TIDELINE_UNSET is not set",
        ),
        (JOB.replace("delta", "deltaa"), "targets[0].type: did you mean 'delta'?"),
        (JOB.replace("path: lake", "path: gs://bucket/lake"), "allowed are local paths and s3:// URLs"),
        (JOB.replace("logs/*.jsonl", "lake"), "would read what the job writes"),
    ],
)
def test_wrong_job_file_ends_with_code_2_before_anything_starts(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    for command in ("run", "recover", "show"):
        ended = call(command, "job.yaml")
        assert (ended.code, ended.out) == (2, "")
        assert said in ended.err
        assert ended.err.startswith("tideline: job.yaml")
    assert os.listdir() == ["job.yaml"]


def test_every_problem_of_a_job_file_is_told_at_once(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("json}", "jsn}") + "epoch: {interval: -1}\nspark: {masters: x}\n")
    ended = call("run", file)
    assert "3 problems, nothing was started" in ended.err
    assert len(ended.err.splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument 'CONF'"),
        (["ingest"], "No such command 'ingest'"),
        (["run", "job.yaml", "--onec"], "No such option: --onec"),
        (["show", "job.yaml", "--limit", "-1"], "'--limit'"),
        (["run", "nowhere.yaml"], "nowhere.yaml: No such file or directory; give the path of a job file"),
        (["run", "."], ".: Is a directory; give the path of a job file"),
    ],
)
def test_wrong_command_ends_with_code_2(call: Call, arguments: list[str], said: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert said in ended.err


def test_unknown_crash_point_is_a_wrong_command(call: Call, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_CRASH_AT", "lunch")
    ended = call("show", job.file)
    assert ended.code == 2
    assert "TIDELINE_CRASH_AT: crash point 'lunch': known are" in ended.err


def test_source_that_does_not_exist_is_named(call: Call, job: Job) -> None:
    job.write(source=job.source(path=f"{job.folder}/nowhere"))
    ended = call("run", job.file)
    assert ended.code == 4
    assert f"{job.folder}/nowhere does not exist" in ended.err


@pytest.mark.parametrize("there", ["nothing", "directory", "dangling link", "empty file"])
def test_source_without_records_is_no_error_but_a_warning(call: Call, job: Job, there: str) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    place = job.folder / "logs" / "x.jsonl"
    match there:
        case "directory":
            place.mkdir()
        case "dangling link":
            place.symlink_to("nowhere")
        case "empty file":
            place.touch()
    ended = call("run", job.file)
    assert ended.code == 0
    assert "cli: done: nothing new" in ended.out
    assert "is this the place that is meant?" in ended.err


def test_schema_that_cannot_be_inferred_asks_for_one(call: Call, job: Job) -> None:
    job.write(schema=None)
    (job.folder / "logs" / "a.jsonl").write_text("not json\n")
    ended = call("run", job.file)
    assert ended.code == 4
    assert "write schema in the job file" in ended.err


@pytest.mark.parametrize("protocol", ["nonsense", "gs"])
def test_source_on_an_unknown_store_is_refused(call: Call, job: Job, protocol: str) -> None:
    job.write(source=job.source(path=f"{protocol}://bucket/logs"))
    ended = call("run", job.file)
    assert ended.code == 4
    assert f"{protocol}://bucket/logs cannot be opened" in ended.err


@pytest.mark.parametrize("lake", ["afile", "afile/below", "/proc/lake"])
def test_lake_that_cannot_be_written_ends_with_code_6(call: Call, job: Job, lake: str) -> None:
    (job.folder / "afile").touch()
    path = job.folder / lake  # an absolute path stays as it is
    job.write(targets=[{"type": "delta", "path": str(path)}])
    ended = call("run", job.file)
    assert ended.code == 6
    assert str(path) in ended.err


def table_of(job: Job, columns: dict[str, pa.DataType], partition_by: list[str] | None = None) -> None:
    empty = pa.table({name: pa.array([], kind) for name, kind in columns.items()})
    write_deltalake(job.lake, empty, partition_by=partition_by)


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        ({"id": pa.string(), "host": pa.string()}, None, "id"),
        ({"id": pa.int64()}, None, "host"),
        ({"id": pa.int64(), "host": pa.string()}, ["host"], "partition"),
    ],
)
def test_table_that_does_not_fit_is_refused_with_the_difference(
    call: Call, job: Job, columns: dict[str, pa.DataType], partition_by: list[str] | None, said: str
) -> None:
    table_of(job, columns, partition_by)
    ended = call("run", job.file)
    assert ended.code == 5
    assert said in ended.err and str(job.lake) in ended.err
    assert DeltaTable(job.lake).version() == 0


def test_hudi_table_of_another_writer_is_not_taken_over(call: Call, job: Job) -> None:
    (job.lake / ".hoodie").mkdir(parents=True)
    properties = job.lake / ".hoodie" / "hoodie.properties"
    properties.write_text("hoodie.table.name=theirs\nhoodie.table.version=6\n")
    for command in ("run", "recover", "show"):
        ended = call(command, job.file)
        assert ended.code == 6
        assert "was not created by Tideline" in ended.err and f"file://{job.lake}" in ended.err
    assert os.listdir(job.lake / ".hoodie") == ["hoodie.properties"]


@pytest.mark.parametrize("missing", ["PATH", "JAVA_HOME", "too old"])
def test_missing_java_says_what_to_install(job: Job, missing: str) -> None:
    bare = job.folder / "bin"
    bare.mkdir()
    for name in ("bash", "sh", "dirname", "env"):
        (bare / name).symlink_to(
            next(place for place in (Path("/bin", name), Path("/usr/bin", name)) if place.exists())
        )
    changes = {"PATH": str(bare), "JAVA_HOME": ""}
    if missing != "PATH":
        changes["JAVA_HOME"] = str(job.folder / "java")
    if missing == "too old":
        java = job.folder / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(
            "#!/bin/sh\necho 'java.lang.UnsupportedClassVersionError: class file version 61.0' >&2\nexit 1\n"
        )
        java.chmod(0o755)
    ended = job.tideline("run", "--log-json", program=SPARK, env=changes)
    assert ended.code == 8
    last = json.loads(ended.err.splitlines()[-1])
    assert last["level"] == "ERROR"
    assert "Spark's JVM does not start" in last["message"]
    assert "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)" in last["message"]
    assert not job.pending()


def test_source_whose_store_does_not_answer_is_named(job: Job, call: Call) -> None:
    source = {"type": "files", "path": "s3://lake/logs/*.jsonl", "format": "json"}
    storage = {
        "endpoint_url": "http://127.0.0.1:1",
        "key": "a-key",
        "secret": "a-secret",
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    job.write(source=source, targets=[{"type": "delta", "path": f"{job.folder}/lake"}], storage=storage)
    ended = call("run", job.file)
    assert ended.code == 4, ended.err
    assert 'lake/logs cannot be listed: Could not connect to the endpoint URL: "http://127.0.0.1:1/' in ended.err
