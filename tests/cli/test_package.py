"""`tideline package`: a zip that runs as the installation does, and is the same wherever it is made."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, distributions, version
from pathlib import Path

import pytest

from ingest.config.registry import SINK_GROUP
from tests.cli.conftest import Call
from tests.job import ROOT, Job
from tests.real.spark_cluster import executor_python


@pytest.fixture
def package(call: Call, tmp_path: Path) -> Path:
    path = tmp_path / "packed" / "tideline.zip"
    done = call("package", "-o", path)
    assert done.code == 0, done.err
    assert "spark-submit --master URL --py-files" in done.out
    return path


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with the packages of this one, without Tideline."""
    return executor_python(tmp_path / "python")


def run_from(package: Path, python: Path, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(package)}
    return subprocess.run([python, *command], env=environment, cwd=cwd, capture_output=True, text=True)


def test_package_runs_commands_where_tideline_is_not_installed(package: Path, bare_python: Path, job: Job) -> None:
    assert job.tideline("run").code == 0
    without = run_from(Path(), bare_python, "-m", "ingest", "--help", cwd=job.folder)
    assert "No module named ingest" in without.stderr
    shown = run_from(package, bare_python, package.with_name("tideline_main.py"), "show", job.file, cwd=job.folder)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == job.tideline("show").out


def test_package_made_by_a_package_is_the_same_to_the_byte(package: Path, bare_python: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    done = run_from(package, bare_python, "-m", "ingest", "package", "-o", again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert again.read_bytes() == package.read_bytes()


def test_package_holds_the_code_with_its_resources_and_nothing_that_was_compiled(package: Path) -> None:
    with zipfile.ZipFile(package) as packed:
        names = packed.namelist()
    assert {"timeline/errors.py", "sinks/delta/sink.py", "ingest/execution/spark/log4j2.properties"} <= set(names)
    assert len(names) == len(set(names))
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    code = [path for folder in ("timeline", "sinks", "ingest", "tideline") for path in (ROOT / folder).rglob("*.py")]
    assert {path.relative_to(ROOT).as_posix() for path in code} <= set(names)


def test_package_says_by_itself_which_sinks_it_has(package: Path) -> None:
    (found,) = distributions(path=[str(package)])
    assert found.version == version("tideline")
    assert {point.name: point.value for point in found.entry_points.select(group=SINK_GROUP)} == {
        point.name: point.value for point in distribution("tideline").entry_points.select(group=SINK_GROUP)
    }


def test_what_asks_an_executor_needs_nothing_but_python(package: Path, tmp_path: Path) -> None:
    program = "import ingest.execution.spark.executors, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(package)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) - sys.stdlib_module_names <= {"__main__", "ingest"}


def test_tasks_import_no_more_than_executors_are_asked_for(package: Path, tmp_path: Path) -> None:
    modules = (
        "ingest.execution.spark.executors, ingest.execution.task, "
        "ingest.sources.files.source, ingest.sources.decode.json.decoder, "
        "sinks.parquet.writer"
    )
    program = f"import {modules}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = run_from(package, Path(sys.executable), "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    needless = {"deltalake", "fastavro", "yaml", "typer", "rich", "s3fs", "confluent_kafka", "pandas"}
    assert not needless & set(done.stdout.split())


def test_package_that_spark_would_not_put_on_the_path_is_refused(call: Call, tmp_path: Path) -> None:
    done = call("package", "-o", tmp_path / "tideline.whl")
    assert done.code == 2
    assert "end in .zip" in done.err
    assert not list(tmp_path.iterdir())
