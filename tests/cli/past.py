"""A job with history, made once for all read-only tests: a rollback, a commit and a prepared instant."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.job import Job


def job_with_a_past(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Epoch 0 rolled back, epoch 1 committed, epoch 2 prepared by a killed writer; one file is new."""
    return _made(tmp_path_factory.getbasetemp())


@functools.cache
def _made(base: Path) -> Job:
    folder = base / "job-with-a-past"
    folder.mkdir()
    job = Job(folder)
    job.write()
    job.append("a.jsonl", range(100), bad=2)
    job.killed_at("written")
    assert job.tideline("run").code == 0
    job.append("a.jsonl", range(100, 150))
    job.append("b.jsonl", range(150, 160))
    job.killed_at("manifest")
    job.append("c.jsonl", range(160, 170))
    return job


def objects(folder: Path) -> dict[str, bytes]:
    """Path to content of every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
