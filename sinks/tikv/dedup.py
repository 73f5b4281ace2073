"""Of rows with one key, one stays: always the same one, whichever task looks and in whatever order rows arrive.

Rows of a key are put in a total order: by the rule's column, where null is lowest and NaN highest (as Spark sorts
them); then by shard, then by offset, then, for rows that one source record became, by value. The rule takes the first
or the last of that order. The outcome therefore depends on the rows alone: dropping duplicates in batches before
dropping them across tasks gives the same rows as doing it once.
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
"""The column of staged rows that says how many rows a row stands for: itself, and those that were dropped for it."""


class KeptRow(enum.StrEnum):
    """Which of the rows with one key is kept."""

    FIRST = "first"
    LAST = "last"
    ANY = "any"


@dataclass(frozen=True)
class Rule:
    """How duplicates are dropped.

    Attributes:
        kind: which row is kept; `ANY` promises none in particular and keeps the first by shard and offset, so that
            a task that runs again keeps the same one.
        by: the column that orders them; None leaves the order to shard and offset.

    Raises:
        ConfigError: `any` with a column.
    """

    kind: KeptRow = KeptRow.LAST
    by: str | None = None

    def __post_init__(self) -> None:
        if self.kind == KeptRow.ANY and self.by is not None:
            raise ConfigError(f"dedup: rule any does not look at `{self.by}`; take `by` out, or use rule first or last")


def pick_all(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rule: Rule, sorted_bytes: int) -> pa.Table:
    """As `pick`, for rows of any size as long as the keys are few: what stays is looked at again with the next rows.

    Args:
        batches: the rows.
        schema: theirs.
        rule: which row of a key stays.
        sorted_bytes: rows that are sorted at once, beside those that stay.
    """
    kept = schema.empty_table()
    for group in _groups(batches, sorted_bytes):
        kept = pick(pa.concat_tables([kept, pa.Table.from_batches(group, schema)]), rule)
    return kept


def dropped(kept: pa.Table | pa.RecordBatch) -> int:
    """Rows that were dropped for those that stay."""
    return int((pc.sum(kept.column(STANDS_FOR)).as_py() or 0) - kept.num_rows)


def _groups(batches: Iterable[pa.RecordBatch], group_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in groups of at least so many bytes; the last may be smaller."""
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
    """One row for each key, sorted by key (byte order); it stands for all that those of its key stood for.

    Args:
        staged: rows as `sinks.tikv.staged.Stager.schema` has them.
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
    """The places of keys in byte order; equal keys are in no particular order among themselves.

    Keys of one table begin alike, so the eight bytes behind what all share nearly always tell two keys apart: those
    are sorted as numbers, and only what they leave equal is compared in full.
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
    """The eight bytes of each key behind what all keys begin with, as numbers that sort as the bytes do."""
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
    """For each place in the order, whether its key is that of the place before."""
    again = np.zeros(len(order), dtype=np.bool_)
    if len(order) > 1:
        ordered = keys.take(pa.array(order))
        again[1:] = mask_of(pc.equal(ordered[1:], ordered[:-1]))
    return again


def _order_columns(staged: pa.Table) -> dict[str, pa.ChunkedArray | pa.Array]:
    """What rows of one key are ordered by, the most important first."""
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
    """The places of rows sorted by all columns, nulls lowest."""
    by = [(name, "ascending", "at_start") for name in columns.column_names]
    places: Ints = pc.sort_indices(columns, sort_keys=by).to_numpy().astype(np.int64)
    return places
