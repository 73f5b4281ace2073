"""Staged rows: encoded keys and values, shuffled between tasks before they are written.

::

    task that decodes    stage(rows) → staged rows, one of several duplicates, and rejected rows
    shuffle              bucket(staged, count): all rows of one key meet in one task
    task that writes     in_rounds(batches), in each of them pick_all drops the duplicates that are left; then prewrite
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.base import REJECTED_SCHEMA, Staged
from sinks.refused import refused_rows
from sinks.tikv.binary_arrays import Words, booleans, mask_of, values_of
from sinks.tikv.dedup import STANDS_FOR, Rule, pick
from sinks.tikv.key_codec import MAX_KEY_BYTES, KeyCodec
from sinks.tikv.value_codec import ValueCodec
from timeline.errors import ConfigError

MAX_ROW_BYTES = (4 << 20) - (4 << 10)
"""Largest key and value of a row together, so that every client can read the row.

Clients with gRPC's default (tikv-client among them) accept answers of up to 4 MiB; the answer to a get, batch get or
scan of one row has at most some 300 bytes beside the row (kvproto: ``kvrpcpb.GetResponse.exec_details_v2``). TiKV
accepts more: its ``raftstore.raft-entry-max-size`` is 8 MiB, TiDB's ``performance.txn-entry-size-limit`` 6 MiB.
"""

# The multipliers of splitmix64's finalizer (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators").
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Stager:
    """Converts rows of a job to staged rows and back; picklable.

    Attributes:
        keys: codec of the key columns.
        values: codec of the other stored columns.
        delete_marker: a boolean column that is not stored; true makes a row a delete of its key.
        rule: which of several rows with one key stays.
        slice_bytes: bytes of rows encoded at once; far below the 2 GiB that one binary column can address, so that
            there is room for JSON text.

    Raises:
        ConfigError: the rule's column is not among the stored ones, or cannot be ordered.
    """

    keys: KeyCodec
    values: ValueCodec
    delete_marker: str | None
    rule: Rule
    slice_bytes: int = 256 * 1024 * 1024

    @classmethod
    def of(
        cls, schema: pa.Schema, *, prefix: bytes, key: Sequence[str], rule: Rule, delete_marker: str | None = None
    ) -> Stager:
        """A stager for the columns of a job.

        Args:
            schema: schema of the job's rows.
            prefix: see `sinks.tikv.key_codec.check_prefix`.
            key: names of the key columns, in their order.
            rule: which of several rows with one key stays.
            delete_marker: see the class.

        Raises:
            ConfigError: a column does not exist, has an unsuitable type, or is used twice.
        """
        named = [("key", name) for name in key]
        named += [("dedup.by", rule.by)] if rule.by is not None else []
        named += [("delete_marker", delete_marker)] if delete_marker is not None else []
        for option, name in named:
            if name not in schema.names:
                raise ConfigError(f"{option}: there is no column `{name}`; allowed are {', '.join(schema.names)}")
        if delete_marker is not None and delete_marker in [*key, rule.by]:
            raise ConfigError(
                f"delete_marker: `{delete_marker}` is also used by key or dedup.by; name a column of its own"
            )
        if delete_marker is not None and not pa.types.is_boolean(schema.field(delete_marker).type):
            kind = schema.field(delete_marker).type
            raise ConfigError(f"delete_marker: column `{delete_marker}` is {kind}; allowed is boolean")
        stored = [field for field in schema if field.name not in key and field.name != delete_marker]
        keys = KeyCodec(prefix, tuple(schema.field(name) for name in key))
        return cls(keys, ValueCodec(pa.schema(stored)), delete_marker, rule)

    def __post_init__(self) -> None:
        if self.rule.by is not None and self.order_type is None:
            raise ConfigError(f"dedup.by: there is no stored column `{self.rule.by}`; allowed are {self._stored.names}")

    @cached_property
    def order_type(self) -> pa.DataType | None:
        """The type of the `order` column: int64, double, string or timestamp; None without a column to order by."""
        if self.rule.by is None or self.rule.by not in self._stored.names:
            return None
        kind, types = self._stored.field(self.rule.by).type, pa.types
        if types.is_timestamp(kind):
            return kind
        if types.is_signed_integer(kind) or types.is_date32(kind):
            return pa.int64()
        if types.is_floating(kind):
            return pa.float64()
        if types.is_string(kind) or types.is_large_string(kind):
            return pa.string()
        raise ConfigError(
            f"dedup.by: column `{self.rule.by}` is {kind}; allowed are tinyint to bigint, float, double, string, date, "
            "timestamp, timestamp_ntz"
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of staged rows; a null value is a delete."""
        order = [] if self.order_type is None else [pa.field("order", self.order_type)]
        return pa.schema(
            [
                pa.field("key", pa.binary(), nullable=False),
                pa.field("value", pa.binary()),
                *order,
                pa.field("shard", pa.string(), nullable=False),
                pa.field("offset", pa.int64(), nullable=False),
                pa.field(STANDS_FOR, pa.int64(), nullable=False),
            ]
        )

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        """Encode a batch; separate the rejected rows, and drop duplicates within the batch.

        Args:
            rows: columns of the job, in any order.
            shard: the shard that the rows are from.
            offsets: int64, each row's offset in the shard.
        """
        staged: list[pa.RecordBatch] = []
        rejected: list[pa.RecordBatch] = []
        for start, part in _slices(rows, self.slice_bytes):
            good, bad = self._stage_slice(part, shard, offsets.slice(start, part.num_rows))
            staged.append(good)
            rejected.append(bad)
        picked = pick(pa.Table.from_batches(staged, self.schema), self.rule)
        no_rejected = pa.RecordBatch.from_pylist([], REJECTED_SCHEMA)
        return Staged(one_batch(picked), pa.concat_batches(rejected) if rejected else no_rejected)

    @property
    def row_schema(self) -> pa.Schema:
        """Columns of restored rows."""
        marker = [] if self.delete_marker is None else [pa.field(self.delete_marker, pa.bool_())]
        return pa.schema([*self._stored, *marker])

    def restore(self, staged: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Decode staged rows: key columns, other columns (null for a delete), delete marker.

        Args:
            staged: at least the columns `key` and `value`.

        Raises:
            FormatError: keys or values are not in this job's layout.
        """
        keys, values = (_one_array(staged.column(name)) for name in ("key", "value"))
        is_delete = values.is_null()
        stored = self.values.decode(values.drop_null())
        if values.null_count:
            there = np.cumsum(~mask_of(is_delete)) - 1
            stored = stored.take(pa.array(there, mask=mask_of(is_delete)))
        columns = [*self.keys.decode(keys).columns, *stored.columns]
        if self.delete_marker is not None:
            columns.append(is_delete)
        return pa.RecordBatch.from_arrays(columns, schema=self.row_schema)

    @cached_property
    def _stored(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in [*self.keys.columns, *self.values.schema]])

    def _stage_slice(
        self, rows: pa.RecordBatch, shard: str, offsets: pa.Array
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Staged and rejected rows of a batch that is small enough to be encoded at once."""
        reasons: dict[int, str] = {}
        for field in self.keys.columns:
            for index in np.flatnonzero(mask_of(rows.column(field.name).is_null())).tolist():
                reasons.setdefault(index, f"key column `{field.name}` is null")
        good = np.array([index for index in range(rows.num_rows) if index not in reasons] if reasons else [], np.int64)
        writable = rows.take(pa.array(good)) if reasons else rows
        good = good if reasons else np.arange(rows.num_rows)
        keys, values = self.keys.encode(writable), self.values.encode(writable)
        if self.delete_marker is not None:
            is_delete = writable.column(self.delete_marker).fill_null(False)
            values = pc.if_else(is_delete, pa.scalar(None, pa.binary()), values)
        oversized = _oversized(keys, values)
        reasons.update((int(good[index]), reason) for index, reason in oversized.items())
        columns = {"key": keys, "value": values, "offset": offsets.take(pa.array(good))}
        if self.rule.by is not None:
            columns["order"] = _as_order(writable.column(self.rule.by), self.order_type)
        columns["shard"] = pa.repeat(pa.scalar(shard, pa.string()), len(good))
        columns[STANDS_FOR] = pa.repeat(pa.scalar(1, pa.int64()), len(good))
        staged = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        if oversized:
            fits = np.ones(len(good), dtype=np.bool_)
            fits[list(oversized)] = False
            staged = staged.filter(booleans(fits))
        return staged, refused_rows(rows, reasons, shard, offsets)


def _oversized(keys: pa.Array, values: pa.Array) -> dict[int, str]:
    """Index and reason of each row that TiKV refuses, or that some client could not read."""
    key_bytes = pc.binary_length(keys)
    row_bytes = pc.add(key_bytes, pc.binary_length(values).fill_null(0))
    reasons: dict[int, str] = {}
    if len(keys) and pc.max(row_bytes).as_py() > MAX_ROW_BYTES:
        for index in np.flatnonzero(mask_of(pc.greater(row_bytes, MAX_ROW_BYTES))).tolist():
            reasons[index] = (
                f"its key and value are {row_bytes[index]} bytes; at most {MAX_ROW_BYTES} are allowed, because clients "
                "take answers of 4 MiB: leave large columns out of this target"
            )
    if len(keys) and pc.max(key_bytes).as_py() > MAX_KEY_BYTES:
        for index in np.flatnonzero(mask_of(pc.greater(key_bytes, MAX_KEY_BYTES))).tolist():
            reasons[index] = f"its key is {key_bytes[index]} bytes; at most {MAX_KEY_BYTES} are allowed"
    return reasons


def bucket(staged: pa.Table | pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
    """The bucket of each staged row, from 0 to ``count - 1``; all rows of a key are in one bucket.

    The same on every machine and in every process: it depends only on the key's bytes and on `count`.
    """
    return (_mixed(staged) % np.uint64(count)).astype(np.int32)


def in_rounds(batches: Sequence[pa.RecordBatch], round_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Rows of one bucket in rounds of about `round_bytes`, in their order; all rows of a key are in the same round.

    Each round is copied when the iterator reaches it.
    """
    count = -(-sum(batch.nbytes for batch in batches) // round_bytes)
    if count <= 1:
        yield list(batches)
        return
    # By other bits of the hash than those that chose the bucket.
    rounds = [((_mixed(batch) >> np.uint64(32)) % np.uint64(count)).astype(np.uint16) for batch in batches]
    for number in range(count):
        yield [batch.filter(pa.array(of == number)) for batch, of in zip(batches, rounds, strict=True)]


def _mixed(staged: pa.Table | pa.RecordBatch) -> Words:
    """A hash of each row's key."""
    values = values_of(_one_array(staged.column("key")))
    mixed = values.lengths.astype(np.uint64)
    places = np.arange(len(mixed))
    read = 0
    while len(places):
        kept = np.minimum(values.lengths[places] - read, 8)
        mixed[places] = _mix(mixed[places] ^ values.words(values.starts[places] + read, kept))
        read += 8
        places = places[values.lengths[places] > read]
    return mixed


def _mix(words: Words) -> Words:
    """Mix words, so that every input bit affects all bits of the result."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def _slices(rows: pa.RecordBatch, slice_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Slices of a batch of bounded size, each with the index of its first row."""
    most = max(1, int(rows.num_rows * slice_bytes / max(1, rows.nbytes)))
    for start in range(0, rows.num_rows, most):
        yield start, rows.slice(start, most)


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_order(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(kind)


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
