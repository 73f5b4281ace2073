"""A job from Python, without a job file: run, killed, recovered, displayed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import tideline
from tests.job import ROOT, environment

PROGRAM = """
import sys, tideline
from timeline import failpoints

failpoints.arm_from("decided")
job = tideline.Job(
    name="web",
    source=tideline.files(sys.argv[1] + "/logs/*.jsonl", format="json", close_after="0s"),
    targets=[tideline.delta(sys.argv[1] + "/lake")],
    schema={"id": "bigint"},
)
print(tideline.run(job))
"""


def web(folder: Path) -> tideline.Job:
    return tideline.Job(
        name="web",
        source=tideline.files(f"{folder}/logs/*.jsonl", format="json", close_after="0s"),
        targets=[tideline.delta(f"{folder}/lake")],
        schema={"id": "bigint"},
    )


@pytest.fixture
def job(tmp_path: Path) -> tideline.Job:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\nnonsense\n')
    return web(tmp_path)


def test_a_run_is_a_value_that_shows_itself(job: tideline.Job, tmp_path: Path) -> None:
    result = tideline.run(job)
    assert (result.epochs, result.read, result.rows, result.rejected, result.is_stopped) == (1, 3, 2, 1, False)
    assert str(result).startswith("web: done: 1 epoch, 2 rows accepted, 1 quarantined in ")
    assert "<b>web: done</b>" in result._repr_html_()
    again = tideline.run(job.config())
    assert (again.epochs, again.rows) == (0, 0)
    (epoch,) = tideline.Timeline.load(f"{tmp_path}/lake").to_pandas("epochs").to_dict("records")
    assert (epoch["state"], epoch["rows"], epoch["rejected"]) == ("committed", 2, 1)


def test_a_killed_run_is_recovered_from_another_process(job: tideline.Job, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    would = tideline.recover(job, dry_run=True)
    assert "recommit" in str(would) and "recommit" in would._repr_html_()
    assert not (tmp_path / "lake" / "_delta_log").exists(), "a dry run touches nothing"
    done = tideline.recover(job)
    assert "committed" in done._repr_html_() and not done.is_waiting and not done.losses
    assert sorted(DeltaTable(tmp_path / "lake").to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert tideline.run(job).epochs == 0


def test_python_m_tideline_is_the_command(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tideline", "--help"], env=environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.returncode == 0 and "replay-quarantine" in shown.stdout
