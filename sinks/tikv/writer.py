"""Writes rows of an epoch into its transaction: staged in the reading task, prewritten in the task of their key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.base import REJECTED_SCHEMA, KeyedBatchWriter, Staged, TaskAttempt
from sinks.refused import as_json_lines
from sinks.tikv.client import Endpoint, connection
from sinks.tikv.dedup import dropped, pick_all
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import OnRow
from sinks.tikv.settling import Span
from sinks.tikv.staged import Stager, bucket, in_rounds
from sinks.tikv.transaction import Transaction, merge_spans, prewrite
from timeline.epoch import Json, WriteReport
from timeline.errors import DataError
from timeline.units import count

ROUND_BYTES = 256 << 20
"""Bytes of a bucket that are sorted and locked at once: bounds memory, and fits Arrow's 32-bit offsets."""


@dataclass(frozen=True)
class RowRules:
    """Handling of rows that a TiKV target cannot write as they are; picklable.

    Attributes:
        target: the target's name, for messages.
        stager: encodes rows as keys and values.
        inserts: whether a row whose key exists is refused.
        on_existing: handling of a refused row.
        on_null_key: handling of a row without a key.
    """

    target: str
    stager: Stager
    inserts: bool
    on_existing: OnRow
    on_null_key: OnRow

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        """See KeyedWriter."""
        if self.on_null_key is OnRow.FAIL:
            self._refuse_null_keys(rows, shard, offsets)
        return self.stager.stage(rows, shard, offsets)

    def refuse(self, existing: pa.Table) -> pa.RecordBatch:
        """Staged rows whose keys exist, as rows for the quarantine.

        Raises:
            DataError: there are such rows, and the job file says that they stop the job.
        """
        if existing.num_rows and self.on_existing is OnRow.FAIL:
            first = existing.slice(0, 1).to_pylist()[0]
            raise DataError(
                f"{self.target}: rows whose key exists already: {existing.num_rows:,}, the first at "
                f"{first['shard']} offset {first['offset']}; on_existing: quarantine sets such rows aside"
            )
        reasons = pa.array([f"its key exists in target {self.target}"] * existing.num_rows, pa.string())
        shards, offsets = (existing.column(name).combine_chunks() for name in ("shard", "offset"))
        raw = as_json_lines(self.stager.restore(existing))
        context = pa.nulls(existing.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([shards, offsets, reasons, raw, context], schema=REJECTED_SCHEMA)

    def _refuse_null_keys(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> None:
        for field in self.stager.keys.columns:
            column = rows.column(field.name)
            if column.null_count:
                first = pc.index(column.is_null(), True).as_py()
                raise DataError(
                    f"{self.target}: key column {field.name!r} is null in {count(column.null_count, 'row')}, the first "
                    f"at {shard} offset {offsets[first]}; on_null_key: quarantine sets such rows aside"
                )


@dataclass(frozen=True)
class TransactionWriter:
    """The `KeyedWriter` of one epoch's transaction."""

    endpoint: Endpoint
    transaction: Transaction
    rules: RowRules

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        """See KeyedWriter."""
        return self.rules.stage(rows, shard, offsets)

    def buckets(self, staged: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        """See KeyedWriter."""
        return bucket(staged, count)

    def open(self, attempt: TaskAttempt) -> KeyedBatchWriter:
        """See KeyedWriter."""
        return _BucketWriter(self)


class _BucketWriter:
    """Collects a bucket, keeps one row of each key, and prewrites in rounds, each in key order."""

    def __init__(self, writer: TransactionWriter) -> None:
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self._spans: list[Span] = []
        self._rows = self._bytes = self._dropped = self._rejected = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def settle(self) -> Iterator[pa.RecordBatch]:
        for rows in in_rounds(self._batches, ROUND_BYTES):
            yield self._prewrite(rows)
        self._batches.clear()

    def _prewrite(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Prewrite one round; return its refused rows."""
        writer, rules = self._writer, self._writer.rules
        # A round is larger than `ROUND_BYTES` where few keys have many rows.
        rows = pick_all(batches, rules.stager.schema, rules.stager.rule, 2 * ROUND_BYTES)
        self._dropped += dropped(rows)
        existing = rows.slice(0, 0)
        if rows.num_rows:
            keys, values = (rows.column(name).combine_chunks() for name in ("key", "value"))
            mutations = Mutations.of(keys, values, inserts=rules.inserts)
            done = prewrite(connection(writer.endpoint), writer.transaction, mutations)
            self._spans = merge_spans([*self._spans, *done.spans])
            if done.existing:
                exists = pc.is_in(keys, value_set=pa.array(done.existing, pa.binary()))
                existing = rows.filter(exists)
                rows = rows.filter(pc.invert(exists))
        refused = rules.refuse(existing)
        self._rows += rows.num_rows
        self._bytes += size_of(rows)
        self._rejected += existing.num_rows
        return refused

    def close(self) -> WriteReport:
        spans: list[Json] = [[start.hex(), end.hex()] for start, end in self._spans]
        return WriteReport(
            self._rows, self._bytes, dropped=self._dropped, rejected=self._rejected, detail={"spans": spans}
        )

    def abort(self) -> None:
        # Prewritten rows are rolled back with the transaction, or prewritten again by the next attempt.
        self._batches.clear()


def size_of(rows: pa.Table) -> int:
    """Bytes of keys and values."""
    sizes = (pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("key", "value"))
    return int(sum(sizes))
