"""The protocol of a target, by which an epoch reaches the target exactly once.

::

    driver     ensure ── begin ─────────────────── prepare ── [decision] ── commit ── release
    executors             └ writer ── open ── write* ── close ┘
    any process, later                     verify, lookup, commit, abort, release, unreleased

A *part* is a target's share of an epoch in its prepared state: durable, complete, invisible. It
travels through the manifest as JSON, so any process can commit or abort it without the one that
wrote it. The contract suite in `tests/contract/sink_contract.py` is the definition; a new sink is
one module, one entry point in the group ``tideline.sinks`` and one class that inherits that suite.

Optional abilities are methods beyond `Sink`, found by functions of this package; code outside of it checks for no
class: `sinks.held` (epochs of a target, its place, copies of its files), `sinks.audit` (fsck), `sinks.reading` (rows
read back), `sinks.writer_kinds` (rows with keys, refused rows), and `sinks.options` (the job file's block).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import pyarrow as pa

from sinks.options import TargetOptions
from sinks.partition import EmptyPartition, PartitionField
from timeline.epoch import EpochRef, Json, Part, Plan, WriteReport, WrittenFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["EpochRef", "Json", "Part", "Plan", "TargetOptions", "WriteReport", "WrittenFile"]

LINEAGE_COLUMNS = (("_shard", pa.string()), ("_offset", pa.int64()), ("_epoch", pa.int64()))
"""Columns with a row's origin, behind the job's own columns when ``lineage: true``."""

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
        pa.field("context", pa.string()),
    ]
)
"""Rejected rows, of a decoder or of a target: shard and offset of the record, reason, raw bytes.

``context`` is a JSON object with data of the source that decoding the record again needs besides: a CSV file's header,
a message's key, time and headers. Null if the bytes are enough.
"""


@dataclass(frozen=True)
class SinkContext:
    """Settings that all targets of a job share.

    Attributes:
        app_id: the job's key in a target's markers, derived from the timeline's id: jobs of one name never share it.
        schema: columns of the rows that will be written, lineage columns included.
        partition_by: how lake targets lay their files out.
        on_empty_partition: treatment of rows with an empty text in a partition column.
        storage: fsspec options for every path of the job.
        job: the job's name; "" if the target does not need it.
        on_deleted: callback in the driver for files that the target deletes; None if nobody counts them.
    """

    app_id: str
    schema: pa.Schema
    partition_by: tuple[PartitionField, ...] = ()
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE
    job: str = ""
    on_deleted: Callable[[DeletedFiles], None] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class DeletedFiles:
    """Data files, invisible to readers, that a sink has deleted.

    Attributes:
        target: the target's name in the job.
        files: number of files.
        bytes: their size, as far as the store reported it before the deletion.
    """

    target: str
    files: int
    bytes: int


@runtime_checkable
class RememberingSink(Protocol):
    """A sink that knows which timelines of its job have written to its target; an addition to `Sink`."""

    def other_timeline(self) -> str | None:
        """The place of rows of another timeline of this job, human-readable; None if there are none.

        Raises:
            StoreUnavailableError: the target could not be read.
        """


class Lookup(enum.Enum):
    """Whether a target has applied an epoch."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt of one task, as the engine numbers them; makes file names unique and traceable."""

    task: int
    stage: int
    attempt: int


class BatchWriter(Protocol):
    """One task attempt's open writer to one target."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; memory stays bounded for any number of rows."""

    def close(self) -> WriteReport:
        """Make all written rows durable and report them."""

    def abort(self) -> None:
        """Give up and delete this attempt's output, as far as possible. Idempotent; does not raise."""


class PartitionWriter(Protocol):
    """Picklable: opens a `BatchWriter` on any executor."""

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """Start writing as this task attempt."""


@runtime_checkable
class RefusingWriter(Protocol):
    """A `PartitionWriter` that may refuse rows; an addition to `PartitionWriter`."""

    @property
    def may_refuse(self) -> bool:
        """Whether rows may be refused: then the task needs their offsets."""

    def refuse(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        """Index and reason of each row that must not be written; the caller quarantines them."""


class SelectiveBatchWriter(Protocol):
    """One task attempt's open writer to a target that may refuse rows."""

    def take(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        """Write rows; memory stays bounded for any number of rows.

        Args:
            rows: accepted rows, in the target's schema.
            shard: the shard of the rows' records.
            offsets: int64, the offset of each row's record.

        Returns:
            the rows that the target refuses, in `REJECTED_SCHEMA`; the report counts them.

        Raises:
            DataError: a row stops the job because the job file says so.
        """

    def close(self) -> WriteReport:
        """See BatchWriter."""

    def abort(self) -> None:
        """See BatchWriter."""


@runtime_checkable
class SelectiveWriter(Protocol):
    """Picklable: the writer of a target that writes rows where they are read, and may refuse some of them."""

    def open_selective(self, attempt: TaskAttempt) -> SelectiveBatchWriter:
        """Start writing as this task attempt."""


@dataclass(frozen=True)
class Staged:
    """Rows in transit to a target with keys.

    Attributes:
        rows: in the target's own form; sent from the task that read them to the task that writes their key. Each row
            carries the number of duplicates of the batch that it replaces, so the bucket's report counts them all,
            whichever attempt of a task the bucket came from.
        rejected: rows that the target can never take, in `REJECTED_SCHEMA`.
    """

    rows: pa.RecordBatch
    rejected: pa.RecordBatch


class KeyedBatchWriter(BatchWriter, Protocol):
    """One task attempt's open writer of whole buckets; `write` takes staged rows."""

    def settle(self) -> Iterable[pa.RecordBatch]:
        """Write all rows passed to `write`; called once, before `close`. Until then nothing is visible to others.

        Every attempt of a bucket receives the same rows in the same order. Consume the iterator to the end; only then
        is everything written.

        Returns:
            rows that the target refused, in `REJECTED_SCHEMA`, in batches that fit into memory; the report counts them.

        Raises:
            DataError: a row stops the job because the job file says so.
        """


@runtime_checkable
class KeyedWriter(Protocol):
    """Picklable: the writer of a target that keeps one row for each key.

    ::

        tasks that read    rows ─ stage ─► staged rows ─ buckets ─┐
        engine                                                    └─ all rows of one bucket, from all tasks
        tasks that write   open ── write* ── settle ── close

    The engine runs `stage` and `buckets` where records are read, and sends each bucket to one task.
    """

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        """Convert rows to the form in which they are sent to the task of their bucket.

        Args:
            rows: accepted rows, in the target's schema.
            shard: the shard of the rows' records.
            offsets: int64, the offset of each row's record.

        Raises:
            DataError: a row stops the job because the job file says so.
        """

    def buckets(self, staged: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        """Bucket of each staged row, in ``[0, count)``: a function of its key alone, the same on every machine."""

    def open(self, attempt: TaskAttempt) -> KeyedBatchWriter:
        """Start writing buckets as this task attempt."""


class ParallelRunner(Protocol):
    """Runs independent calls concurrently; calls must be picklable if they run in another process."""

    def __call__(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run all calls; raises the error of a failed one if not all succeed."""


def sequential(calls: Sequence[Callable[[], None]]) -> None:
    """The `ParallelRunner` of this process alone: one call after another."""
    for call in calls:
        call()


class Sink(Protocol):
    """One target of a job, seen from the driver or from a recovering process."""

    Options: type[TargetOptions]

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """The target that a job file's block describes; touches no storage."""

    @property
    def target(self) -> str:
        """The target's name in the job, unique and stable: the key of its parts in a manifest."""

    def ensure(self) -> None:
        """Check that the target can take this job's epochs; creates nothing that a reader sees.

        Raises:
            TargetRefusedError: an existing table differs; the message holds the difference.
            StoreUnavailableError: the target could not be read.
        """

    def begin(self, plan: Plan) -> PartitionWriter | SelectiveWriter | KeyedWriter:
        """Start an epoch; nothing is visible to readers until `commit`. Idempotent in one process.

        Raises:
            TargetError: the epoch cannot be started now; the message says why.
        """

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """Make the epoch durable and complete, or fail; nothing becomes visible.

        Args:
            epoch: the epoch begun before.
            reports: one for each task, of the attempt that the engine accepted.
        """

    def verify(self, part: Part) -> Sequence[str]:
        """Missing or damaged data of a prepared part, human-readable; empty if the part can be committed."""

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """Make the part visible, atomically. Idempotent: any process, any number of times.

        The caller applies epochs in order. A part of 0 rows changes nothing. Files of unreported task attempts are
        deleted first: a reader that lists files never counts them as rows.

        Args:
            part: the prepared part.
            parallel: runs concurrent work once the part is visible.

        Raises:
            ReplayNeededError: the target has lost the prepared data; the epoch has to be written to it again.
            TargetRefusedError: the table changed so that it cannot take the part.
            CommitRejectedError: the commit did not land, within the bounds of the retries.
            CommitUnknownError: the commit may have landed.
        """

    def lookup(self, epoch: EpochRef) -> Lookup:
        """Whether the target has applied this epoch (or a later one, which implies it)."""

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """Delete all data of an epoch that is rolled back; idempotent, from storage alone.

        Keeps the record of that data (markers) until `release`.

        Returns:
            paths below the target's root that the epoch had written or announced.
        """

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """Last step, after the instant is completed: delete late files, then the markers that are no longer needed.

        A file named in `part` stays, so its marker is deleted. Any other file may still be written, by a task that is
        running somewhere, or by a request that its client has given up: an announced file is deleted if it exists, and
        its marker stays for a later check.

        Args:
            epoch: an epoch whose instant is completed or rolled back.
            part: the part that stays; None after a rollback.
            final: no task of this epoch can be alive any more: all markers are deleted.
        """

    def unreleased(self) -> Sequence[str]:
        """Times of instants that still wait for `release`."""
