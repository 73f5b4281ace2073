"""Rows of a task committed every so often: visible at once, at least once.

For readers that cannot wait for an epoch. A task that runs again, or an epoch that is rolled back and read
again, writes its rows once more: the same keys get the same values, so nothing is there twice, but a
value that somebody changed in between is overwritten, and rows of an epoch that never commits stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import pyarrow as pa

from sinks.base import BatchWriter, PartitionWriter, SinkContext, Spread, TargetOptions, TaskAttempt, in_turn
from sinks.tikv.client import Endpoint, connection
from sinks.tikv.dedup import dropped
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import TikvOptions
from sinks.tikv.place import TikvPlace
from sinks.tikv.records import epoch_record
from sinks.tikv.transaction import write_mutations
from sinks.tikv.writer import RowRules, size_of
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import CommitUnknownError, DataError, StoreUnavailableError
from timeline.failpoints import reach


@dataclass
class MinibatchSink(TikvPlace):
    """Small transactions of single tasks, and an epoch record once the epoch is decided. See Sink."""

    Options = cast(type[TargetOptions], TikvOptions)

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """See Sink."""
        return cls.at(options, context)

    def begin(self, plan: Plan) -> PartitionWriter:
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
            detail={"cluster_id": str(self.client.pd.cluster_id)},
        )

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink: its rows are there already."""
        return []

    def commit(self, part: Part, spread: Spread = in_turn) -> None:
        """See Sink: only the epoch's record is left to be written."""
        if part.rows == 0:
            return
        try:
            self.refuse_other_cluster(part, str(part.detail["cluster_id"]))
            if self.is_applied(part.epoch):
                return
            reach("part-committing")
            key = self.records.epoch_key(part.epoch.epoch)
            self.records.write([(key, epoch_record(part.epoch, self.layout))], self.ttl_ms)
        except StoreUnavailableError as error:
            raise CommitUnknownError(f"{self.target}: {part.epoch} may be committed: {error}") from error

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink; rows of minibatches stay."""
        return []

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink."""
        if part is not None and (older := self.older_records(epoch)):
            self.records.write([(key, None) for key in older], self.ttl_ms)

    def leftovers(self) -> Sequence[str]:
        """See Sink; there are none."""
        return []


@dataclass(frozen=True)
class MinibatchWriter:
    """The `PartitionWriter` of a minibatch target."""

    endpoint: Endpoint
    rules: RowRules
    ttl_ms: int
    max_rows: int
    max_interval_s: float

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """See PartitionWriter."""
        return _BatchWriter(self)


class _BatchWriter:
    """Collects rows until there are enough of them, or the first has waited long enough."""

    def __init__(self, writer: MinibatchWriter, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._since_s = 0.0
        self._written = self._bytes = self._dropped = 0

    def write(self, batch: pa.RecordBatch) -> None:
        most = self._writer.max_rows
        while batch.num_rows:
            if not self._batches:
                self._since_s = self._monotonic()
            part, batch = batch.slice(0, most - self._rows), batch.slice(most - self._rows)
            self._batches.append(part)
            self._rows += part.num_rows
            if self._rows >= most or self._monotonic() - self._since_s >= self._writer.max_interval_s:
                self._flush()

    def close(self) -> WriteReport:
        self._flush()
        return WriteReport(self._written, self._bytes, dropped=self._dropped)

    def abort(self) -> None:
        self._batches.clear()

    def _flush(self) -> None:
        if not self._batches:
            return
        rules = self._writer.rules
        rows = pa.Table.from_batches(self._batches).combine_chunks().to_batches()[0]
        self._batches.clear()
        self._rows = 0
        staged = rules.stage(rows, "this task", pa.array(range(rows.num_rows), pa.int64()))
        if staged.rejected.num_rows:
            reason = staged.rejected.column("reason")[0]
            raise DataError(
                f"{rules.target}: a row cannot be written: {reason}; transaction: checkpoint sets such rows aside"
            )
        mutations = Mutations.of(staged.rows.column("key"), staged.rows.column("value"), inserts=False)
        write_mutations(connection(self._writer.endpoint), mutations, self._writer.ttl_ms)
        self._written += staged.rows.num_rows
        self._bytes += size_of(pa.Table.from_batches([staged.rows]))
        self._dropped += dropped(staged.rows)
