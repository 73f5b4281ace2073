"""Jobs with work for recovery, made in seconds, and commands on them as processes that are measured.

The protocol's own code writes the protocol's objects. Of up to 10,000 data files, the real writer makes one for each
partition; the others are hard links to these, and their markers are touched: bytes and names are as from tasks. The S3
server keeps objects as files, so the same holds there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, build_job, create_timeline, known_schema, open_timeline
from ingest.protocol.job import JobContext
from ingest.protocol.steps import open_instant, prepare
from sinks.base import TaskAttempt
from sinks.parquet.markers import draw_file_id, file_id, marker_path
from sinks.parquet.partition_writer import ParquetPartitionWriter
from tests.real import s3_server
from timeline.active import ActiveTimeline
from timeline.chain import Chain
from timeline.epoch import OffsetRange, Plan, ShardCount, WriteReport, WrittenFile
from timeline.lease import LeaseObserver, WriterLease

ROOT = Path(__file__).parents[1]
LOCAL = "local"
"""Name of the local file system as a medium."""

WALL = "s"
"""Seconds from a command's start to its end."""

REQUESTS = "requests"
LISTINGS = "listings"
BODIES = "bodies read"
_LOGGED = {REQUESTS: b"\n", LISTINGS: b" s3_ListObjectsV2 ", BODIES: b" s3_GetObject "}
"""Kind of a request → text of its lines in the server's access log; a listing has a thousand names."""
_ROWS = 100
# Users' modules are compiled already.
_ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Medium:
    """Storage of timelines and tables.

    Attributes:
        name: its name in the table.
        url: folder or prefix; each job has its own below it.
        folder: the same as local files.
        storage: fsspec's options.
        log: the server's access log, a line for each request; None where there is no server.
    """

    name: str
    url: str
    folder: Path
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    log: Path | None = None

    def asked(self) -> Mapping[str, int]:
        """Number of requests that the server has answered so far, by kind; empty where there is no server."""
        if self.log is None:
            return {}
        answered = self.log.read_bytes() if self.log.exists() else b""
        return {kind: answered.count(words) for kind, words in _LOGGED.items()}


@contextlib.contextmanager
def media(scratch: Path) -> Iterator[tuple[Medium, ...]]:
    """Local files and S3, until the block ends."""
    local, bucket, log = scratch / "files", scratch / "s3" / "lake", scratch / "requests.log"
    for folder in (local, bucket):
        folder.mkdir(parents=True)
    os.environ["VGW_ACCESS_LOG"] = str(log)  # the server's own option; its log has the requests of all processes
    with s3_server.running(bucket.parent) as server:
        yield Medium(LOCAL, str(local), local), Medium("S3", "s3://lake", bucket, server.options, log)


@dataclass(frozen=True)
class Place:
    """A job with folders of its own.

    Attributes:
        medium: storage of its lake.
        name: name of its folder.
        job: the job file.
    """

    medium: Medium
    name: str
    job: Path

    @property
    def lake(self) -> Path:
        """Timeline and table as files."""
        return self.medium.folder / self.name

    def opened(self) -> TimelineHandle:
        """Open its timeline."""
        return open_timeline(load_config(self.job))

    def remove(self) -> None:
        """Remove the job with its lake."""
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.rmtree(self.job.parent, ignore_errors=True)


def new_place(medium: Medium, scratch: Path, columns: Mapping[str, str] | None = None) -> Place:
    """Write the job file of a new job, partitioned by ``part``; its source is the folder ``logs`` beside the file.

    Args:
        medium: storage of its lake.
        scratch: parent of the job file's folder.
        columns: columns besides ``part``; by default an ``id``.
    """
    name = uuid.uuid4().hex
    place = Place(medium, name, scratch / name / "job.yaml")
    (place.job.parent / "logs").mkdir(parents=True)
    settings = {
        "name": "bench",
        "source": {
            "type": "files",
            "path": f"{place.job.parent}/logs/*.jsonl",
            "format": "json",
            "close_after": "0s",
            "max_bytes_per_epoch": 50,
        },
        "schema": dict(columns or {"id": "bigint"}) | {"part": "string"},
        "partition_by": ["part"],
        "targets": [{"type": "delta", "path": f"{medium.url}/{name}"}],
        "storage": dict(medium.storage),
        "writer": {"lease_ttl": "10s"},
    }
    place.job.write_text(yaml.safe_dump({key: value for key, value in settings.items() if value}))
    return place


def born(place: Place) -> tuple[JobContext, WriterLease]:
    """Create the job's timeline; returns the job and its writer's lease."""
    opened = place.opened()
    schema = known_schema(opened)
    assert schema is not None
    opened = create_timeline(opened, schema)
    lease = opened.take_lease(LeaseObserver(opened.store, opened.retry))
    return build_job(opened), lease


def leave_pending(place: Place, files: int, *, is_prepared: bool) -> None:
    """Leave a pending epoch, as by a writer that ended before or after it put the manifest.

    Args:
        place: a new job.
        files: number of data files.
        is_prepared: whether the manifest is put.
    """
    job, lease = born(place)
    plan = open_instant(job, Chain(), lease, (OffsetRange("a.jsonl", 0, files * _ROWS),))
    written = write_files(place, job, plan, files)
    if is_prepared:
        rows = sum(file.rows for file in written)
        report = WriteReport(rows, sum(file.size for file in written), tuple(written))
        reports = {job.sinks[0].target: [report], job.quarantine: [WriteReport(0, 0)]}
        prepare(job, plan, [ShardCount("a.jsonl", rows, rows, 0)], reports)
    lease.release()


def write_files(place: Place, job: JobContext, plan: Plan, files: int) -> Sequence[WrittenFile]:
    """Write data files and their markers, in √files partitions.

    Args:
        place: the job's folders.
        job: the job.
        plan: the epoch's plan.
        files: number of data files.
    """
    target, app_id = job.sinks[0].begin(plan), f"tideline-{job.identity.timeline_id}"
    assert isinstance(target, ParquetPartitionWriter)
    partitions = max(1, round(files**0.5))
    made: list[WrittenFile] = []
    for partition in range(partitions):
        writer = target.open(TaskAttempt(partition, 0, 0))
        values = {"id": pa.array(range(_ROWS), pa.int64()), "part": pa.array([f"p{partition:04}"] * _ROWS)}
        writer.write(pa.record_batch(values))
        made += writer.close().files
    linked: list[WrittenFile] = []
    for number in range(partitions, files):
        of = made[number % partitions]
        linked.append(replace(of, path=new_path(of, app_id, number, plan.ref.instant)))
        os.link(place.lake / of.path, place.lake / linked[-1].path)
        (place.lake / marker_path(plan.ref.instant, linked[-1].path)).touch()
    return [*made, *linked]


def new_path(of: WrittenFile, app_id: str, task: int, instant: str) -> str:
    """A file's path as a task would draw it, in the folder of another file.

    Args:
        of: the other file.
        app_id: the writing job's id.
        task: number of the task.
        instant: time of the epoch's instant.
    """
    folder = of.path.rpartition("/")[0]
    return f"{folder}/{file_id(app_id, draw_file_id())}-0_{task}-0-0_{instant}.parquet"


@dataclass(frozen=True)
class Cost:
    """Cost of one command.

    Attributes:
        wall_s: seconds from the process's start to its end.
        cpu_s: user and system time, including processes that it waited for.
        peak_mb: its largest resident set, in 10^6 bytes.
        asked: requests to the S3 server by kind; empty where there is no server.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    asked: Mapping[str, int]

    @property
    def figures(self) -> dict[str, float]:
        """Figures by metric."""
        return {WALL: self.wall_s, "CPU s": self.cpu_s, "peak memory, MB": self.peak_mb, **self.asked}


def run(place: Place, *words: str) -> Cost:
    """Run a command of Tideline on the job as a process of its own.

    Raises:
        SystemExit: its exit code is not 0, or an instant is pending afterwards.
    """
    before = place.medium.asked()
    command = [sys.executable, "-m", "ingest", words[0], str(place.job), *words[1:]]
    with (place.job.parent / "output.log").open("wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=_ENVIRONMENT, stdout=log, stderr=log)
        peaks, done = [0.0], threading.Event()
        watch = threading.Thread(target=_watch, args=(process.pid, peaks, done))
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        done.set()
        watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    asked = {kind: count - before[kind] for kind, count in place.medium.asked().items()}
    opened = place.opened()
    pending = ActiveTimeline.load(opened.store, opened.retry).pending()
    if process.returncode or len(pending):
        said = (place.job.parent / "output.log").read_text()
        raise SystemExit(f"{command} ended with {process.returncode}, {len(pending)} pending:\n{said[-3000:]}")
    return Cost(wall_s, used.ru_utime + used.ru_stime, max(peaks), asked)


def _watch(pid: int, peaks: list[float], done: threading.Event) -> None:
    """Read the largest resident set; the one that `wait4` reports includes the parent's at the fork."""
    while not done.wait(0.02):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peaks.append(int(line.split()[1]) * 1024 / 1e6)
