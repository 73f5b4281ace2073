"""Statistics of a data file bound every value in it, whatever the values are."""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.parquet.stats import ValueStatistics, file_statistics, leaves
from sinks.parquet.table_files import INDEXED_LEAVES
from timeline.epoch import Json

UTC = datetime.UTC


def statistics(rows: list[dict[str, Any]], schema: pa.Schema, *, group_rows: int = 1_000) -> dict[str, Any]:
    """Statistics of a file with these rows, after a round trip through JSON."""
    table = pa.Table.from_pylist(rows, schema=schema)
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=footers, store_decimal_as_integer=True) as writer:
        writer.write_table(table, row_group_size=group_rows)
    values = ValueStatistics(schema)
    for start in range(0, table.num_rows, group_rows):
        values.add(table.slice(start, group_rows))
    found: dict[str, Json] = file_statistics(footers[0], schema, values=values)
    loaded: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False), parse_float=Decimal)
    return loaded


def one(values: list[Any], kind: pa.DataType, *, group_rows: int = 1_000) -> tuple[Any, Any, int]:
    """Lower bound, upper bound (None: no bound) and null count of one column."""
    found = statistics([{"c": value} for value in values], pa.schema([("c", kind)]), group_rows=group_rows)
    assert found["numRecords"] == len(values)
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"]["c"]


@pytest.mark.parametrize(
    ("kind", "values", "least", "greatest"),
    [
        (pa.int8(), [-128, 127], -128, 127),
        (pa.int64(), [-(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
        (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        (pa.string(), ["b", "a", "ü"], "a", "ü"),
        (pa.string(), ["", "z"], "", "z"),
        (pa.string(), ["x" * 32], "x" * 32, "x" * 32),
        (pa.string(), ["x" * 33], "x" * 32, "x" * 32 + "\U0010ffff"),
        (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("3.10")], Decimal("-1.25"), Decimal("3.1")),
        (pa.decimal128(18, 0), [Decimal(7)], 7, 7),
        (pa.decimal128(38, 0), [Decimal(10**37 + 1)], 10**37, 10**37 + 10**23),
    ],
)
def test_bounds_have_deltas_json_types(kind: pa.DataType, values: list[Any], least: Any, greatest: Any) -> None:
    assert one(values, kind) == (least, greatest, 0)


def test_the_lower_bound_of_a_timestamp_goes_down_and_the_upper_one_up_to_a_millisecond() -> None:
    moment = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_001)
    assert one([moment], pa.timestamp("us"))[:2] == ("2024-02-29T23:59:59.999", "2024-03-01T00:00:00.000")
    assert one([moment.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))[:2] == (
        "2024-02-29T23:59:59.999Z",
        "2024-03-01T00:00:00.000Z",
    )
    before_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert one([before_1970], pa.timestamp("us"))[:2] == ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000")


def test_the_upper_bound_of_a_timestamp_in_the_last_millisecond_is_exact() -> None:
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)
    assert one([last], pa.timestamp("us"))[:2] == ("9999-12-31T23:59:59.999", "9999-12-31T23:59:59.999999")


def test_a_timestamp_that_has_no_four_digit_year_has_no_bounds() -> None:
    assert one([-(2**62)], pa.timestamp("us"))[:2] == (None, None)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_float_column_with_nan_has_no_bounds_and_infinities_are_texts(kind: pa.DataType) -> None:
    assert one([1.0, math.nan, None], kind) == (None, None, 1)
    assert one([1.0, math.inf, None], kind) == (1, "Infinity", 1)
    assert one([1.0, -math.inf], kind) == ("-Infinity", 1, 0)


def test_a_zero_of_either_sign_is_inside_the_bounds() -> None:
    for values in ([0.0], [-0.0], [0.0, -0.0]):
        least, greatest, _ = one(values, pa.float64())
        assert math.copysign(1, least) == -1
        assert math.copysign(1, greatest) == 1


def test_floats_have_no_bounds_unless_somebody_looked_for_nan() -> None:
    footers: list[pq.FileMetaData] = []
    table = pa.table({"c": [1.0, math.nan]})
    with pq.ParquetWriter(io.BytesIO(), table.schema, metadata_collector=footers) as writer:
        writer.write_table(table)
    assert file_statistics(footers[0], table.schema)["minValues"] == {}


def test_booleans_have_bounds() -> None:
    assert one([None], pa.bool_()) == (None, None, 1)
    assert one([True, None, False], pa.bool_(), group_rows=1) == (False, True, 1)


def test_binaries_have_null_counts_only() -> None:
    assert one([None], pa.binary()) == (None, None, 1)
    assert one([b"x"], pa.binary()) == (None, None, 0)


def test_a_column_of_nulls_has_a_null_count_only() -> None:
    assert one([None, None], pa.int64()) == (None, None, 2)


def test_bounds_and_null_counts_span_all_row_groups() -> None:
    assert one([5, None, None, None, 9, 1], pa.int64(), group_rows=2) == (1, 9, 3)


def test_bounds_of_texts_that_are_too_long_for_a_footer_come_from_the_values() -> None:
    long = "x" * 10_000
    above = "x" * 32 + "\U0010ffff"
    assert one(["a", long], pa.string(), group_rows=1)[:2] == ("a", above)
    assert one(["a", None, long, "b", "c", "d"], pa.string(), group_rows=2)[:2] == ("a", above)
    for length in range(4_090, 4_100):
        assert one(["x" * length], pa.string())[:2] == ("x" * 32, above)


def test_a_row_group_without_statistics_leaves_the_column_without_bounds() -> None:
    footers: list[pq.FileMetaData] = []
    table = pa.table({"c": ["a", "x" * 10_000]})
    with pq.ParquetWriter(io.BytesIO(), table.schema, metadata_collector=footers) as writer:
        writer.write_table(table, row_group_size=1)
    assert file_statistics(footers[0], table.schema)["minValues"] == {}


def test_structs_nest_and_lists_and_maps_are_left_out() -> None:
    schema = pa.schema(
        [
            (
                "s",
                pa.struct(
                    [
                        ("x", pa.int32()),
                        ("f", pa.float32()),
                        ("t", pa.struct([("y", pa.string())])),
                        ("l", pa.list_(pa.int64())),
                    ]
                ),
            ),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("after", pa.int64()),
        ]
    )
    rows: list[dict[str, Any]] = [
        {"s": {"x": 1, "f": 0.5, "t": {"y": "a"}, "l": [1]}, "m": [("k", 1)], "after": 7},
        {"s": None},
    ]
    assert statistics(rows, schema) == {
        "numRecords": 2,
        "minValues": {"s": {"x": 1, "f": 0.5, "t": {"y": "a"}}, "after": 7},
        "maxValues": {"s": {"x": 1, "f": 0.5, "t": {"y": "a"}}, "after": 7},
        "nullCount": {"s": {"x": 1, "f": 1, "t": {"y": 1}}, "after": 1},
    }


def test_a_dot_in_a_name_is_no_struct() -> None:
    schema = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))])
    assert statistics([{"a.b": 1, "a": {"b": 2}}], schema)["minValues"] == {"a.b": 1, "a": {"b": 2}}


def test_only_the_first_leaf_columns_get_statistics() -> None:
    schema = pa.schema([(f"c{index}", pa.int64()) for index in range(INDEXED_LEAVES + 2)])
    found = statistics([dict.fromkeys(schema.names, 1)], schema)
    assert list(found["minValues"]) == [f"c{index}" for index in range(INDEXED_LEAVES)]


def test_partition_columns_get_none_and_take_no_place() -> None:
    schema = pa.schema([(f"c{index}", pa.int64()) for index in range(INDEXED_LEAVES + 1)])
    footers: list[pq.FileMetaData] = []
    table = pa.Table.from_pylist([dict.fromkeys(schema.names, 1)], schema=schema)
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=footers) as writer:
        writer.write_table(table)
    found = file_statistics(footers[0], schema, partition_columns=["c0"])
    assert isinstance(found["minValues"], Mapping)
    assert list(found["minValues"]) == [f"c{index}" for index in range(1, INDEXED_LEAVES + 1)]


def test_leaves_are_numbered_as_parquet_numbers_its_columns() -> None:
    schema = pa.schema(
        [("m", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())])))), ("z", pa.int64())]
    )
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=footers) as writer:
        writer.write_table(schema.empty_table())
    paths = [footers[0].schema.column(index).path for index in range(footers[0].num_columns)]
    assert [".".join(leaf.path) for leaf in leaves(schema)] == paths


def test_a_string_that_goes_on_with_the_last_code_point_stays_below_its_bound() -> None:
    last = "\U0010ffff"
    for text in ("a" * 32 + last + "b", "a" * 32 + last * 3, last * 40, last * 33 + "a", "a" * 31 + last * 2 + "\x00"):
        _, greatest, _ = one([text], pa.string())
        assert greatest.encode() >= text.encode()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text(
    st.sampled_from(["a", "\x7f", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]), min_size=30, max_size=40
)


def _assert_bounds(values: list[Any], bounds: tuple[Any, Any, int], key: Any) -> None:
    least, greatest, nulls = bounds
    there = [value for value in values if value is not None]
    assert nulls == len(values) - len(there)
    for value in there:
        assert least is None or key(least) <= key(value)
        assert greatest is None or key(value) <= key(greatest)


@settings(max_examples=150)
@given(st.lists(st.none() | texts, min_size=1, max_size=8))
def test_every_string_is_within_its_bounds(values: list[str | None]) -> None:
    bounds = one(values, pa.string(), group_rows=3)
    _assert_bounds(values, bounds, lambda text: text.encode())
    assert all(bound is None or len(bound) <= 81 for bound in bounds[:2])


@settings(max_examples=100)
@given(st.lists(st.none() | st.floats(), min_size=1, max_size=6), st.sampled_from([pa.float32(), pa.float64()]))
def test_every_float_is_within_its_bounds(values: list[float | None], kind: pa.DataType) -> None:
    stored = pa.array(values, pa.float64()).cast(kind).to_pylist()
    least, greatest, nulls = one(stored, kind, group_rows=2)
    is_bounded = any(value is not None for value in stored) and not any(value != value for value in stored)
    assert (least is not None) == is_bounded
    if is_bounded:
        _assert_bounds(stored, (float(least), float(greatest), nulls), float)


@settings(max_examples=150)
@given(st.data())
def test_every_decimal_is_within_its_bounds(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    whole = data.draw(st.lists(st.none() | unscaled, min_size=1, max_size=5))
    values = [None if each is None else Decimal(each).scaleb(-scale, Context(prec=40)) for each in whole]
    least, greatest, nulls = one(values, pa.decimal128(precision, scale), group_rows=2)
    _assert_bounds(values, (least, greatest, nulls), Decimal)
    if precision <= 15 and least is not None:
        there = [value for value in values if value is not None]
        assert (Decimal(least), Decimal(greatest)) == (min(there), max(there))


@settings(max_examples=100)
@given(st.lists(st.none() | st.datetimes(), min_size=1, max_size=6), st.sampled_from([None, "UTC"]))
def test_every_timestamp_is_within_its_bounds(values: list[datetime.datetime | None], zone: str | None) -> None:
    aware = [value.replace(tzinfo=UTC) if value is not None and zone else value for value in values]
    bounds = one(aware, pa.timestamp("us", zone), group_rows=2)
    _assert_bounds(aware, bounds, lambda each: datetime.datetime.fromisoformat(each) if isinstance(each, str) else each)


@settings(max_examples=50)
@given(st.lists(st.none() | st.dates(), min_size=1, max_size=6))
def test_every_date_is_within_its_bounds(values: list[datetime.date | None]) -> None:
    bounds = one(values, pa.date32(), group_rows=2)
    _assert_bounds(values, bounds, lambda each: datetime.date.fromisoformat(each) if isinstance(each, str) else each)
