"""A job with everything on S3, killed and run again."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.job import SPARK
from tests.real.s3_job import S3Job
from tests.real.s3_server import S3Server
from timeline.active import ActiveTimeline

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def job(tmp_path: Path, s3: S3Server) -> S3Job:
    job = S3Job(tmp_path, s3)
    job.put("a.jsonl", range(100), bad=2)
    job.put("2026/b.jsonl", range(100, 150))
    job.put("2026/c.jsonl.gz", range(150, 200), bad=1)
    return job


@pytest.mark.spark
def test_job_needs_nothing_but_the_object_store(job: S3Job) -> None:
    killed = job.tideline("run", program=SPARK, env={"TIDELINE_CRASH_AT": "part-committed"})
    assert killed.code == -signal.SIGKILL, killed.err
    assert job.tideline("recover").code == 0
    job.put("d.jsonl", range(200, 250))
    ended = job.tideline("run", program=SPARK)
    assert ended.code == 0, ended.err
    assert job.ids() == job.ids("copy") == Counter(range(250))
    assert job.table("quarantine").to_pyarrow_table().num_rows == 3
    assert not job.left_over()
    assert [path.name for path in job.folder.iterdir()] == ["job.yaml"], "nothing was written locally"


@pytest.mark.parametrize("point", ["begun", "file-announced", "task-written", "manifest", "decided", "part-committing"])
def test_job_killed_at_any_step_goes_on_exactly(job: S3Job, point: str) -> None:
    job.killed_at(point)
    recovered = job.tideline("recover")
    assert recovered.code == 0, recovered.err
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.ids() == job.ids("copy") == Counter(range(200))
    assert not job.left_over()


def test_object_that_was_written_anew_with_more_lines_is_read_from_where_it_was_left(job: S3Job) -> None:
    assert job.tideline("run").code == 0
    job.put("2026/b.jsonl", range(100, 150), bad=0)
    job.put("grown.jsonl", range(200, 210))
    assert job.tideline("run").code == 0
    job.put("grown.jsonl", range(200, 230))
    assert job.tideline("run").code == 0
    assert job.ids() == Counter(range(230))
    job.put("grown.jsonl", range(5))
    shrunk = job.tideline("run")
    assert shrunk.code == 4 and "grown.jsonl" in shrunk.err
    assert job.ids() == Counter(range(230))


def test_many_small_objects_go_into_epochs_of_the_size_that_is_allowed(job: S3Job) -> None:
    for number in range(35):
        job.put(f"many/{number:03d}.jsonl", range(1000 + 10 * number, 1010 + 10 * number))
    assert job.tideline("run").code == 0
    assert job.ids() == Counter([*range(200), *range(1000, 1350)])
    commits = ActiveTimeline.load(job.store("timeline")).completed().instants
    assert len(commits) == 4
    assert not job.left_over()
