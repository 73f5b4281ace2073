"""The driver of a cluster, simulated: reports of 1,000 tasks, 2,000 files an epoch, an epoch a minute for a week.

    python -m bench.cluster [--quick] [--works local,S3]

Only the tasks are simulated: their files do not exist, their markers and reports do, as Spark delivers them. All other
steps are a writer's: plan, requested and inflight, reports read, manifest, decision, Delta's log entry, completed
instant, markers deleted, a snapshot of the positions every 100 epochs. Epochs follow each other without a pause.
``--quick`` has a tenth of the epochs.

To fit on a laptop's disk, bodies of instants that are some epochs old become holes: they keep their size without
content, so an epoch that read one of them would fail. The run makes no checkpoint of the Delta log: a checkpoint lists
all files of the table, two million after 1,000 such epochs, and is for tables that are compacted.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.json as pj
from deltalake import DeltaTable

from bench import pending
from bench.contest import say
from bench.goals import Goal, Key, ratio
from bench.logs import COLUMNS, generated
from bench.pending import LOCAL, Medium, Place, born, media, new_path, new_place
from bench.run import finish, main, parse, scratch
from bench.table import OURS, Measured
from ingest.driver.completion import Completions
from ingest.driver.epoch import NextEpoch, run_epoch
from ingest.execution.task import TASK_REPORT, Outputs, TaskReport
from ingest.protocol.events import no_listener
from ingest.protocol.job import JobContext
from sinks.base import TaskAttempt
from sinks.delta.rules import delta_schema
from sinks.delta.sink import DeltaSink
from sinks.parquet.markers import marker_path
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.partition import partitioned_schema
from sinks.sql_types import parse_type
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain, write_snapshot
from timeline.decision import decision_path
from timeline.epoch import OffsetRange, Plan, ShardCount, WriteReport, WrittenFile
from timeline.instant import commit_completed, commit_inflight, commit_requested
from timeline.lease import WriterLease

TABLE = "cluster"
TASKS = 1_000
FILES_A_TASK = 2
EPOCHS = 7 * 24 * 60
_EPOCHS_ON_S3 = 100
_ROWS_A_FILE = 250_000
_ROWS_LIKE = 2_000
_EPOCHS_AN_HOUR = 60
_INSTANT, _HOUR = "INSTANT", "HOUR"
_WINDOW = 10
"""Number of epochs in the median of a figure."""
_STARTS = 5
_BODIES = 20
"""Number of the newest epochs whose bodies keep their content."""


def _an_epoch(kind: str) -> str:
    return f"{kind} an epoch"


MS = "ms an epoch"
TIMELINE = "timeline, MB an epoch"
LOG = "Delta log, MB an epoch"
REQUESTS = _an_epoch(pending.REQUESTS)
_CPU = "CPU ms an epoch"
_MB = "memory of the driver, MB"


def _work(epochs: int, medium: str) -> str:
    return f"epoch {epochs:,}, {medium}"


WEEK = _work(EPOCHS, LOCAL)
ON_S3 = _work(_EPOCHS_ON_S3, "S3")

GOALS = tuple(
    Goal(
        f"driver of a cluster: {metric} at epoch {EPOCHS:,}, as a multiple of epoch 100",
        ratio(Key(TABLE, WEEK, OURS, metric), Key(TABLE, _work(100, LOCAL), OURS, metric)),
        1.10,
        False,
    )
    for metric in (MS, _MB)
)


class Tasks:
    """Markers and reports of the tasks of every epoch; making them counts as time of tasks, not of the driver."""

    def __init__(self, place: Place, job: JobContext) -> None:
        """Write nothing yet.

        Args:
            place: the job's folders.
            job: has its targets.
        """
        self._place = place
        self._job = job
        self._reports: list[bytes] = []
        self._files: list[str] = []
        self.taken_s = (0.0, 0.0)

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """See `ingest.driver.epoch.EpochWriter`: reports are decoded like those of Spark's tasks."""
        began = _clocks()
        if not self._reports:
            self._make(plan)
        instant, hour = plan.ref.instant, f"h{plan.ref.epoch // _EPOCHS_AN_HOUR:04}"
        markers = [path.replace(_INSTANT, instant).replace(_HOUR, hour) for path in self._files]
        for number in range(FILES_A_TASK):
            (self._place.lake / markers[number]).parent.mkdir(parents=True, exist_ok=True)
        for marker in markers:
            os.close(os.open(self._place.lake / marker, os.O_CREAT | os.O_WRONLY))
        told, at = instant.encode(), hour.encode()
        bodies = [body.replace(_INSTANT.encode(), told).replace(_HOUR.encode(), at) for body in self._reports]
        self.taken_s = _since(began)
        return [TASK_REPORT.load("task report", body) for body in bodies]

    def _make(self, plan: Plan) -> None:
        """Make the reports and markers of an epoch, with placeholders for its instant and its hour."""
        app_id = f"tideline-{self._job.identity.timeline_id}"
        like = _large_file(self._job, plan)
        for task, offsets in enumerate(plan.ranges):
            files: list[WrittenFile] = []
            for number in range(FILES_A_TASK):
                file = replace(like, path=f"part={_HOUR}-{number}/", partition={"part": f"{_HOUR}-{number}"})
                files.append(replace(file, path=new_path(file, app_id, task, _INSTANT)))
                self._files.append(marker_path(_INSTANT, files[-1].path))
            rows = sum(file.rows for file in files)
            written = WriteReport(rows, sum(file.size for file in files), tuple(files))
            reports = {self._job.sinks[0].target: written, self._job.quarantine: WriteReport(0, 0)}
            counts = (ShardCount(offsets.shard, rows, rows, 0),)
            self._reports.append(TASK_REPORT.dump(TaskReport(counts, reports)))


def _large_file(job: JobContext, plan: Plan) -> WrittenFile:
    """The real writer's report of a small file of the log, with the size and the rows of a large one.

    The first commit deletes the file itself, like a file of an unreported attempt.
    """
    lines = next(generated(_ROWS_LIKE, files=1).folder.iterdir()).read_bytes()
    schema = pa.schema([(name, parse_type(kind)) for name, kind in COLUMNS.items()])
    rows = pj.read_json(io.BytesIO(lines), parse_options=pj.ParseOptions(explicit_schema=schema))
    rows = rows.append_column("part", pa.array(["h"] * len(rows)))
    begun = job.sinks[0].begin(plan)
    assert isinstance(begun, ParquetPartitionWriter)
    writer = begun.open(TaskAttempt(TASKS, 0, 0))
    for batch in rows.combine_chunks().to_batches():
        writer.write(batch)
    (file,) = writer.close().files
    stats = {**file.stats, "numRecords": _ROWS_A_FILE}
    return replace(file, size=file.size * _ROWS_A_FILE // file.rows, rows=_ROWS_A_FILE, stats=stats)


class Driver:
    """A writer of one job, from epoch to epoch."""

    def __init__(self, place: Place) -> None:
        """Create a timeline, and an empty table without checkpoints."""
        self._place = place
        self.job, self.lease = _started(place)
        self._tasks = Tasks(place, self.job)
        self._chain = Chain()
        self._old: deque[list[Path]] = deque()

    def ingest(self, completions: Completions) -> tuple[float, ...]:
        """Ingest one epoch; returns its wall and CPU seconds without those of its tasks.

        The completion of an epoch that runs during the next epoch counts for the next one.
        """
        began = _clocks()
        rows = FILES_A_TASK * _ROWS_A_FILE
        number = self._chain.next_epoch
        ranges = tuple(OffsetRange(f"logs-{task}", number * rows, (number + 1) * rows) for task in range(TASKS))
        self.lease.check()
        completions.wait()
        result = run_epoch(
            self.job,
            self._tasks,
            NextEpoch(self._chain, ranges, number - 1),
            self.lease,
            stop=threading.Event(),
            completions=completions,
        )
        self._chain = self._chain.advanced(result.decision)
        if self._chain.is_snapshot_due:
            completions.wait()
        write_snapshot(self.job.store, self._chain, self.job.retry)
        taken_s = tuple(
            all_s - of_tasks_s for all_s, of_tasks_s in zip(_since(began), self._tasks.taken_s, strict=True)
        )
        instant = result.decision.instant
        bodies = [
            commit_requested(instant).path,
            commit_inflight(instant).path,
            commit_completed(instant, result.decision.completion_time).path,
            f"_delta_log/{number + 1:020d}.json",
        ]
        self._old.append([self._place.lake / path for path in bodies])
        if len(self._old) > _BODIES:
            for path in self._old.popleft():
                _make_hole(path)
        return taken_s

    def sizes(self) -> tuple[int, int]:
        """Bytes that the last epoch has put on the timeline, including its decision, and into the table's log."""
        epoch = self._chain.next_epoch - 1
        *timeline, log = self._old[-1]
        decided = self._place.lake / decision_path(epoch)
        return sum(path.stat().st_size for path in (*timeline, decided)), log.stat().st_size

    def start_up(self) -> float:
        """Seconds that a new writer needs to open the job and find the positions."""
        began = time.perf_counter()
        store = self._place.opened().store
        chain = load_chain(store, ActiveTimeline.recent(store, self.job.retry), self.job.retry)
        if chain.next_epoch != self._chain.next_epoch:
            raise SystemExit(f"a new writer would go on at epoch {chain.next_epoch}, not {self._chain.next_epoch}")
        return time.perf_counter() - began


def simulate(medium: Medium, folder: Path, marks: Sequence[int]) -> list[Measured]:
    """Run epochs up to the last mark; returns the figures of the last epochs before each mark.

    Args:
        medium: has timeline and table.
        folder: working folder.
        marks: numbers of epochs, rising.
    """
    place = new_place(medium, folder, COLUMNS)
    found: list[Measured] = []
    driver = Driver(place)
    driver.lease.start_heartbeats()
    try:
        with Completions(no_listener, beside=True) as completions:
            figures: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_WINDOW))
            for number in range(1, marks[-1] + 1):
                before = medium.asked()
                wall_s, cpu_s = driver.ingest(completions)
                figures[MS].append(1000 * wall_s)
                figures[_CPU].append(1000 * cpu_s)
                figures[_MB].append(psutil.Process().memory_info().rss / 1e6)
                for kind, count in medium.asked().items():
                    figures[_an_epoch(kind)].append(count - before[kind])
                if number not in marks:
                    continue
                completions.wait()
                timeline, log = driver.sizes()
                figures[TIMELINE].append(timeline / 1e6)
                figures[LOG].append(log / 1e6)
                figures["positions found, s"].extend(driver.start_up() for _ in range(_STARTS))
                work = _work(number, medium.name)
                found += [Measured(work, OURS, metric, tuple(values)) for metric, values in figures.items()]
                say(f"{work}: {1000 * wall_s:.0f} ms")
                figures.clear()
    finally:
        driver.lease.release()
        place.remove()
    return found


def _started(place: Place) -> tuple[JobContext, WriterLease]:
    job, lease = born(place)
    sink = job.sinks[0]
    assert isinstance(sink, DeltaSink)
    DeltaTable.create(
        sink.log.location,
        delta_schema(partitioned_schema(sink.schema, sink.partition_by)),
        partition_by=[by.column for by in sink.partition_by],
        configuration={"delta.checkpointInterval": str(10 * EPOCHS)},
        storage_options=dict(sink.log.storage_options) or None,
    )
    return job, lease


def _make_hole(path: Path) -> None:
    """Keep a file's size, and free its blocks."""
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    now = _clocks()
    return now[0] - began[0], now[1] - began[1]


def measure() -> int:
    """Measure and save the table; returns the exit code."""
    options = parse(__doc__)
    with scratch(options) as folder, media(folder) as (files, s3):
        measured: list[Measured] = []
        whole = (100, 1_000, EPOCHS)
        for medium, marks in (
            (files, options.counts(whole, (100, options.share(EPOCHS)))),
            (s3, options.counts([_EPOCHS_ON_S3], [_EPOCHS_ON_S3])),
        ):
            if options.wants(medium.name):
                measured += simulate(medium, folder, marks)
    sizes = f"{TASKS:,} tasks, {TASKS * FILES_A_TASK:,} files of {_ROWS_A_FILE:,} rows an epoch"
    finish(TABLE, options, measured, sizes, repeats=f"one run; the last {_WINDOW} epochs of each")
    return 0


if __name__ == "__main__":
    main(measure)
