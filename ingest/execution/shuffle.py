"""Rows with keys travel: from the tasks that read them to the one task that writes their key.

::

    stage 1   read ─ decode ─┬─► targets without keys, quarantine             one task for each spec
                             └─ stage ─ split by bucket ─ chunks ─┐           `send`
    engine                                                        └─ all chunks of one bucket: `BucketBuffer`
    stage 2   chunks ─ write ─ settle ─┬─► targets with keys                  one task for each bucket
                                       └─► quarantine: what they refuse       `receive`

What a task reports of stage 1 goes to a place of its own behind the last bucket, through the same
exchange as its rows. A failure that no retry can mend goes to every bucket as well, and a bucket
that has one writes nothing. Runners only carry messages.
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
"""Rows that a task of either stage keeps in memory for the exchange."""

CHUNK_BYTES = 4 << 20
"""The largest chunk; a row that is larger alone travels alone."""

_MOST_BUCKETS_A_SLOT = 4
"""More buckets are no faster: each one is a task, and every reading task holds rows for all of them."""


@dataclass(frozen=True)
class Chunk:
    """Staged rows of one bucket on their way.

    Attributes:
        target: whose rows.
        order: number of the task that read them, and of the chunk among those that it sends.
        body: one record batch as an Arrow IPC stream.
    """

    target: str
    order: tuple[int, int]
    body: bytes


@dataclass(frozen=True)
class TaskOutcome:
    """What a task of stage 1 reports.

    Attributes:
        task: its number.
        report: in a bucket's buffer always a failure.
    """

    task: int
    report: TaskReport


ShuffleMessage: TypeAlias = tuple[int, Chunk | TaskOutcome]
"""The bucket that it goes to, and the content. The number behind the last bucket stands for the driver."""


@dataclass(frozen=True)
class ShuffleConfig:
    """How rows are cut on their way.

    Attributes:
        buckets: tasks of stage 2.
        chunk_bytes: about the largest size of a chunk.
        held_bytes: rows of one target that wait in a task until their bucket has enough for a chunk.
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
            chunks_held: chunks that the engine itself keeps in memory before it lets go of any.
        """
        buckets = max(1, min(tasks, _MOST_BUCKETS_A_SLOT * slots))
        return cls(buckets, min(CHUNK_BYTES, HELD_BYTES // chunks_held))


def has_keys(specs: Sequence[TaskSpec]) -> bool:
    """Whether rows of an epoch have to travel."""
    return any(spec.outputs.keyed for spec in specs)


def send(
    spec: TaskSpec, attempt: TaskAttempt, task: int, shuffle: ShuffleConfig
) -> Generator[ShuffleMessage, None, None]:
    """Stage 1 of one task: write what needs no key, send the rest on its way, and last the task's report.

    Like `ingest.execution.task.attempt_task`: an attempt that fails or is given up (the engine closes the
    iterator) removes what it wrote; an error that another attempt would only repeat is reported.

    Args:
        spec: what to read, and where it goes.
        attempt: this attempt, as the engine numbers it.
        task: the task's number in the epoch, the same for all of its attempts.
        shuffle: how rows are cut.
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
    """Staged rows of one target, until those of a bucket are enough for a chunk."""

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
        """What became of rows that do not travel; of the others their bucket reports."""
        return WriteReport(0, 0, rejected=self._rejected)

    def add(self, accepted: AcceptedRows) -> pa.RecordBatch:
        """Stage rows and take them in; what the target can never take comes back, in `REJECTED_SCHEMA`."""
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
        """Chunks of buckets that have enough rows; all, where many small ones add up to too much."""
        if sum(self._bytes) >= self._shuffle.held_bytes:
            yield from self.rest()
            return
        for bucket, size in enumerate(self._bytes):
            if size >= self._shuffle.chunk_bytes:
                yield from self._chunks(bucket)

    def rest(self) -> Iterator[ShuffleMessage]:
        """Chunks of all rows that still wait."""
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
    """All that one bucket gets: kept until the last of it is there, since it may say that nothing is to be written.

    Rows come out in the order in which tasks read them, not in that of their arrival: every attempt at a
    bucket gets the same rows in the same order, so whichever row of a key it keeps, another attempt keeps it too.
    What does not fit into memory lies in a file without a name, which goes with the process however
    that ends. Batches are views of memory or file: who keeps one keeps no copy of it.
    """

    def __init__(self, held_bytes: int = HELD_BYTES, folder: str | None = None) -> None:
        """Nothing is there yet.

        Args:
            held_bytes: chunks beyond that go to the file.
            folder: where the file lies; None where temporary files lie.
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
        # Views of the file stay good: they hold the memory that it is mapped to.
        if self._file is not None:
            self._file.close()

    def put(self, content: Chunk | TaskOutcome) -> None:
        """Keep the content of one message."""
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
        """Each chunk's target and rows."""
        found = [(chunk.order, chunk.target, pa.py_buffer(chunk.body)) for chunk in self._held]
        if self._file is not None:
            self._file.flush()
            content = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
            found += [(order, target, content[part]) for target, order, part in self._filed]
        for _, target, body in sorted(found, key=lambda each: each[:2]):
            yield target, _unpacked(body)


def receive(buffer: BucketBuffer, outputs: Outputs, epoch: int, attempt: TaskAttempt) -> TaskReport:
    """Stage 2 of one bucket: write its rows to the keyed targets, and what those refuse to the quarantine.

    Nothing is opened where a task of stage 1 failed for good. Errors are reported or raised as in
    `ingest.execution.task.attempt_task`.

    Args:
        buffer: all that was sent to the bucket.
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
    """Both stages in this process, task after task; the reports of stage 1, then those of the buckets.

    Args:
        specs: the tasks of stage 1, of one epoch.
        shuffle: how rows are cut.
        attempt: from stage (0, 1) and task to the attempt's numbers.
        folder: where rows lie that do not fit into memory.
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
