"""What a target must do so that an epoch reaches it exactly once.

::

    driver     ensure ── begin ─────────────────── prepare ── [decision] ── commit ── release
    executors             └ writer ── open ── write* ── close ┘
    any process, later                     verify, lookup, commit, abort, release, unreleased

A *part* is a target's share of an epoch in its prepared state: durable, complete, invisible. It
travels through the manifest as JSON, so any process can commit or abort it without the one that
wrote it. The contract suite in `tests/contract/sink_contract.py` is the definition; a new sink is
one module, one entry point in the group ``tideline.sinks`` and one class that inherits that suite.

More than `Sink` asks for is offered by methods that functions of this package look for; nothing outside of it asks
for a class: `sinks.held` (which epochs a target has, where it lies, copies of its files), `sinks.audit` (fsck),
`sinks.reading` (rows read back), `sinks.writer_kinds` (rows with keys, rows that are refused), and `sinks.options` (the
job file's block).
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
"""Columns that say where a row came from, behind the job's own ones when ``lineage: true``."""

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
        pa.field("context", pa.string()),
    ]
)
"""Rejected rows, of a decoder or of a target: where the record starts, why it was refused, its raw bytes.

``context`` is a JSON object of what the source knew of the record besides, without which it cannot be
decoded again: a CSV file's header, a message's key, time and headers. Null where the bytes are enough.
"""


@dataclass(frozen=True)
class SinkContext:
    """What every target of a job shares.

    Attributes:
        app_id: the job's key in a target's markers, made of the timeline's id: jobs of one name never meet.
        schema: columns of the rows that will be written, lineage columns included.
        partition_by: how lake targets lay their files out.
        on_empty_partition: what becomes of rows with an empty text in a partition column.
        storage: fsspec options for every path of the job.
        job: the job's name; "" where a target need not know it.
        on_deleted: called in the driver for files that the target deletes; None where nobody counts them.
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
    """Data files that no reader counts and that a sink has deleted.

    Attributes:
        target: the target's name in the job.
        files: number of files.
        bytes: their size, as far as the store told it before.
    """

    target: str
    files: int
    bytes: int


@runtime_checkable
class RememberingSink(Protocol):
    """A sink that knows which timelines of its job have written to it; what `Sink` has is there as well."""

    def other_timeline(self) -> str | None:
        """In words, where rows of another timeline of this job are; None where there are none.

        Raises:
            StoreUnavailableError: it could not be looked at.
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
        """Take rows in; memory stays bounded however many are written."""

    def close(self) -> WriteReport:
        """Make everything written durable and say what it was."""

    def abort(self) -> None:
        """Give up and remove what this attempt wrote, as far as possible. Idempotent; does not raise."""


class PartitionWriter(Protocol):
    """Picklable: opens a `BatchWriter` on whichever executor it reaches."""

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """Start writing as this task attempt."""


@runtime_checkable
class RefusingWriter(Protocol):
    """A `PartitionWriter` that cannot take every row; what it has besides is there as well."""

    @property
    def may_refuse(self) -> bool:
        """Whether there can be rows that it refuses: then the task knows their offsets."""

    def refuse(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        """Index and reason of each row that must not be written; the caller quarantines them."""


class SelectiveBatchWriter(Protocol):
    """One task attempt's open writer to a target that cannot take every row."""

    def take(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        """Take rows in; memory stays bounded however many are written.

        Args:
            rows: accepted rows, in the target's schema.
            shard: whose records they are.
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
    """Picklable: the `PartitionWriter` of a target that writes rows where they are read, and refuses some of them."""

    def open_selective(self, attempt: TaskAttempt) -> SelectiveBatchWriter:
        """Start writing as this task attempt."""


@dataclass(frozen=True)
class Staged:
    """Rows on their way to a target with keys.

    Attributes:
        rows: in the target's own form; they travel from the task that read them to the one that writes their key.
            A row for which others of the batch were dropped says for how many it stands, so that whichever attempt
            at a task its bucket got it from, the bucket's report counts them all.
        rejected: rows that the target can never take, in `REJECTED_SCHEMA`.
    """

    rows: pa.RecordBatch
    rejected: pa.RecordBatch


class KeyedBatchWriter(BatchWriter, Protocol):
    """One task attempt's open writer of whole buckets; `write` takes staged rows."""

    def settle(self) -> Iterable[pa.RecordBatch]:
        """Write all that was taken in; called once, before `close`. Until then nothing is where others see it.

        Every attempt at a bucket takes in the same rows in the same order. It is done once all is taken from what
        comes back.

        Returns:
            rows that the target refused, in `REJECTED_SCHEMA`, at any time as many as fit into memory; the report
            counts them.

        Raises:
            DataError: a row stops the job because the job file says so.
        """


@runtime_checkable
class KeyedWriter(Protocol):
    """Picklable: the `PartitionWriter` of a target in which two rows of one key cannot both stay.

    ::

        tasks that read    rows ─ stage ─► staged rows ─ buckets ─┐
        engine                                                    └─ all rows of one bucket, from all tasks
        tasks that write   open ── write* ── settle ── close

    The engine runs stage and buckets wherever records are read, and brings each bucket to one task.
    """

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        """Bring rows into the form in which they travel.

        Args:
            rows: accepted rows, in the target's schema.
            shard: whose records they are.
            offsets: int64, the offset of each row's record.

        Raises:
            DataError: a row stops the job because the job file says so.
        """

    def buckets(self, staged: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        """For each staged row its bucket in ``[0, count)``: a function of its key alone, the same on every machine."""

    def open(self, attempt: TaskAttempt) -> KeyedBatchWriter:
        """Start writing buckets as this task attempt."""


class ParallelRunner(Protocol):
    """Runs independent calls somewhere, several at once; picklable ones, wherever that is not this process."""

    def __call__(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run all; raises an error of one of them where they do not all succeed."""


def sequential(calls: Sequence[Callable[[], None]]) -> None:
    """The `ParallelRunner` that needs nothing: one after another, here."""
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
        """The target's name in the job, unique and stable: it keys the parts in a manifest."""

    def ensure(self) -> None:
        """Check that the target can take this job's epochs; creates nothing that a reader sees.

        Raises:
            TargetRefusedError: an existing table differs; the message holds the difference.
            StoreUnavailableError: it could not be looked at.
        """

    def begin(self, plan: Plan) -> PartitionWriter | SelectiveWriter | KeyedWriter:
        """Start an epoch; nothing is visible to readers until `commit`. Idempotent in one process.

        Raises:
            TargetError: it cannot be started now; the message says why.
        """

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """Make the epoch durable and complete, or fail; nothing becomes visible.

        Args:
            epoch: the epoch begun before.
            reports: one for each task, of the attempt that the engine accepted.
        """

    def verify(self, part: Part) -> Sequence[str]:
        """What is missing or damaged in a prepared part, in words; empty when it can be committed."""

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """Make the part visible, atomically. Idempotent: any process, any number of times.

        The caller applies epochs in order. A part of 0 rows changes nothing. What attempts without a report wrote is
        deleted before: a reader that lists files never takes it for rows.

        Args:
            part: the prepared part.
            parallel: runs what can be done side by side once the part is visible.

        Raises:
            ReplayNeededError: the target has lost what was prepared; the epoch has to be written to it again.
            TargetRefusedError: the table changed so that it cannot take the part.
            CommitRejectedError: it did not land, within the bounds of the retries.
            CommitUnknownError: it may have landed.
        """

    def lookup(self, epoch: EpochRef) -> Lookup:
        """Whether the target has applied this epoch (or a later one, which implies it)."""

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """Remove everything of an epoch that was decided against; idempotent, from storage alone.

        Keeps the record of what there was to remove (markers) until `release`.

        Returns:
            paths below the target's root that the epoch had written or announced.
        """

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """Last step, after the instant is completed: delete late files, then the markers that are no longer needed.

        A file named in `part` stays, so its marker can go. Any other may be written by a task that is still running
        somewhere, or by a request that its client has given up: what was announced is deleted if it is there, and the
        marker stays for a later look.

        Args:
            epoch: an epoch whose instant is completed or rolled back.
            part: the part that stays; None after a rollback.
            final: no task of this epoch can be alive any more: all markers go.
        """

    def unreleased(self) -> Sequence[str]:
        """Instant times of which something still waits for `release`."""
