"""Rows committed in small transactions of single tasks: visible at once, delivered at least once.

For readers that cannot wait for an epoch. A task retry, or an epoch that is rolled back and read again, writes its
rows again: the same keys get the same values, so there are no duplicates, but a value that another client changed in
between is overwritten, and rows of an epoch that never commits stay. Rejected rows go to the quarantine, which holds
those of committed epochs, exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from sinks.base import (
    REJECTED_SCHEMA,
    ParallelRunner,
    SelectiveBatchWriter,
    SelectiveWriter,
    TargetOptions,
    TaskAttempt,
    sequential,
)
from sinks.tikv.client import Endpoint, connection
from sinks.tikv.dedup import dropped, pick
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import TikvOptions
from sinks.tikv.records import epoch_record
from sinks.tikv.staged import one_batch
from sinks.tikv.table import TikvTable
from sinks.tikv.transaction import write_mutations
from sinks.tikv.writer import RowRules, size_of
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import CommitUnknownError, StoreUnavailableError
from timeline.failpoints import reach

_MOST_BYTES = 64 << 20
"""Buffered bytes of keys and values at which a transaction is committed, however few rows it has."""


@dataclass
class MinibatchSink(TikvTable):
    """Writes small transactions of single tasks, and an epoch record once the epoch is decided. See Sink."""

    Options = cast(type[TargetOptions], TikvOptions)

    def begin(self, plan: Plan) -> SelectiveWriter:
        """See Sink; rows become visible while they are written."""
        return MinibatchWriter(self.endpoint, self.rules, self.ttl_ms, self.options.max_rows, self.options.max_interval)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        return Part(
            target=self.target,
            epoch=epoch,
            rows=sum(report.rows for report in reports),
            bytes=sum(report.bytes for report in reports),
            dropped=sum(report.dropped for report in reports),
            rejected=sum(report.rejected for report in reports),
            detail={"cluster_id": str(self.client.pd.cluster_id)},
        )

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink; the rows are visible already."""
        return []

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink; writes only the epoch record."""
        if part.rows == 0:
            return
        try:
            self.check_cluster(part, str(part.detail["cluster_id"]))
            if self.is_applied(part.epoch):
                return
            reach("part-committing")
            key = self.records.epoch_key(part.epoch.epoch)
            self.records.write([(key, epoch_record(part.epoch, self.layout))], self.ttl_ms)
        except StoreUnavailableError as error:
            raise CommitUnknownError(f"{self.target}: {part.epoch} may be committed: {error}") from error

    def read_rows(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """See ReadableSink; in key order, read by tikv-client."""
        from sinks.tikv.reader import read_rows  # loads tikv-client, which only readers need

        return read_rows(self, limit)

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink; rows of minibatches stay."""
        return []

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink."""
        if part is not None and (older := self.older_records(epoch)):
            self.records.write([(key, None) for key in older], self.ttl_ms)

    def unreleased(self) -> Sequence[str]:
        """See Sink; there are none."""
        return []


@dataclass(frozen=True)
class MinibatchWriter:
    """The `SelectiveWriter` of a minibatch target."""

    endpoint: Endpoint
    rules: RowRules
    ttl_ms: int
    max_rows: int
    max_interval_s: float

    def open_selective(self, attempt: TaskAttempt) -> SelectiveBatchWriter:
        """See SelectiveWriter."""
        return _MiniBatchWriter(self)


class _MiniBatchWriter:
    """Buffers rows until `max_rows`, `_MOST_BYTES` or `max_interval_s` is reached."""

    def __init__(self, writer: MinibatchWriter, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self._staged: list[pa.RecordBatch] = []
        self._rows = self._staged_bytes = 0
        self._since_s = 0.0
        self._written = self._bytes = self._dropped = self._rejected = 0

    def take(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        refused: list[pa.RecordBatch] = []
        while rows.num_rows:
            room = self._writer.max_rows - self._rows
            refused.append(self._stage(rows.slice(0, room), shard, offsets.slice(0, room)))
            rows, offsets = rows.slice(room), offsets.slice(room)
            if self._is_due:
                self._flush()
        return pa.concat_batches(refused) if refused else pa.RecordBatch.from_pylist([], REJECTED_SCHEMA)

    def close(self) -> WriteReport:
        self._flush()
        return WriteReport(self._written, self._bytes, dropped=self._dropped, rejected=self._rejected)

    def abort(self) -> None:
        self._staged.clear()

    @property
    def _is_due(self) -> bool:
        return (
            self._rows >= self._writer.max_rows
            or self._staged_bytes >= _MOST_BYTES
            or self._monotonic() - self._since_s >= self._writer.max_interval_s
        )

    def _stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        """Buffer rows for the next transaction; return the rejected ones."""
        if not self._staged:
            self._since_s = self._monotonic()
        staged = self._writer.rules.stage(rows, shard, offsets)
        self._staged.append(staged.rows)
        self._rows += rows.num_rows
        self._staged_bytes += staged.rows.nbytes
        self._rejected += staged.rejected.num_rows
        return staged.rejected

    def _flush(self) -> None:
        stager = self._writer.rules.stager
        rows = one_batch(pick(pa.Table.from_batches(self._staged, stager.schema), stager.rule))
        self._staged.clear()
        self._rows = self._staged_bytes = 0
        if not rows.num_rows:
            return
        mutations = Mutations.of(rows.column("key"), rows.column("value"), inserts=False)
        write_mutations(connection(self._writer.endpoint), mutations, self._writer.ttl_ms)
        self._written += rows.num_rows
        self._bytes += size_of(pa.Table.from_batches([rows]))
        self._dropped += dropped(rows)
