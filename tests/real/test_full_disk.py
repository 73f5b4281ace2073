"""A full disk at any step of an epoch: one clear message, nothing half visible, exact afterwards."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.job import Job

pytestmark = [pytest.mark.real, pytest.mark.slow]

DISK_KIB = 2_048


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        absent(f"a small disk cannot be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def job(tmp_path: Path, disk: Path) -> Iterator[Job]:
    """A job that has ingested ten rows to the disk, and has a hundred more to ingest."""
    job = Job(tmp_path)
    job.write(
        targets=[{"type": "delta", "path": str(disk / "lake")}],
        quarantine={"path": str(disk / "quarantine")},
    )
    (tmp_path / "lake").symlink_to(disk / "lake")
    (tmp_path / "quarantine").symlink_to(disk / "quarantine")
    job.append("a.jsonl", range(10))
    first = job.tideline("run")
    assert first.code == 0, first.err
    job.append("b.jsonl", range(10, 110), bad=1)
    yield job
    job.close()


@pytest.mark.parametrize("free_kib", [8, 16, 28])
def test_epoch_on_a_full_disk_is_told_and_exact_once_there_is_space(free_kib: int, job: Job, disk: Path) -> None:
    ballast = disk / "ballast"
    fill(ballast, free_kib)
    failed = job.tideline("run")
    assert failed.code == 6, failed.err
    words = failed.err.splitlines()[-1]
    assert "No space left on device" in words and str(disk) in words, words
    assert "the disk is full: free space there, then start again" in words, words
    # All or nothing: the disk may fill up between the commits of two targets, and the epoch is decided by then.
    assert job.ids() in (Counter(range(10)), Counter(range(110)))
    ballast.unlink()
    recovered = job.tideline("recover")
    assert recovered.code == 0, recovered.err
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.ids() == Counter(range(110))
    assert not job.pending() and not job.stray_files() and not job.stray_files("quarantine")


def fill(ballast: Path, free_kib: int) -> None:
    """Fill the disk up to `free_kib` of free space."""
    with ballast.open("wb", buffering=0) as file:
        status = os.statvfs(ballast.parent)
        file.write(bytes(status.f_bavail * status.f_frsize - free_kib * 1024))
