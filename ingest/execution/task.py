"""One task: reads its ranges, decodes, writes to every target, all in one pass. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from ingest.execution.reasons import Reasons
from ingest.sources.base import Decoded, Decoder, RangeReader, SplitSize
from sinks.base import (
    LINEAGE_COLUMNS,
    REJECTED_SCHEMA,
    BatchWriter,
    KeyedBatchWriter,
    KeyedWriter,
    PartitionWriter,
    RefusingWriter,
    SelectiveBatchWriter,
    SelectiveWriter,
    TaskAttempt,
)
from sinks.writer_kinds import WritersByKind, refusing
from timeline import errors
from timeline.body import BodyFormat
from timeline.epoch import OffsetRange, ShardCount, WriteReport
from timeline.errors import (
    DataError,
    InvariantError,
    SourceError,
    StoreRefusedError,
    TargetBusyError,
    TargetRefusedError,
    TidelineError,
    UntrustedStoreError,
)
from timeline.failpoints import reach

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
        pa.field("context", pa.string()),
        pa.field("target", pa.string()),
    ]
)
"""Columns of the quarantine table: the epoch, those of `sinks.base.REJECTED_SCHEMA`, and the refusing target.

``target`` is null for a record that could not be decoded and is in no target. A row that one target
refused is in all others.
"""

FINAL_ERRORS = (
    DataError,
    SourceError,
    StoreRefusedError,
    TargetBusyError,
    TargetRefusedError,
    UntrustedStoreError,
)
"""Errors that a retry of the task would only repeat: they are reported, not raised for the engine."""


@dataclass(frozen=True)
class Outputs:
    """Writers of an epoch's targets, by kind; picklable.

    Attributes:
        accepting: name and writer of each target that takes accepted rows from the task that read them.
        quarantine: name and writer of the target that takes rejected rows.
        keyed: name and writer of each target whose rows are first shuffled to the task of their key, see
            `ingest.execution.shuffle`.
        selective: as `accepting`, of each target that may refuse some of its rows.
    """

    accepting: tuple[tuple[str, PartitionWriter], ...]
    quarantine: tuple[str, PartitionWriter]
    keyed: tuple[tuple[str, KeyedWriter], ...] = ()
    selective: tuple[tuple[str, SelectiveWriter], ...] = ()

    @classmethod
    def of(cls, begun: Mapping[str, PartitionWriter | SelectiveWriter | KeyedWriter], quarantine: str) -> Self:
        """The outputs of an epoch.

        Args:
            begun: name and writer of each target of the job, in the order of application.
            quarantine: name of the target that takes rejected rows.
        """
        targets = WritersByKind.of({name: writer for name, writer in begun.items() if name != quarantine})
        rejecting = WritersByKind.of({quarantine: begun[quarantine]}).plain
        if not rejecting:
            raise InvariantError(f"{quarantine}: a quarantine that refuses rows would lose them")
        return cls(targets.plain, rejecting[0], targets.keyed, targets.selective)

    @property
    def may_refuse(self) -> bool:
        """Whether a target may refuse accepted rows; their offsets are needed then."""
        return bool(self.keyed or self.selective) or any(refusing(writer) for _, writer in self.accepting)


@dataclass
class OpenOutputs:
    """One task attempt's open writers to every target; a context manager that aborts them on an error."""

    quarantine: str
    writers: dict[str, BatchWriter] = field(default_factory=dict)
    keyed: dict[str, KeyedBatchWriter] = field(default_factory=dict)
    selective: dict[str, SelectiveBatchWriter] = field(default_factory=dict)

    @classmethod
    def open(cls, outputs: Outputs, attempt: TaskAttempt) -> Self:
        """Open writers to every target for this attempt."""
        opened = cls(outputs.quarantine[0])
        try:
            for name, writer in [*outputs.accepting, outputs.quarantine]:
                batches = writer.open(attempt)
                rules = refusing(writer)
                if name != opened.quarantine and rules is not None:
                    opened.selective[name] = _Refusing(rules, batches)
                else:
                    opened.writers[name] = batches
            for name, keyed in outputs.keyed:
                opened.keyed[name] = keyed.open(attempt)
            for name, selective in outputs.selective:
                opened.selective[name] = selective.open_selective(attempt)
        except BaseException:
            opened.abort()
            raise
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def accept(self, accepted: AcceptedRows, epoch: int) -> None:
        """Write rows to every target without a shuffle; rows that a target refuses go to the quarantine."""
        for name, writer in self.writers.items():
            if name != self.quarantine:
                writer.write(accepted.rows)
        for name, selective in self.selective.items():
            assert accepted.offsets is not None, "the decoder is asked for offsets where a target may refuse rows"
            refused = selective.take(accepted.rows, accepted.shard, accepted.offsets)
            if refused.num_rows:
                self.reject(quarantined(refused, epoch, name))

    def reject(self, batch: pa.RecordBatch) -> None:
        """Write rows to the quarantine."""
        self.writers[self.quarantine].write(batch)

    def close(self) -> dict[str, WriteReport]:
        """Make everything durable; return a report for each target."""
        return {name: writer.close() for name, writer in self._all.items()}

    def abort(self) -> None:
        """Remove what this attempt wrote, as far as possible; does not raise."""
        for writer in self._all.values():
            writer.abort()

    @property
    def _all(self) -> Mapping[str, BatchWriter | SelectiveBatchWriter | KeyedBatchWriter]:
        return {**self.writers, **self.selective, **self.keyed}


class _Refusing:
    """The `SelectiveBatchWriter` of a `RefusingWriter`: removes refused rows and writes the rest."""

    def __init__(self, rules: RefusingWriter, writer: BatchWriter) -> None:
        self._rules = rules
        self._writer = writer
        self._refused = 0

    def take(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        reasons = self._rules.refuse(rows)
        if not reasons:
            self._writer.write(rows)
            return pa.RecordBatch.from_pylist([], REJECTED_SCHEMA)
        from sinks.refused import refused_rows  # loads the JSON writer, which few tasks need

        self._refused += len(reasons)
        kept = rows.take(pa.array([at for at in range(rows.num_rows) if at not in reasons], pa.int64()))
        if kept.num_rows:
            self._writer.write(kept)
        return refused_rows(rows, reasons, shard, offsets)

    def close(self) -> WriteReport:
        report = self._writer.close()
        return replace(report, rejected=report.rejected + self._refused) if self._refused else report

    def abort(self) -> None:
        self._writer.abort()


@dataclass(frozen=True)
class TaskSpec:
    """Everything a task needs, picklable.

    Attributes:
        ranges: ranges to read, in order.
        reader: reads the ranges.
        decoder: decodes the blocks that the reader returns.
        outputs: writers for the rows.
        epoch: the epoch's number.
        lineage: whether accepted rows carry shard, offset and epoch.
        is_small: whether this is the whole epoch, and too little for a task on an engine.
    """

    ranges: tuple[OffsetRange, ...]
    reader: RangeReader
    decoder: Decoder
    outputs: Outputs
    epoch: int
    lineage: bool
    is_small: bool = False


@dataclass(frozen=True)
class TaskReport:
    """Result of a task.

    Attributes:
        counts: record counts of each range, in order; empty for a task that reads no source.
        reports: write report of each target of this task.
        failure: class and message of a final error; nothing was written then.
    """

    counts: tuple[ShardCount, ...] = ()
    reports: Mapping[str, WriteReport] | None = None
    failure: tuple[str, str] | None = None

    @classmethod
    def failed(cls, error: TidelineError) -> Self:
        """The report of a task with a final error."""
        return cls(failure=(type(error).__name__, str(error)))


TASK_REPORT = BodyFormat("task report", TaskReport)


def error_of(failure: tuple[str, str]) -> TidelineError:
    """The error that a task reported, to be raised in the driver.

    Args:
        failure: class and message of the error.
    """
    name, message = failure
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, TidelineError)):
        raise InvariantError(f"a task reported an error that this version does not know, {name}: {message}")
    error: TidelineError = kind(message)
    return error


def run_task(spec: TaskSpec, attempt: TaskAttempt) -> TaskReport:
    """Read a task's ranges, decode and write them; see `attempt_task`."""

    def write(outputs: OpenOutputs) -> Sequence[ShardCount]:
        counts: list[ShardCount] = []
        for _ in write_blocks(spec, outputs, counts):
            pass
        return counts

    return attempt_task(spec.outputs, attempt, write)


def attempt_task(
    outputs: Outputs, attempt: TaskAttempt, write: Callable[[OpenOutputs], Sequence[ShardCount]]
) -> TaskReport:
    """Run a task's work. An attempt that fails removes its output and may be retried elsewhere.

    A final error (a range that was deleted, a row that must stop the job) is part of the report: a
    retry would only repeat it. Any other error is raised for the engine to retry.

    Args:
        outputs: writers for the rows.
        attempt: this attempt, as the engine numbers it.
        write: writes the task's rows and returns the counts of its records.
    """
    reach("task-started")
    try:
        with OpenOutputs.open(outputs, attempt) as opened:
            counts = tuple(write(opened))
            reports = opened.close()
            reach("task-written")
            return TaskReport(counts, reports)
    except FINAL_ERRORS as error:
        return TaskReport.failed(error)


@dataclass(frozen=True)
class AcceptedRows:
    """Accepted rows of one block.

    Attributes:
        rows: rows in the targets' columns.
        shard: shard of the records.
        offsets: int64, the offset of each row's record; None unless the decoder was asked for offsets.
    """

    rows: pa.RecordBatch
    shard: str
    offsets: pa.Array | None


def write_blocks(spec: TaskSpec, outputs: OpenOutputs, counts: list[ShardCount]) -> Iterator[AcceptedRows]:
    """Read a task's ranges and decode them; every row is written to the open outputs, then yielded.

    Args:
        spec: the task.
        outputs: the open writers.
        counts: receives the counts of each range once the range is read.

    Yields:
        accepted rows, block by block, for targets behind a shuffle.
    """
    for offsets in spec.ranges:
        read = accepted = rejected = 0
        reasons = Reasons()
        for block in spec.reader.read(offsets):
            decoded = spec.decoder.decode(block)
            read += block.rows
            if decoded.rejected.num_rows:
                outputs.reject(quarantined(decoded.rejected, spec.epoch))
                rejected += decoded.rejected.num_rows
                reasons.add(decoded.rejected.column("reason"))
            if decoded.accepted.num_rows:
                batch = _with_lineage(decoded, block.shard, spec.epoch) if spec.lineage else decoded.accepted
                rows = AcceptedRows(batch, block.shard, decoded.offsets)
                outputs.accept(rows, spec.epoch)
                accepted += batch.num_rows
                yield rows
        counts.append(ShardCount(offsets.shard, read, accepted, rejected, reasons.counts))


def merge_counts(reports: Sequence[TaskReport]) -> list[ShardCount]:
    """One count for each shard, summed over the pieces of its range."""
    pieces: dict[str, list[ShardCount]] = {}
    for report in reports:
        for count in report.counts:
            pieces.setdefault(count.shard, []).append(count)
    return [_sum(counts) for counts in pieces.values()]


def _sum(counts: Sequence[ShardCount]) -> ShardCount:
    reasons = Reasons()
    for count in counts:
        reasons.merge(count.reasons)
    return ShardCount(
        counts[0].shard,
        sum(count.read for count in counts),
        sum(count.accepted for count in counts),
        sum(count.rejected for count in counts),
        reasons.counts,
    )


def _with_lineage(decoded: Decoded, shard: str, epoch: int) -> pa.RecordBatch:
    rows = decoded.accepted.num_rows
    lineage = [pa.repeat(pa.scalar(shard), rows), decoded.offsets, pa.repeat(pa.scalar(epoch, pa.int64()), rows)]
    schema = pa.schema([*decoded.accepted.schema, *(pa.field(name, kind) for name, kind in LINEAGE_COLUMNS)])
    return pa.RecordBatch.from_arrays([*decoded.accepted.columns, *lineage], schema=schema)


def quarantined(rejected: pa.RecordBatch, epoch: int, target: str | None = None) -> pa.RecordBatch:
    """Rejected rows in the quarantine's columns.

    Args:
        rejected: in `sinks.base.REJECTED_SCHEMA`.
        epoch: the epoch's number.
        target: the target that refused the rows; None for records that could not be decoded.
    """
    epochs = pa.repeat(pa.scalar(epoch, pa.int64()), rejected.num_rows)
    targets = pa.repeat(pa.scalar(target, pa.string()), rejected.num_rows)
    return pa.RecordBatch.from_arrays([epochs, *rejected.columns, targets], schema=QUARANTINE_SCHEMA)


def assign(
    ranges: Sequence[OffsetRange],
    split: Callable[[OffsetRange, int], Sequence[OffsetRange]],
    slots: int,
    split_size: SplitSize,
) -> list[tuple[OffsetRange, ...]]:
    """Cut ranges into pieces and pack them into tasks of even size; every record goes to exactly one task.

    Args:
        ranges: the epoch's ranges.
        split: cuts a range into consecutive pieces of about a number of units.
        slots: tasks that run at once.
        split_size: bounds of the size of a piece.
    """
    total = sum(offsets.until - offsets.start for offsets in ranges)
    piece = min(split_size.largest, max(split_size.smallest, -(-total // max(1, slots))))
    pieces = [part for offsets in ranges for part in split(offsets, piece)]
    count = max(1, min(len(pieces), -(-total // piece)))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(pieces, key=lambda part: part.start - part.until):
        smallest_task = sizes.index(min(sizes))
        tasks[smallest_task].append(part)
        sizes[smallest_task] += part.until - part.start + split_size.overhead
    return [tuple(task) for task in tasks if task]
