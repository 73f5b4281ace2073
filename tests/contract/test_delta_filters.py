"""A filter on any column finds all matching rows, in each of delta-rs's readers: bounds never hide a row.

delta-rs passes the bounds of a file to Arrow as a guarantee for all its rows, and reads a missing bound as null, which
equals no value: if only some columns of a file have bounds, filters miss rows.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema

from sinks.base import RefusingWriter
from sinks.parquet.partition_rows import partition_value
from sinks.partition import PartitionField, Transform
from tests.contract.sink_contract import planned, ref, write_rows
from tests.contract.test_delta_sink import DeltaRig
from timeline.epoch import WrittenFile
from timeline.errors import DataError, TargetRefusedError

UTC = datetime.UTC

Columns = dict[str, tuple[pa.DataType, Sequence[Any]]]
"""Type and values of each column of a table."""


def put(path: Path, columns: Columns, by: Sequence[str] = ()) -> DeltaTable:
    """A table with these rows twice: from the log entry that creates the table, and from a second entry."""
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
    for epoch in range(2):
        sink = DeltaRig(path, schema, tuple(PartitionField(name) for name in by)).sink()
        sink.ensure()
        sink.commit(sink.prepare(ref(epoch), [write_rows(sink.begin(planned(ref(epoch))), batch)]))
    return DeltaTable(path)


def assert_found(table: DeltaTable, name: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    """Assert that Arrow and pandas find each value by a filter and all others by its negation; DataFusion, each value.

    Args:
        table: a table made by `put`, with the values' numbers in a column ``n``.
        name: the column to filter by.
        kind: the column's type.
        values: the column's values; a null is found by a null filter.
    """
    whole = table.to_pyarrow_table()
    assert whole.num_rows == 2 * len(values)
    column = pc.field(name)
    wheres = [column == pa.scalar(value, kind) for value in values if value is not None]
    for where in [*wheres, *(~each for each in wheres), column.is_null(), column.is_valid(), pc.field("n") == 0]:
        wanted = whole.filter(where).sort_by("n")["n"].to_pylist()
        assert table.to_pyarrow_table(filters=where).sort_by("n")["n"].to_pylist() == wanted, str(where)
        assert len(table.to_pandas(filters=where)) == len(wanted), str(where)
    for number, value in enumerate(values):
        found = _by_data_fusion(table, name, value)
        assert number in found and len(found) == 2 * sum(_is_same(value, each) for each in values), value


def _by_data_fusion(table: DeltaTable, name: str, value: Any) -> list[int]:
    """Column ``n`` of the rows with this value."""
    is_value = "is null" if value is None else f"= {_literal(value)}"
    query = f'select n from t where "{name}" {is_value}'
    found: list[int] = pa.table(QueryBuilder().register("t", table).execute(query).read_all())["n"].to_pylist()
    return found


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return f"X'{value.hex()}'"
        case Decimal():
            whole = f"{value:f}".lstrip("-0").replace(".", "")
            return f"arrow_cast('{value:f}', 'Decimal128(38, {-int(value.as_tuple().exponent)})')" if whole else "0"
        case float():
            return f"arrow_cast('{value}', 'Float64')"
        case datetime.datetime():
            zone = "None" if value.tzinfo is None else 'Some("UTC")'
            return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Timestamp(Microsecond, {zone})')"
        case datetime.date():
            return f"date '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return str(value)


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


PLANES = ["".join(map(chr, (0x20BB7, 0x91CE, 0x5BB6))), *(chr(plane << 16 | 0x600) for plane in range(1, 17))]
"""Texts with a character of each plane of Unicode beyond the first."""


@pytest.mark.parametrize("text", PLANES)
def test_text_with_characters_of_any_plane_is_found(tmp_path: Path, text: str) -> None:
    table = put(tmp_path, {"n": (pa.int64(), [0, 1]), "p": (pa.string(), [text, text])})
    assert_found(table, "p", pa.string(), [text, text])


@pytest.mark.parametrize("kind", [pa.string(), pa.timestamp("us")], ids=str)
def test_column_whose_name_has_characters_of_any_plane_is_found(tmp_path: Path, kind: pa.DataType) -> None:
    values = ["x", "y"] if pa.types.is_string(kind) else [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)]
    inside = pa.map_(pa.string(), pa.timestamp("us"))  # for this type Tideline creates the table, not delta-rs
    for number, name in enumerate(PLANES[:3]):
        columns: Columns = {"n": (pa.int64(), [0, 1]), name: (kind, values)}
        if not pa.types.is_string(kind):
            columns["m"] = (inside, [None, None])
        assert_found(put(tmp_path / str(number), columns), name, kind, values)


@pytest.mark.parametrize("by", [("p",), ()])
def test_partition_and_job_with_characters_of_any_plane_are_found(tmp_path: Path, by: Sequence[str]) -> None:
    columns: Columns = {"n": (pa.int64(), range(len(PLANES))), "p": (pa.string(), PLANES)}
    table = put(tmp_path, columns, by)
    assert_found(table, "p", pa.string(), PLANES)
    table.create_checkpoint()
    assert_found(DeltaTable(tmp_path), "p", pa.string(), PLANES)
    rig = DeltaRig(tmp_path / "job", pa.schema([("n", pa.int64())]))
    for epoch in range(2):
        sink = rig.sink(PLANES[0])
        batch = pa.RecordBatch.from_pydict({"n": [epoch]})
        sink.commit(sink.prepare(ref(epoch), [write_rows(sink.begin(planned(ref(epoch))), batch)]))
    assert DeltaTable(tmp_path / "job").transaction_version(PLANES[0]) == 1


def _moment(zone: datetime.tzinfo | None, *parts: int) -> datetime.datetime:
    year, month, day, hour, minute, second, microsecond = parts
    return datetime.datetime(year, month, day, hour, minute, second, microsecond, zone)


LAST = (9999, 12, 31, 23, 59, 59, 999_999)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False, None]),
        (pa.bool_(), [True, True]),
        (pa.int8(), [-128, None, 127]),
        (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
        (pa.int64(), [None, None]),
        (pa.float64(), [1.5, math.nan, None]),
        (pa.float64(), [1.5, math.inf]),
        (pa.float64(), [-math.inf, 1.5, None]),
        (pa.float64(), [math.inf, -math.inf, math.nan]),
        (pa.float64(), [math.nan, math.nan]),
        (pa.float64(), [5e-324, 1.7976931348623157e308]),
        (pa.float32(), [0.5, math.inf]),
        (pa.date32(), [datetime.date.min, datetime.date(1969, 12, 31), datetime.date.max]),
        (pa.timestamp("us", "UTC"), [_moment(UTC, 2020, 1, 1, 0, 0, 0, 1), _moment(UTC, *LAST)]),
        (
            pa.timestamp("us", "UTC"),
            [_moment(UTC, 1, 1, 1, 0, 0, 0, 1), _moment(UTC, 1969, 12, 31, 23, 59, 59, 999_999)],
        ),
        (pa.timestamp("us"), [_moment(None, 2020, 1, 1, 0, 0, 0, 1), _moment(None, *LAST)]),
        (pa.decimal128(5, 2), [Decimal("-0.05"), Decimal("-999.99"), Decimal("1.10"), None]),
        (pa.decimal128(20, 2), [Decimal("123456789012345678.55"), Decimal("0.00")]),
        (pa.decimal128(38, 0), [Decimal(1), Decimal("9" * 38)]),
        (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)]),
        (pa.string(), ["", "z", None]),
        (pa.string(), ["a", "x" * 5_000]),
        (pa.string(), ["x" * 4_096, "x" * 4_097, "y"]),
        (pa.string(), ["\U0010ffff" * 40, "\U0010ffff" * 5_000]),
        (pa.binary(), [b"a", b"\xff" * 5_000]),
    ],
    ids=lambda given: str(given)[:40],
)
def test_every_value_is_found_by_a_filter(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    table = put(tmp_path, {"n": (pa.int64(), range(len(values))), "p": (kind, values)})
    assert_found(table, "p", kind, values)
    table.create_checkpoint()
    assert_found(DeltaTable(tmp_path), "p", kind, values)


def test_file_without_bounds_of_one_column_has_none_and_still_says_how_many_nulls_it_has(tmp_path: Path) -> None:
    table = put(tmp_path, {"n": (pa.int64(), [0, 1, 2]), "p": (pa.float64(), [1.0, math.nan, None])})
    (told, *_) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (told["num_records"], told["null_count.p"], told.get("min.n"), told.get("max.n")) == (3, 1, None, None)


def test_nested_column_without_bounds_takes_those_of_no_other_column_away(tmp_path: Path) -> None:
    inside = pa.struct([("f", pa.float64()), ("flag", pa.bool_()), ("s", pa.string())])
    values = [{"f": math.nan, "flag": True, "s": "a"}, {"f": 1.5, "flag": None, "s": "x" * 5_000}, None]
    table = put(tmp_path, {"n": (pa.int64(), [0, 1, 2]), "p": (inside, values)})
    whole = table.to_pyarrow_table()
    (told, *_) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (told["min.n"], told["max.n"]) == (0, 2)
    for where in (
        pc.field("n") == 1,
        pc.field("p", "f") == 1.5,
        pc.field("p", "flag") == True,  # noqa: E712 (an Arrow expression)
        pc.field("p", "s") == "x" * 5_000,
        pc.field("p").is_null(),
    ):
        assert table.to_pyarrow_table(filters=where).num_rows == whole.filter(where).num_rows > 0
    for where in ("p['f'] = 1.5", "p['f'] = 'NaN'", "p['flag']", f"p['s'] = '{'x' * 5_000}'", "p is null"):
        query = f"select n from t where {where}"
        assert len(pa.table(QueryBuilder().register("t", table).execute(query).read_all())) == 2, where


@pytest.mark.parametrize("before", [pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct([("a", pa.int64())] * 1))])
def test_columns_behind_lists_and_maps_are_found(tmp_path: Path, before: pa.DataType) -> None:
    columns: Columns = {"n": (pa.int64(), [0, 1])}
    columns |= {f"b{number}": (before, [None, None]) for number in range(20)}
    columns |= {f"c{number}": (pa.int64(), [7, 8]) for number in range(20)}
    table = put(tmp_path, columns)
    for number in range(20):
        assert table.to_pyarrow_table(filters=pc.field(f"c{number}") == 7).num_rows == 2, number


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.dataSkippingNumIndexedCols": "-1"},
        {"delta.dataSkippingNumIndexedCols": "35"},
        {"delta.dataSkippingNumIndexedCols": "2"},
        {"delta.dataSkippingStatsColumns": "c38,c39"},
    ],
    ids=str,
)
def test_columns_of_a_table_that_says_itself_which_have_bounds_are_found(
    tmp_path: Path, configuration: dict[str, str]
) -> None:
    columns: Columns = {"n": (pa.int64(), [0, 1])} | {f"c{number}": (pa.int64(), [7, 8]) for number in range(40)}
    schema = Schema.from_arrow(pa.schema([(name, kind) for name, (kind, _) in columns.items()]))
    DeltaTable.create(tmp_path, schema, configuration=configuration)
    table = put(tmp_path, columns)
    for number in range(40):
        assert table.to_pyarrow_table(filters=pc.field(f"c{number}") == 7).num_rows == 2, number


def test_column_that_only_the_table_has_takes_no_bounds_away(tmp_path: Path) -> None:
    inside = pa.struct([("a", pa.int64())])
    schema = pa.schema([("n", pa.int64()), ("p", pa.bool_()), ("x", pa.int64()), ("y", inside)])
    DeltaTable.create(tmp_path, Schema.from_arrow(schema))
    table = put(tmp_path, {"n": (pa.int64(), [0, 1]), "p": (pa.bool_(), [True, None])})
    assert_found(table, "p", pa.bool_(), [True, None])
    for column in (pc.field("x"), pc.field("y"), pc.field("y", "a")):
        assert table.to_pyarrow_table(filters=column.is_null()).num_rows == 4
    (told, *_) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (told["min.n"], told["max.n"]) == (0, 1)


PARTITIONS: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.string(), ["a%20b", "x=y/..", "\u2028", "null", *PLANES], [""]),
    (pa.int8(), [-128, 0, 127], []),
    (pa.int16(), [-(2**15), 2**15 - 1], []),
    (pa.int32(), [-(2**31), 2**31 - 1], []),
    (pa.int64(), [-(2**63), 2**63 - 1], []),
    (pa.bool_(), [True, False], []),
    (
        pa.decimal128(5, 2),
        [Decimal("0.05"), Decimal("-1.00"), Decimal("-999.00"), Decimal("999.99"), Decimal("0.00")],
        [Decimal("-0.05"), Decimal("-1.05"), Decimal("-1.50"), Decimal("-123.45")],
    ),
    (pa.decimal128(3, 3), [Decimal("0.001"), Decimal("0.999")], [Decimal("-0.001")]),
    (pa.decimal128(38, 0), [Decimal("-" + "9" * 38), Decimal("9" * 38)], []),
    (
        pa.decimal128(38, 38),
        [Decimal("0." + "9" * 38)],
        [Decimal("-0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")],
    ),
    (
        pa.date32(),
        [datetime.date.min, datetime.date(999, 12, 31), datetime.date(1969, 12, 31), datetime.date.max],
        [-719_163, -(2**31), 2_932_897, 2**31 - 1],  # days since 1970: Python has no such dates
    ),
]
"""Types of partition columns, each with values that readers read back and values whose rows are refused."""


@pytest.mark.parametrize(("kind", "values", "refused"), PARTITIONS, ids=[str(kind) for kind, *_ in PARTITIONS])
def test_partition_value_is_found_by_a_filter_or_its_row_is_refused(
    tmp_path: Path, kind: pa.DataType, values: list[Any], refused: list[Any]
) -> None:
    rows = [*values, None]
    table = put(tmp_path, {"n": (pa.int64(), range(len(rows))), "p": (kind, rows)}, ("p",))
    assert_found(table, "p", kind, rows)
    table.create_checkpoint()
    assert_found(DeltaTable(tmp_path), "p", kind, rows)
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    odd = pa.array(refused, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(refused, kind)
    mixed = pa.concat_arrays([pa.array(rows, kind), odd])
    batch = pa.RecordBatch.from_arrays([pa.arange(0, len(mixed)), mixed], schema=schema)
    writer = DeltaRig(tmp_path, schema, (PartitionField("p"),)).sink().begin(planned(ref(9)))
    assert isinstance(writer, RefusingWriter)
    reasons = writer.refuse(batch)
    assert sorted(reasons) == list(range(len(rows), len(mixed)))
    assert all(reason.startswith("p: ") and " cannot be a partition's value" in reason for reason in reasons.values())


@pytest.mark.parametrize(("kind", "values", "refused"), PARTITIONS, ids=[str(kind) for kind, *_ in PARTITIONS])
def test_data_files_of_another_table_are_copied_as_their_rows_would_be_taken(
    tmp_path: Path, kind: pa.DataType, values: list[Any], refused: list[Any]
) -> None:
    """Older versions wrote partition values that make the whole table unreadable."""
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    sink = DeltaRig(tmp_path, schema, (PartitionField("p"),)).sink()
    odd = pa.array(refused, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(refused, kind)
    for value in [*pa.array([*values, None], kind)]:
        assert sink.copies().refused([WrittenFile("a", 1, 1, {"p": partition_value(value)})]) == ""
    for value in odd if not pa.types.is_string(kind) else ():  # an empty string was written as null
        text = value.cast(pa.string()).as_py() if pa.types.is_date(kind) else partition_value(value)
        file = WrittenFile("a", 1, 1, {"p": text})
        with pytest.raises(TargetRefusedError, match=r"p: .* cannot be a partition's value: .* Nothing was copied"):
            sink.copies().write("20260101000000000", [file], lambda _: b"")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_date_of_a_timestamp_is_read_back_or_refused(tmp_path: Path, zone: str | None) -> None:
    kind = pa.timestamp("us", zone)
    moments = [_moment(UTC if zone else None, *LAST), _moment(UTC if zone else None, 1, 1, 1, 0, 0, 0, 0)]
    beyond = pa.array([253_402_300_800_000_000, -62_135_596_800_000_001, -(2**62), 0], pa.int64()).cast(kind)
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    sink = DeltaRig(tmp_path, schema, (PartitionField("p", Transform.DATE),)).sink()
    sink.ensure()
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), pa.array(moments, kind)], schema=schema)
    sink.commit(sink.prepare(ref(0), [write_rows(sink.begin(planned(ref(0))), batch)]))
    table = DeltaTable(tmp_path)
    for number, moment in enumerate(moments):
        found = table.to_pyarrow_table(filters=pc.field("p_date") == moment.date())
        assert found["n"].to_pylist() == _by_data_fusion(table, "p_date", moment.date()) == [number]
    batch = pa.RecordBatch.from_arrays([pa.arange(0, 4), beyond], schema=schema)
    writer = sink.begin(planned(ref(1)))
    assert isinstance(writer, RefusingWriter) and not writer.may_refuse
    assert sorted(writer.refuse(batch)) == [0, 1, 2]
    with pytest.raises(
        DataError, match="p: 10000-01-01 cannot be a partition's value: readers take dates of the years"
    ):
        write_rows(writer, batch)
