"""A job whose source, timeline, decisions, data files, logs and quarantine are all on S3, by one `storage` block."""

from __future__ import annotations

import gzip
import json
import signal
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import s3fs
import yaml
from deltalake import DeltaTable

from sinks.delta_location import delta_storage_options
from tests.cli.job import LOCAL, SPARK, Finished, run
from tests.real.s3_server import S3Server
from timeline.fsspec_store import open_store
from timeline.view import Timeline

pytestmark = [pytest.mark.real, pytest.mark.slow]


@dataclass
class S3Job:
    """A job file in an empty local folder; everything that it names is below a prefix of its own in the bucket."""

    folder: Path
    server: S3Server
    prefix: str = field(default_factory=lambda: f"lake/job-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.fs = s3fs.S3FileSystem(**self.server.options, use_listings_cache=False, skip_instance_cache=True)
        tables = [{"type": "delta", "name": name, "path": self.url(name)} for name in ("table", "copy")]
        job = {
            "name": "on-s3",
            "source": {
                "type": "files",
                "path": self.url("logs/**/*.jsonl*"),
                "format": "json",
                "close_after": "0s",
                "max_files_per_epoch": 10,
            },
            "schema": {"id": "bigint", "host": "string"},
            "lineage": True,
            "targets": tables,
            "quarantine": {"path": self.url("quarantine")},
            "timeline": {"path": self.url("timeline")},
            "storage": self.server.options,
            "spark": {"master": "local[2,4]", "small_epochs": "executors"},
        }
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job))

    def url(self, path: str) -> str:
        return f"s3://{self.prefix}/{path}"

    def put(self, name: str, ids: Sequence[int], *, bad: int = 0) -> None:
        """Write a source object whole; S3 knows no appending."""
        lines = [json.dumps({"id": number, "host": f"h{number % 3}"}) for number in ids] + ["{malformed"] * bad
        body = "".join(f"{line}\n" for line in lines).encode()
        self.fs.pipe_file(f"{self.prefix}/logs/{name}", gzip.compress(body) if name.endswith(".gz") else body)

    def tideline(self, command: str, program: Sequence[str] = LOCAL, env: Mapping[str, str] | None = None) -> Finished:
        return run([*program, command, "job.yaml"], cwd=self.folder, env=env)

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.url(name), storage_options=delta_storage_options(self.url(name), self.server.options))

    def ids(self, name: str = "table") -> Counter[int]:
        return Counter(self.table(name).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def left_over(self) -> list[str]:
        """What should not be there: data files that no table names, unfinished uploads, pending instants."""
        tables = [self.table(name) for name in ("table", "copy", "quarantine")]
        visible = {uri.rpartition("/")[2] for table in tables for uri in table.file_uris()}
        objects: list[str] = self.fs.find(self.prefix)
        stray = [path for path in objects if path.endswith(".parquet") and "_delta_log" not in path]
        uploads = self.fs.call_s3("list_multipart_uploads", Bucket="lake", Prefix=self.prefix.partition("/")[2])
        pending = Timeline.load(open_store(self.url("timeline"), self.server.options)).pending().instants
        return [
            *(path for path in stray if path.rpartition("/")[2] not in visible),
            *(upload["Key"] for upload in uploads.get("Uploads", [])),
            *(str(instant) for instant in pending),
        ]


@pytest.fixture
def job(tmp_path: Path, s3: S3Server) -> S3Job:
    job = S3Job(tmp_path, s3)
    job.put("a.jsonl", range(100), bad=2)
    job.put("2026/b.jsonl", range(100, 150))
    job.put("2026/c.jsonl.gz", range(150, 200), bad=1)
    return job


@pytest.mark.spark
def test_job_needs_nothing_but_the_object_store(job: S3Job) -> None:
    killed = job.tideline("run", SPARK, {"TIDELINE_CRASH_AT": "part-committed"})
    assert killed.code == -signal.SIGKILL, killed.err
    assert job.tideline("recover").code == 0
    job.put("d.jsonl", range(200, 250))
    ended = job.tideline("run", SPARK)
    assert ended.code == 0, ended.err
    assert job.ids() == job.ids("copy") == Counter(range(250))
    assert job.table("quarantine").to_pyarrow_table().num_rows == 3
    assert not job.left_over()
    assert [path.name for path in job.folder.iterdir()] == ["job.yaml"], "nothing was written locally"


@pytest.mark.parametrize("point", ["begun", "file-announced", "task-written", "manifest", "decided", "part-committing"])
def test_job_killed_at_any_step_goes_on_exactly(job: S3Job, point: str) -> None:
    assert job.tideline("run", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL
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
    commits: Any = Timeline.load(open_store(job.url("timeline"), job.server.options)).completed().instants
    assert len(commits) == 4
    assert not job.left_over()
