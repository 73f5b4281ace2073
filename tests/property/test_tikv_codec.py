"""Rows of any key and value columns round-trip through their bytes, keys sort as rows do, one row per key is kept."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Sequence
from decimal import Context, Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.refused import as_json_lines
from sinks.sql_types import parse_type
from sinks.tikv.dedup import STANDS_FOR, KeptRow, Rule, dropped, pick, pick_all
from sinks.tikv.key_codec import KeyCodec, from_memcomparable, memcomparable
from sinks.tikv.staged import Stager, bucket, in_rounds
from sinks.tikv.value_codec import ValueCodec
from timeline.errors import FormatError

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text("a\0b", max_size=20)
BINARIES = st.binary(max_size=20) | st.lists(st.sampled_from([b"\0", b"\xff", b"a"]), max_size=20).map(b"".join)

# Values are the integers that Arrow stores, to cover dates and timestamps beyond Python's years too.
KEY_COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): INT64,
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.timestamp("us"): INT64,
    pa.timestamp("us", tz="UTC"): INT64,
    pa.timestamp("us", tz="Europe/Paris"): INT64,
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): BINARIES,
    pa.large_binary(): BINARIES,
}


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def batch_of(rows: Sequence[Sequence[Any]], kinds: Sequence[pa.DataType]) -> pa.RecordBatch:
    columns = [array_of([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{place}" for place in range(len(kinds))])


@st.composite
def keyed(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[pa.DataType]]:
    kinds = draw(st.lists(st.sampled_from(list(KEY_COLUMNS)), min_size=1, max_size=4))
    return draw(st.lists(st.tuples(*(KEY_COLUMNS[kind] for kind in kinds)), max_size=12)), kinds


def in_bytes(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in row)


@given(keyed(), st.binary(min_size=1, max_size=12), st.integers(0, 12))
def test_keys_sort_as_their_rows_and_are_read_back(
    drawn: tuple[list[tuple[Any, ...]], list[pa.DataType]], prefix: bytes, start: int
) -> None:
    rows, kinds = drawn
    batch = batch_of(rows, kinds)
    codec = KeyCodec(prefix, tuple(batch.schema))
    keys = codec.encode(batch)
    places = range(len(rows))
    by_key = sorted(places, key=lambda place: keys[place].as_py())
    assert by_key == sorted(places, key=lambda place: in_bytes(rows[place]))
    assert codec.decode(keys).equals(batch)
    assert codec.encode(batch.slice(start)).equals(keys.slice(start)), "a slice has the keys of its rows"
    assert codec.decode(keys.slice(start)).equals(batch.slice(start))


@given(st.lists(INT64 | TEXTS.map(str.encode), min_size=1, max_size=3), st.binary(max_size=30), st.integers(0, 60))
def test_a_key_that_was_cut_or_changed_is_refused_or_is_another_row(
    values: list[int | bytes], change: bytes, at: int
) -> None:
    batch = batch_of([values], [pa.int64() if isinstance(value, int) else pa.binary() for value in values])
    codec = KeyCodec(b"p_", tuple(batch.schema))
    key: bytes = codec.encode(batch)[0].as_py()
    damaged = key[:at] + change + key[at + len(change) :] if len(change) % 2 else key[:at] + change
    try:
        rows = codec.decode(pa.array([damaged], pa.binary()))
    except FormatError:
        assert damaged != key
    else:
        assert codec.encode(rows).to_pylist() == [damaged], "a key has one form"


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_bounds_of_regions_sort_as_keys_and_are_read_back(one: bytes, other: bytes) -> None:
    assert from_memcomparable(memcomparable(one)) == one
    assert (memcomparable(one) < memcomparable(other)) == (one < other)
    with contextlib.suppress(FormatError):
        assert memcomparable(from_memcomparable(one)) == one, "a bound has one form"


SIMPLE = ["tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz"]
SIMPLE += ["decimal(5,2)", "decimal(38,20)", "string", "binary"]
TYPES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: (
        inner.map(lambda kind: f"array<{kind}>")
        | st.tuples(st.sampled_from(["string", "int", "date"]), inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>")
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: f"struct<{','.join(f'f{place}:{kind}' for place, kind in enumerate(kinds))}>"
        )
    ),
    max_leaves=4,
)
_EXACT = Context(prec=60)
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type for `array_of`, including null."""
    return st.none() | _present(kind)


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-kind.scale, _EXACT))
    if types.is_timestamp(kind):
        return MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC if kind.tz else None))
    if types.is_date32(kind):
        return st.dates()
    if types.is_list(kind):
        return st.lists(values_of(kind.value_type), max_size=3)
    if types.is_map(kind):
        return st.lists(st.tuples(_present(kind.key_type), values_of(kind.item_type)), max_size=3)
    if types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    return KEY_COLUMNS[kind]


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    kinds = [parse_type(text) for text in draw(st.lists(TYPES, max_size=10))]
    schema = pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])
    rows = st.fixed_dictionaries({field.name: values_of(field.type) for field in schema})
    return pa.RecordBatch.from_pylist(draw(st.lists(rows, max_size=5)), schema)


@given(tables(), st.integers(0, 5), st.data())
def test_values_are_read_back_also_with_columns_appended_later(
    batch: pa.RecordBatch, start: int, data: st.DataObject
) -> None:
    codec = ValueCodec(batch.schema)
    values = codec.encode(batch)
    decoded = codec.decode(values)
    decoded.validate(full=True)
    assert decoded.to_pylist() == batch.to_pylist()
    assert codec.encode(batch.slice(start)).equals(values.slice(start)), "a slice has the values of its rows"
    assert codec.decode(values.slice(start)).to_pylist() == batch.slice(start).to_pylist()
    if not batch.num_rows:
        return
    fewer = ValueCodec(pa.schema(list(batch.schema)[: data.draw(st.integers(1, len(batch.schema)))]))
    known = [{name: row[name] for name in fewer.schema.names} for row in batch.to_pylist()]
    assert fewer.decode(values).to_pylist() == known, "columns that came later are passed over"
    mixed = codec.decode(pa.concat_arrays([values, values, fewer.encode(batch), values])).to_pylist()
    whole, nothing = batch.to_pylist(), dict.fromkeys(batch.schema.names)
    assert mixed == [*whole, *whole, *({**nothing, **row} for row in known), *whole]


@given(tables(), st.integers(0, 200), st.integers(0, 255))
def test_a_value_that_was_cut_or_changed_is_refused_or_read_as_the_columns_types(
    batch: pa.RecordBatch, at: int, byte: int
) -> None:
    codec = ValueCodec(batch.schema)
    for value in codec.encode(batch).to_pylist():
        for damaged in (value[:at], value[:at] + bytes([byte]) + value[at + 1 :]):
            try:
                codec.decode(pa.array([damaged], pa.binary())).validate(full=True)
            except FormatError:
                assert damaged != value


def test_digits_that_a_decimal_type_has_not_are_refused() -> None:
    column = pa.array([0], pa.decimal128(5, 2))
    codec = ValueCodec(pa.schema([("c", column.type)]))
    (value,) = codec.encode(pa.record_batch([column], ["c"])).to_pylist()
    with pytest.raises(FormatError, match=r"no decimal128\(5, 2\)"):
        codec.decode(pa.array([value[:-14] + b"\x02" + value[-13:]], pa.binary()))


ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"a\0", b"b", b"prefix_12345678", b"prefix_12345678\0", b"prefix_123456789"]),
        st.none() | st.binary(max_size=1),
        st.none() | st.sampled_from([-1.0, 0.0, -0.0, 2.0, math.inf, -math.inf, math.nan]),
        st.sampled_from(["s", "t"]),
        st.integers(0, 2),
    ),
    max_size=20,
)
STAGED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("order", pa.float64()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        (STANDS_FOR, pa.int64()),
    ]
)
Row = tuple[bytes, bytes | None, float | None, str, int]


def model(rows: Sequence[Row], rule: Rule) -> list[Row]:
    """The result of `pick`, in plain Python."""

    def place(row: Row) -> tuple[Any, ...]:
        _, value, order, shard, offset = row
        lowest = (0, 0.0) if order is None else (2, 0.0) if math.isnan(order) else (1, order)
        return (*(lowest if rule.by else ()), shard, offset, value is not None, value or b"")

    best: dict[bytes, Row] = {}
    for row in sorted(rows, key=place, reverse=rule.kind != KeptRow.LAST):
        best[row[0]] = row
    return [best[key] for key in sorted(best)]


@pytest.mark.parametrize(
    "rule", [Rule(KeptRow.FIRST, "x"), Rule(KeptRow.LAST, "x"), Rule(KeptRow.ANY), Rule(KeptRow.LAST)], ids=str
)
@given(rows=ROWS, order=st.randoms(use_true_random=False), cut=st.integers(0, 20))
def test_one_row_of_each_key_stays_and_always_the_same(rule: Rule, rows: list[Row], order: Any, cut: int) -> None:
    def table(some: Sequence[Row]) -> pa.Table:
        whole = pa.Table.from_pylist([dict(zip(STAGED.names, (*row, 1), strict=True)) for row in some], STAGED)
        return whole if rule.by else whole.drop_columns(["order"])

    found = pick(table(rows), rule)
    assert dropped(found) + found.num_rows == len(rows)
    expected = table(model(rows, rule))
    same = [name for name in found.column_names if name != "order"]  # equal rows may differ in a zero's sign
    told = [name for name in same if name != STANDS_FOR]
    assert found.select(told).equals(expected.select(told))
    shuffled = list(rows)
    order.shuffle(shuffled)
    parts = [pick(table(part), rule) for part in (shuffled[:cut], shuffled[cut:])]
    again = pick(pa.concat_tables(parts), rule)
    assert again.select(same).equals(found.select(same)), "in parts and in another order: the same rows"
    whole = table(shuffled)
    batches = [whole.slice(place, 3).to_batches()[0] for place in range(0, whole.num_rows, 3)]
    piecewise = pick_all(batches, whole.schema, rule, sorted_bytes=cut * 10)
    assert piecewise.select(same).equals(found.select(same)), "few at a time: the same rows"


@given(sizes=st.lists(st.integers(0, 40), max_size=8), rows_a_round=st.integers(1, 100), keys=st.integers(1, 50))
def test_rounds_hold_every_row_once_and_all_rows_of_a_key_together(
    sizes: list[int], rows_a_round: int, keys: int
) -> None:
    numbers = iter(range(sum(sizes)))
    batches = []
    for size in sizes:
        own = [next(numbers) for _ in range(size)]
        of = pa.array([b"key %04d" % (number % keys) for number in own], pa.binary())
        batches.append(pa.record_batch({"key": of, "offset": pa.array(own, pa.int64())}))
    round_bytes = rows_a_round * (8 + 4 + 8)
    rounds = [pa.Table.from_batches(each, batches[0].schema) for each in in_rounds(batches, round_bytes) if each]
    offsets = [each.column("offset").to_pylist() for each in rounds]
    assert sorted(chain.from_iterable(offsets)) == list(range(sum(sizes)))
    assert all(each == sorted(each) for each in offsets), "in their order"
    own_keys = [set(each.column("key").to_pylist()) for each in rounds]
    assert sum(map(len, own_keys)) == len(set().union(*own_keys)), "no key in two rounds"


def test_rounds_of_one_bucket_are_about_as_large_as_each_other() -> None:
    rows = pa.record_batch({"key": pa.array([b"key %09d" % number for number in range(40_000)], pa.binary())})
    own = rows.filter(pa.array(bucket(rows, 8) == 3))
    sizes = [sum(batch.nbytes for batch in each) for each in in_rounds([own], own.nbytes // 4 + 1)]
    assert len(sizes) == 4
    assert max(sizes) < 1.3 * min(sizes)


@given(tables(), st.integers(1, 64))
def test_staged_rows_hold_the_rows_of_the_batch(batch: pa.RecordBatch, count: int) -> None:
    numbered = batch.add_column(0, "id", pa.array(np.arange(batch.num_rows)))
    stager = Stager.of(numbered.schema, prefix=b"p_", key=["id"], rule=Rule(KeptRow.ANY))
    staged = stager.stage(numbered, "s", pa.array(range(batch.num_rows), pa.int64()))
    assert stager.restore(staged.rows).to_pylist() == numbered.to_pylist()
    assert len(as_json_lines(numbered)) == batch.num_rows
    buckets = bucket(staged.rows, count)
    assert ((buckets >= 0) & (buckets < count)).all()
    alone = [int(bucket(staged.rows.slice(place, 1), count)[0]) for place in range(staged.rows.num_rows)]
    assert alone == buckets.tolist(), "a row's bucket is its key's, whatever lies around it"
