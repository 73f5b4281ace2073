"""Rows of an epoch into its transaction: staged where they are read, prewritten where all rows of a key meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.base import REJECTED_SCHEMA, KeyedBatchWriter, Staged, TaskAttempt
from sinks.tikv.client import Endpoint, connection
from sinks.tikv.dedup import pick
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import OnRow
from sinks.tikv.staged import Stager, as_json_lines, bucket
from sinks.tikv.transaction import Transaction, prewrite
from timeline.epoch import Json, WriteReport
from timeline.errors import DataError, TargetRefusedError

MOST_BUCKET_BYTES = 2**31 - 1
"""Keys, or values, of one bucket: Arrow counts the bytes of a binary column in 32 bits."""


@dataclass(frozen=True)
class RowRules:
    """What is done with rows that a TiKV target cannot take as they are; picklable.

    Attributes:
        target: the target's name, for messages.
        stager: brings rows into their form as keys and values.
        inserts: whether a key that exists refuses a row.
        on_existing: what becomes of that row.
        on_null_key: what becomes of a row without a key.
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
            DataError: the job file says that they stop the job.
        """
        if existing.num_rows and self.on_existing is OnRow.FAIL:
            first = existing.slice(0, 1).to_pylist()[0]
            raise DataError(
                f"{self.target}: {existing.num_rows} keys exist already, the first is that of the row at "
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
                    f"{self.target}: key column {field.name!r} is null in {column.null_count} rows, the first at "
                    f"{shard} offset {offsets[first]}; on_null_key: quarantine sets such rows aside"
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
    """Collects a bucket, keeps one row of each key, prewrites them in the order of their keys."""

    def __init__(self, writer: TransactionWriter) -> None:
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self._report = WriteReport(0, 0)

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def settle(self) -> pa.RecordBatch:
        writer, rules = self._writer, self._writer.rules
        staged = pa.Table.from_batches(self._batches, rules.stager.schema)
        self._batches.clear()
        check_bucket(staged, rules.target)
        rows, dropped = pick(staged, rules.stager.rule)
        existing = rows.slice(0, 0)
        spans: list[Json] = []
        if rows.num_rows:
            keys, values = (rows.column(name).combine_chunks() for name in ("key", "value"))
            mutations = Mutations.of(keys, values, inserts=rules.inserts)
            done = prewrite(connection(writer.endpoint), writer.transaction, mutations)
            spans = [[start.hex(), end.hex()] for start, end in done.spans]
            if done.existing:
                exists = pc.is_in(keys, value_set=pa.array(done.existing, pa.binary()))
                existing = rows.filter(exists)
                rows = rows.filter(pc.invert(exists))
        refused = rules.refuse(existing)
        self._report = WriteReport(
            rows.num_rows,
            size_of(rows),
            dropped=dropped,
            rejected=existing.num_rows,
            detail={"spans": spans},
        )
        return refused

    def close(self) -> WriteReport:
        return self._report

    def abort(self) -> None:
        # What is prewritten goes with the transaction, or is prewritten again by the next attempt.
        self._batches.clear()


def check_bucket(staged: pa.Table, target: str, most_bytes: int = MOST_BUCKET_BYTES) -> None:
    """Refuse a bucket that is too large to be sorted by key, before any row of it is locked.

    Args:
        staged: its rows.
        target: the target's name, for the message.
        most_bytes: of all keys, and of all values.

    Raises:
        TargetRefusedError: naming its size.
    """
    size_bytes = max(sum(chunk.nbytes for chunk in staged.column(name).chunks) for name in ("key", "value"))
    if size_bytes > most_bytes:
        raise TargetRefusedError(
            f"{target}: one task would have to sort {size_bytes:,} bytes of this epoch's rows, and sorts up to "
            f"{most_bytes:,}: plan smaller epochs (max_bytes_per_epoch or max_records_per_epoch), or give Spark "
            "more cores, so that there are more tasks"
        )


def size_of(rows: pa.Table) -> int:
    """Bytes of keys and values."""
    sizes = (pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("key", "value"))
    return int(sum(sizes))
