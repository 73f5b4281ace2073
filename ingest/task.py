"""What one task does: read its ranges, decode, write to every target, all in one pass. No Spark in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ingest.sources.base import Decoded, Decoder, Grain, RangeReader
from sinks.base import BatchWriter, PartitionWriter, TaskAttempt
from timeline.body import BodyFormat
from timeline.epoch import OffsetRange, ShardCount, WriteReport
from timeline.errors import DataError, SourceError
from timeline.failpoints import reach

LINEAGE_COLUMNS = (("_shard", pa.string()), ("_offset", pa.int64()), ("_epoch", pa.int64()))
"""Columns that say where a row came from, behind the job's own ones when ``lineage: true``."""

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
    ]
)
"""Columns of the quarantine table."""


@dataclass(frozen=True)
class Outputs:
    """Where an epoch's rows go, picklable.

    Attributes:
        accepting: name and writer of each target that takes accepted rows.
        quarantine: name and writer of the target that takes rejected rows.
    """

    accepting: tuple[tuple[str, PartitionWriter], ...]
    quarantine: tuple[str, PartitionWriter]


@dataclass
class OpenOutputs:
    """One task attempt's open writers to every target; whoever opens them closes or aborts them."""

    writers: dict[str, BatchWriter]
    quarantine: str

    @classmethod
    def open(cls, outputs: Outputs, attempt: TaskAttempt) -> OpenOutputs:
        """Start writing to every target as this attempt."""
        opened = cls({}, outputs.quarantine[0])
        try:
            for name, writer in [*outputs.accepting, outputs.quarantine]:
                opened.writers[name] = writer.open(attempt)
        except BaseException:
            opened.abort()
            raise
        return opened

    def accept(self, batch: pa.RecordBatch) -> None:
        """Write rows to every target but the quarantine."""
        for name, writer in self.writers.items():
            if name != self.quarantine:
                writer.write(batch)

    def reject(self, batch: pa.RecordBatch) -> None:
        """Write rows to the quarantine."""
        self.writers[self.quarantine].write(batch)

    def close(self) -> dict[str, WriteReport]:
        """Make everything durable; a report for each target."""
        return {name: writer.close() for name, writer in self.writers.items()}

    def abort(self) -> None:
        """Remove what this attempt wrote, as far as possible; does not raise."""
        for writer in self.writers.values():
            writer.abort()


@dataclass(frozen=True)
class TaskSpec:
    """Everything a task needs, picklable.

    Attributes:
        ranges: what to read, in order.
        reader: reads them.
        decoder: decodes what was read.
        outputs: where the rows go.
        epoch: the epoch's number.
        lineage: whether accepted rows carry shard, offset and epoch.
    """

    ranges: tuple[OffsetRange, ...]
    reader: RangeReader
    decoder: Decoder
    outputs: Outputs
    epoch: int
    lineage: bool


@dataclass(frozen=True)
class TaskReport:
    """What a task read and wrote.

    Attributes:
        counts: for each range, in order, what became of its records.
        reports: for each target, what was written to it.
        failure: class and message of an error that no retry can mend; nothing was written then.
    """

    counts: tuple[ShardCount, ...] = ()
    reports: Mapping[str, WriteReport] | None = None
    failure: tuple[str, str] | None = None


TASK_REPORT = BodyFormat("task report", TaskReport)


def run_task(spec: TaskSpec, attempt: TaskAttempt) -> TaskReport:
    """Read a task's ranges, decode and write them; see `attempt_task`."""

    def write(outputs: OpenOutputs) -> Sequence[ShardCount]:
        return [_run_range(spec, offsets, outputs) for offsets in spec.ranges]

    return attempt_task(spec.outputs, attempt, write)


def attempt_task(
    outputs: Outputs, attempt: TaskAttempt, write: Callable[[OpenOutputs], Sequence[ShardCount]]
) -> TaskReport:
    """Do a task's work. An attempt that fails removes what it wrote and may be run again elsewhere.

    An error that says so itself (a range that is gone, a row that must stop the job) is part of the
    report: trying again would only repeat it. Any other error is raised for the engine to retry.

    Args:
        outputs: where rows go.
        attempt: this attempt, as the engine numbers it.
        write: writes the task's rows, and says what became of its records.
    """
    reach("task-started")
    opened = OpenOutputs.open(outputs, attempt)
    try:
        counts = tuple(write(opened))
        reports = opened.close()
        reach("task-written")
        return TaskReport(counts, reports)
    except (DataError, SourceError) as error:
        opened.abort()
        return TaskReport(failure=(type(error).__name__, str(error)))
    except BaseException:
        opened.abort()
        raise


def merge_counts(reports: Sequence[TaskReport]) -> list[ShardCount]:
    """One count for each shard, over all pieces that its range was cut into."""
    sums: dict[str, list[int]] = {}
    for report in reports:
        for count in report.counts:
            total = sums.setdefault(count.shard, [0, 0, 0])
            total[0] += count.read
            total[1] += count.accepted
            total[2] += count.rejected
    return [ShardCount(shard, *total) for shard, total in sums.items()]


def _run_range(spec: TaskSpec, offsets: OffsetRange, outputs: OpenOutputs) -> ShardCount:
    read = accepted = rejected = 0
    for block in spec.reader.read(offsets):
        decoded = spec.decoder.decode(block)
        read += block.rows
        if decoded.accepted.num_rows:
            batch = _with_lineage(decoded, block.shard, spec.epoch) if spec.lineage else decoded.accepted
            outputs.accept(batch)
            accepted += batch.num_rows
        if decoded.rejected.num_rows:
            outputs.reject(_quarantined(decoded.rejected, spec.epoch))
            rejected += decoded.rejected.num_rows
    return ShardCount(offsets.shard, read, accepted, rejected)


def _with_lineage(decoded: Decoded, shard: str, epoch: int) -> pa.RecordBatch:
    rows = decoded.accepted.num_rows
    lineage = [pa.repeat(pa.scalar(shard), rows), decoded.offsets, pa.repeat(pa.scalar(epoch, pa.int64()), rows)]
    schema = pa.schema([*decoded.accepted.schema, *(pa.field(name, kind) for name, kind in LINEAGE_COLUMNS)])
    return pa.RecordBatch.from_arrays([*decoded.accepted.columns, *lineage], schema=schema)


def _quarantined(rejected: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    epochs = pa.repeat(pa.scalar(epoch, pa.int64()), rejected.num_rows)
    return pa.RecordBatch.from_arrays([epochs, *rejected.columns], schema=QUARANTINE_SCHEMA)


def assign(
    ranges: Sequence[OffsetRange],
    split: Callable[[OffsetRange, int], Sequence[OffsetRange]],
    slots: int,
    grain: Grain,
) -> list[tuple[OffsetRange, ...]]:
    """Cut ranges into pieces and pack them into tasks of even size; every record goes to exactly one task.

    Args:
        ranges: the epoch's ranges.
        split: cuts a range into consecutive pieces of about a number of units.
        slots: tasks that run at once.
        grain: how large the pieces are.
    """
    total = sum(offsets.until - offsets.start for offsets in ranges)
    piece = min(grain.largest, max(grain.smallest, -(-total // max(1, slots))))
    pieces = [part for offsets in ranges for part in split(offsets, piece)]
    count = max(1, min(len(pieces), -(-total // piece)))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(pieces, key=lambda part: part.start - part.until):
        smallest_task = sizes.index(min(sizes))
        tasks[smallest_task].append(part)
        sizes[smallest_task] += part.until - part.start + grain.overhead
    return [tuple(task) for task in tasks if task]
