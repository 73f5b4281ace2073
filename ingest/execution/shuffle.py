"""Shuffle of rows with keys: from the tasks that read them to the one task that writes their key.

::

    stage 1   read ─ decode ─┬─► targets without keys, quarantine             one task for each spec
                             └─ stage ─ split by bucket ─ chunks ─┐           `send`
    engine                                                        └─ all chunks of one bucket: `BucketBuffer`
    stage 2   chunks ─ write ─ settle ─┬─► targets with keys                  one task for each bucket
                                       └─► quarantine: what they refuse       `receive`

The report of a stage 1 task goes to a number of its own behind the last bucket, through the same
exchange as its rows. A final failure goes to every bucket as well, and a bucket that receives one
writes nothing. Runners only carry messages.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ingest.execution.task import (
    FINAL_ERRORS,
    AcceptedRows,
    OpenOutputs,
    Outputs,
    TaskReport,
    TaskSpec,
    quarantined,
    write_blocks,
)
from sinks.base import KeyedWriter, TaskAttempt
from timeline.epoch import ShardCount, WriteReport
from timeline.errors import InvariantError
from timeline.failpoints import reach

HELD_BYTES = 64 << 20
"""Bytes of rows that a task of either stage keeps in memory for the exchange."""

CHUNK_BYTES = 4 << 20
"""The largest chunk; a single row that is larger is a chunk of its own."""

_MOST_BUCKETS_A_SLOT = 4
"""More buckets are no faster: each one is a task, and every reading task buffers rows for all of them."""


@dataclass(frozen=True)
class Chunk:
    """Staged rows that one task sends to one bucket.

    Attributes:
        target: name of the rows' target.
        order: number of the sending task, and of the chunk among those that it sends.
        body: one record batch as an Arrow IPC stream.
    """

    target: str
    order: tuple[int, int]
    body: bytes


@dataclass(frozen=True)
class TaskOutcome:
    """Outcome of a stage 1 task.

    Attributes:
        task: number of the task.
        report: the task's report; always a failure where a bucket receives it.
    """

    task: int
    report: TaskReport


ShuffleMessage: TypeAlias = tuple[int, Chunk | TaskOutcome]
"""Destination bucket and content. The number behind the last bucket stands for the driver."""


@dataclass(frozen=True)
class ShuffleConfig:
    """Sizes of a shuffle.

    Attributes:
        buckets: tasks of stage 2.
        chunk_bytes: about the largest size of a chunk.
        held_bytes: bytes of one target's rows that a task buffers until a bucket has enough for a chunk.
    """

    buckets: int
    chunk_bytes: int = CHUNK_BYTES
    held_bytes: int = HELD_BYTES

    @classmethod
    def over(cls, tasks: int, slots: int, chunks_held: int = 1) -> ShuffleConfig:
        """The shuffle of an epoch: as many buckets as read tasks, since about as many rows come out as go in.

        Args:
            tasks: tasks of stage 1.
            slots: tasks that run at once.
            chunks_held: chunks that the engine itself buffers in memory before it passes any on.
        """
        buckets = max(1, min(tasks, _MOST_BUCKETS_A_SLOT * slots))
        return cls(buckets, min(CHUNK_BYTES, HELD_BYTES // chunks_held))


def has_keys(specs: Sequence[TaskSpec]) -> bool:
    """Whether an epoch needs a shuffle."""
    return any(spec.outputs.keyed for spec in specs)


def send(
    spec: TaskSpec, attempt: TaskAttempt, task: int, shuffle: ShuffleConfig
) -> Generator[ShuffleMessage, None, None]:
    """Stage 1 of one task: write rows without keys, yield rows with keys, and last the task's report.

    Like `ingest.execution.task.attempt_task`: an attempt that fails or is cancelled (the engine closes the
    iterator) removes its output; a final error is reported.

    Args:
        spec: the task.
        attempt: this attempt, as the engine numbers it.
        task: the task's number in the epoch, the same for all of its attempts.
        shuffle: sizes of the shuffle.
    """
    reach("task-started")
    staging = [_Staging(name, writer, task, shuffle) for name, writer in spec.outputs.keyed]
    counts: list[ShardCount] = []
    try:
        with OpenOutputs.open(replace(spec.outputs, keyed=()), attempt) as opened:
            for accepted in write_blocks(spec, opened, counts):
                for target in staging:
                    rejected = target.add(accepted)
                    if rejected.num_rows:
                        opened.reject(quarantined(rejected, spec.epoch, target.name))
                    yield from target.full()
            for target in staging:
                yield from target.rest()
            written = opened.close() | {target.name: target.report for target in staging}
            reach("task-written")
        report = TaskReport(tuple(counts), written)
    except FINAL_ERRORS as error:
        report = TaskReport.failed(error)
        for bucket in range(shuffle.buckets):
            yield bucket, TaskOutcome(task, report)
    yield shuffle.buckets, TaskOutcome(task, report)


class _Staging:
    """Buffers staged rows of one target until a bucket has enough for a chunk."""

    def __init__(self, name: str, writer: KeyedWriter, task: int, shuffle: ShuffleConfig) -> None:
        self.name = name
        self._writer = writer
        self._task = task
        self._sent = 0
        self._shuffle = shuffle
        self._rejected = 0
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in range(shuffle.buckets)]
        self._bytes = [0] * shuffle.buckets

    @property
    def report(self) -> WriteReport:
        """Report of the rows rejected here; the buckets report all others."""
        return WriteReport(0, 0, rejected=self._rejected)

    def add(self, accepted: AcceptedRows) -> pa.RecordBatch:
        """Stage and buffer rows; return the rejected ones, in `REJECTED_SCHEMA`."""
        if accepted.offsets is None:
            raise InvariantError(f"rows of {accepted.shard} came without offsets, and a target with keys needs them")
        staged = self._writer.stage(accepted.rows, accepted.shard, accepted.offsets)
        self._rejected += staged.rejected.num_rows
        for bucket, rows in self._split(staged.rows):
            self._waiting[bucket].append(rows)
            self._bytes[bucket] += rows.nbytes
        return staged.rejected

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if rows.num_rows == 0:
            return
        if self._shuffle.buckets == 1:
            yield 0, rows
            return
        buckets = self._writer.buckets(rows, self._shuffle.buckets)
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=self._shuffle.buckets))
        for bucket, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                # Copied for each bucket: a slice of all rows would keep the rows of every other bucket in memory.
                yield bucket, rows.take(pa.array(order[start:end]))

    def full(self) -> Iterator[ShuffleMessage]:
        """Chunks of buckets that have enough rows; of all buckets, where they exceed `held_bytes` together."""
        if sum(self._bytes) >= self._shuffle.held_bytes:
            yield from self.rest()
            return
        for bucket, size in enumerate(self._bytes):
            if size >= self._shuffle.chunk_bytes:
                yield from self._chunks(bucket)

    def rest(self) -> Iterator[ShuffleMessage]:
        """Chunks of all buffered rows."""
        for bucket in range(self._shuffle.buckets):
            if self._waiting[bucket]:
                yield from self._chunks(bucket)

    def _chunks(self, bucket: int) -> Iterator[ShuffleMessage]:
        rows = pa.concat_batches(self._waiting[bucket])
        self._waiting[bucket] = []
        self._bytes[bucket] = 0
        step = max(1, rows.num_rows * self._shuffle.chunk_bytes // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            yield bucket, Chunk(self.name, (self._task, self._sent), _packed(rows.slice(start, step)))
            self._sent += 1


class BucketBuffer:
    """Buffers all messages of one bucket, since the last one may be a failure: nothing must be written then.

    Rows are returned in the order in which tasks read them, not in order of arrival: every attempt at a
    bucket gets the same rows in the same order, so all attempts keep the same row of a key. Chunks that do
    not fit into memory are in a file without a name, which is deleted with the process however the process
    ends. Batches are views of memory or file, not copies.
    """

    def __init__(self, held_bytes: int = HELD_BYTES, folder: str | None = None) -> None:
        """Start with an empty buffer.

        Args:
            held_bytes: bytes of chunks in memory; further chunks go to the file.
            folder: directory of the file; None: the directory of temporary files.
        """
        self._left_bytes = held_bytes
        self._folder = folder
        self._held: list[Chunk] = []
        self._file: BinaryIO | None = None
        self._filed: list[tuple[str, tuple[int, int], slice]] = []
        self._filed_bytes = 0
        self.failed: TaskReport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Views of the file stay valid: they hold its memory mapping.
        if self._file is not None:
            self._file.close()

    def put(self, content: Chunk | TaskOutcome) -> None:
        """Buffer the content of one message."""
        if isinstance(content, TaskOutcome):
            self.failed = content.report
            return
        if len(content.body) <= self._left_bytes:
            self._left_bytes -= len(content.body)
            self._held.append(content)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, prefix="tideline-")  # noqa: SIM115
        self._file.write(content.body)
        end = self._filed_bytes + len(content.body)
        self._filed.append((content.target, content.order, slice(self._filed_bytes, end)))
        self._filed_bytes = end

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Target and rows of each chunk, in the order of reading."""
        found = [(chunk.order, chunk.target, pa.py_buffer(chunk.body)) for chunk in self._held]
        if self._file is not None:
            self._file.flush()
            content = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
            found += [(order, target, content[part]) for target, order, part in self._filed]
        for _, target, body in sorted(found, key=lambda each: each[:2]):
            yield target, _unpacked(body)


def receive(buffer: BucketBuffer, outputs: Outputs, epoch: int, attempt: TaskAttempt) -> TaskReport:
    """Stage 2 of one bucket: write its rows to the keyed targets, and refused rows to the quarantine.

    No writer is opened where a stage 1 task reported a failure. Errors are reported or raised as in
    `ingest.execution.task.attempt_task`.

    Args:
        buffer: all messages of the bucket.
        outputs: the outputs that its rows were staged for.
        epoch: the epoch's number.
        attempt: this attempt, as the engine numbers it.
    """
    if buffer.failed is not None:
        return buffer.failed
    reach("task-started")
    try:
        with OpenOutputs.open(replace(outputs, accepting=(), selective=()), attempt) as opened:
            for target, rows in buffer.batches():
                opened.keyed[target].write(rows)
            for target, writer in opened.keyed.items():
                for refused in writer.settle():
                    if refused.num_rows:
                        opened.reject(quarantined(refused, epoch, target))
            reports = opened.close()
            reach("task-written")
            return TaskReport(reports=reports)
    except FINAL_ERRORS as error:
        return TaskReport.failed(error)


def exchange_here(
    specs: Sequence[TaskSpec],
    shuffle: ShuffleConfig,
    attempt: Callable[[int, int], TaskAttempt],
    *,
    folder: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[TaskReport]:
    """Run both stages in this process, task after task; return the reports of stage 1, then of the buckets.

    Args:
        specs: the tasks of stage 1, of one epoch.
        shuffle: sizes of the shuffle.
        attempt: returns the attempt's numbers for a stage (0, 1) and a task.
        folder: directory for rows that do not fit into memory.
        check: called before each task; may raise to stop.
    """
    reports: list[TaskReport] = []
    with contextlib.ExitStack() as open_buffers:
        held_bytes = HELD_BYTES // shuffle.buckets
        buffers = [open_buffers.enter_context(BucketBuffer(held_bytes, folder)) for _ in range(shuffle.buckets)]
        for task, spec in enumerate(specs):
            check()
            with contextlib.closing(send(spec, attempt(0, task), task, shuffle)) as messages:
                for bucket, content in messages:
                    if bucket < shuffle.buckets:
                        buffers[bucket].put(content)
                    elif isinstance(content, TaskOutcome):
                        reports.append(content.report)
        for bucket, buffer in enumerate(buffers):
            check()
            reports.append(receive(buffer, specs[0].outputs, specs[0].epoch, attempt(1, bucket)))
    return reports


def _packed(rows: pa.RecordBatch) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_batch(rows)
    body: bytes = buffer.getvalue().to_pybytes()
    return body


def _unpacked(body: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_next_batch()
