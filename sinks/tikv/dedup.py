"""Deduplication by key: one row of each key stays, the same one in every task and for every order of arrival.

Rows of a key have a total order: by the rule's column, where null is lowest and NaN highest (as Spark sorts them);
then by shard, then by offset, then, for rows of one source record, by value. The rule keeps the first or the last row
of that order. The result therefore depends on the rows alone: deduplication within batches and then across tasks keeps
the same rows as a single pass.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.tikv.binary_arrays import Booleans, Ints, Words, mask_of, values_of
from timeline.errors import ConfigError

STANDS_FOR = "stands_for"
"""Column of staged rows: the number of rows that a row stands for, itself and the duplicates it replaces."""


class KeptRow(enum.StrEnum):
    """The row that is kept of the rows with one key."""

    FIRST = "first"
    LAST = "last"
    ANY = "any"


@dataclass(frozen=True)
class Rule:
    """Rule that chooses the row to keep of a key.

    Attributes:
        kind: which row is kept; `ANY` promises no particular row and keeps the first by shard and offset, so that a
            retry of a task keeps the same row.
        by: the column that orders the rows; None: only shard and offset do.

    Raises:
        ConfigError: `any` with a column.
    """

    kind: KeptRow = KeptRow.LAST
    by: str | None = None

    def __post_init__(self) -> None:
        if self.kind == KeptRow.ANY and self.by is not None:
            raise ConfigError(f"dedup: rule any does not look at `{self.by}`; take `by` out, or use rule first or last")


def pick_all(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rule: Rule, sorted_bytes: int) -> pa.Table:
    """Apply `pick` to any amount of rows with few keys: kept rows are compared again with the next group.

    Args:
        batches: the rows.
        schema: schema of the rows.
        rule: which row of a key stays.
        sorted_bytes: bytes of rows that are sorted at once, beside the kept rows.
    """
    kept = schema.empty_table()
    for group in _groups(batches, sorted_bytes):
        kept = pick(pa.concat_tables([kept, pa.Table.from_batches(group, schema)]), rule)
    return kept


def dropped(kept: pa.Table | pa.RecordBatch) -> int:
    """Number of duplicates that the kept rows replace."""
    return int((pc.sum(kept.column(STANDS_FOR)).as_py() or 0) - kept.num_rows)


def _groups(batches: Iterable[pa.RecordBatch], group_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in groups of at least `group_bytes`; the last may be smaller."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def pick(staged: pa.Table, rule: Rule) -> pa.Table:
    """One row for each key, sorted by key (byte order); its `STANDS_FOR` is the sum over all rows of the key.

    Args:
        staged: rows in `sinks.tikv.staged.Stager.schema`.
        rule: which row of a key stays.
    """
    keys = staged.column("key").combine_chunks()
    order = sorted_places(keys)
    is_again = _same_as_before(keys, order)
    if not is_again.any():
        return staged.take(pa.array(order))
    starts_run = ~is_again
    run = np.cumsum(starts_run) - 1
    is_alone = starts_run & np.append(starts_run[1:], True)
    many = np.flatnonzero(~is_alone)
    rivals = staged.take(pa.array(order[many]))
    ranked = _sorted(pa.table({"run": pa.array(run[many]), **_order_columns(rivals)}))
    runs = run[many][ranked]
    edge = np.diff(runs, append=-1) != 0 if rule.kind == KeptRow.LAST else np.diff(runs, prepend=-1) != 0
    kept = order.copy()
    kept[np.flatnonzero(starts_run)[runs[edge]]] = order[many][ranked[edge]]
    picked = staged.take(pa.array(kept[starts_run]))
    stood_for = staged.column(STANDS_FOR).to_numpy()[order]
    stands_for = np.add.reduceat(stood_for, np.flatnonzero(starts_run))
    index = picked.schema.get_field_index(STANDS_FOR)
    return picked.set_column(index, picked.schema.field(index), pa.array(stands_for))


def sorted_places(keys: pa.Array) -> Ints:
    """Indices of keys in byte order; equal keys are in no particular order.

    Keys of one table share a prefix, so the eight bytes behind it nearly always differ between two keys: they are
    sorted as numbers, and only keys that tie are compared in full.
    """
    words = _telling_words(keys)
    order: Ints = np.argsort(words)
    ordered = words[order]
    is_tied = np.zeros(len(order), dtype=np.bool_)
    is_tied[1:] = ordered[1:] == ordered[:-1]
    run = np.cumsum(~is_tied)
    is_tied[:-1] |= is_tied[1:]
    tied = np.flatnonzero(is_tied)
    if len(tied):
        rivals = pa.table({"run": pa.array(run[tied]), "key": keys.take(pa.array(order[tied]))})
        order[tied] = order[tied][_sorted(rivals)]
    return order


def _telling_words(keys: pa.Array) -> Words:
    """The eight bytes of each key behind the common prefix, as numbers that sort like the bytes."""
    values = values_of(keys)
    shared = 0
    shortest = int(values.lengths.min()) if len(keys) else 0
    while shared < shortest:
        words = values.words(values.starts + shared, np.minimum(values.lengths - shared, 8))
        differing = int(np.bitwise_or.reduce(words ^ words[0]))
        if differing:
            shared += ((differing & -differing).bit_length() - 1) // 8
            break
        shared += 8
    shared = min(shared, shortest)
    return values.words(values.starts + shared, np.minimum(values.lengths - shared, 8)).byteswap()


def _same_as_before(keys: pa.Array, order: Ints) -> Booleans:
    """Mask of the positions in the order whose key equals the previous key."""
    again = np.zeros(len(order), dtype=np.bool_)
    if len(order) > 1:
        ordered = keys.take(pa.array(order))
        again[1:] = mask_of(pc.equal(ordered[1:], ordered[:-1]))
    return again


def _order_columns(staged: pa.Table) -> dict[str, pa.ChunkedArray | pa.Array]:
    """Sort columns for rows of one key, most significant first."""
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    if "order" in staged.column_names:
        order = staged.column("order")
        if pa.types.is_floating(order.type):
            is_nan = pc.is_nan(order)
            columns["is_nan"] = is_nan
            order = pc.add(pc.if_else(is_nan, 0.0, order), 0.0)
        columns["order"] = order
    return {**columns, **{name: staged.column(name) for name in ("shard", "offset", "value")}}


def _sorted(columns: pa.Table) -> Ints:
    """Indices of rows sorted by all columns, nulls lowest."""
    by = [(name, "ascending", "at_start") for name in columns.column_names]
    places: Ints = pc.sort_indices(columns, sort_keys=by).to_numpy().astype(np.int64)
    return places
