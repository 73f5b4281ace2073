"""Closed pipes and deleted working directories: at most one line, and the conventional exit code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.job import LOCAL, ROOT, Finished, Job


def run_gone(job: Job, *arguments: str | Path) -> Finished:
    """Run a command in a directory that is deleted before the start."""
    gone = job.folder / "gone"
    gone.mkdir(exist_ok=True)
    script = 'rmdir "$PWD" && exec "$@"'
    command = ["sh", "-c", script, "sh", *LOCAL, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=gone, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return Finished(done.returncode, done.stdout, done.stderr)


def run_unheard(job: Job, *arguments: str | Path, stream: str = "stdout") -> Finished:
    """Run a command whose stdout or stderr is a closed pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write_end}
    command = [*LOCAL, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, timeout=240, check=False, **streams)  # type: ignore[call-overload]
    os.close(write_end)
    return Finished(done.returncode, done.stdout or "", done.stderr or "")


@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "--json"], ["watch", "--once"], ["watch", "--json"], ["offsets"], ["fsck"]]
)
def test_a_reader_that_goes_ends_a_command_without_noise(job: Job, arguments: list[str]) -> None:
    command, *options = arguments
    ended = run_unheard(job, command, job.file, *options)
    assert (ended.code, ended.err) == (141, "")


def test_a_job_goes_on_though_nobody_reads_what_it_logs(job: Job) -> None:
    ended = run_unheard(job, "run", job.file, stream="stderr")
    assert ended.code == 0 and "100 rows committed" in ended.out
    assert not job.pending() and job.ids().total() == 100


def test_a_removed_directory_does_not_keep_commands_with_whole_paths_from_working(job: Job) -> None:
    for command in ("run", "show", "offsets", "fsck"):
        ended = run_gone(job, command, job.file)
        assert ended.code == 0, ended.err
    assert job.ids().total() == 100


def test_a_relative_path_in_a_removed_directory_is_named_in_one_line(job: Job) -> None:
    job.write(targets=[{"type": "delta", "path": "lake"}])
    for arguments in (["run", "job.yaml"], ["show", job.file]):
        ended = run_gone(job, *arguments)
        assert ended.code == 2
        (line,) = ended.err.splitlines()
        assert "the current directory was removed" in line and "give the whole path" in line


@pytest.mark.parametrize("arguments", [["demo"], ["package"], ["package", "-o", "made/tideline.zip"]])
def test_what_is_written_to_a_removed_directory_is_named_in_one_line(job: Job, arguments: list[str]) -> None:
    ended = run_gone(job, *arguments)
    assert ended.code == 2, ended.err
    (line,) = ended.err.splitlines()
    assert "the current directory was removed" in line and "nothing is lost" not in line


def test_a_report_is_a_page_and_no_picture(job: Job, call: Call) -> None:
    ended = call("report", job.file, "-o", job.folder / "report.png")
    assert ended.code == 2 and "its name ends in .html or .htm" in ended.err
    assert not (job.folder / "report.png").exists()
