"""Values of Parquet files and the types that they fit: the same at any depth."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ingest.sources.base import Block
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.files.parquet import ParquetDecoder
from tests.unit.ingest.sources.rows import outcome, schema_of

_Shape = tuple[str, Callable[[pa.Array], pa.Array], Callable[[Any], Any]]


def _offsets(values: pa.Array) -> pa.Array:
    return pa.array(range(len(values) + 1), pa.int32())


def _keys(values: pa.Array) -> pa.Array:
    return pa.array(["k"] * len(values))


SHAPES: Mapping[str, _Shape] = {
    "column": ("{}", lambda values: values, lambda value: value),
    "dictionary": ("{}", lambda values: values.dictionary_encode(), lambda value: value),
    "struct": ("struct<x:{}>", lambda values: pa.StructArray.from_arrays([values], ["x"]), lambda value: value["x"]),
    "list": ("array<{}>", lambda values: pa.ListArray.from_arrays(_offsets(values), values), lambda value: value[0]),
    "large list": (
        "array<{}>",
        lambda values: pa.LargeListArray.from_arrays(_offsets(values).cast(pa.int64()), values),
        lambda value: value[0],
    ),
    "map": (
        "map<string,{}>",
        lambda values: pa.MapArray.from_arrays(_offsets(values), _keys(values), values),
        lambda value: value[0][1],
    ),
    "deep": (
        "array<struct<x:map<string,{}>>>",
        lambda values: pa.ListArray.from_arrays(
            _offsets(values),
            pa.StructArray.from_arrays([pa.MapArray.from_arrays(_offsets(values), _keys(values), values)], ["x"]),
        ),
        lambda value: value[0]["x"][0][1],
    ),
}
shapes = pytest.mark.parametrize("shape", SHAPES)


def fit(values: pa.Array, kind: str, shape: str = "column", written: TimeFormat | None = None) -> dict[int, Any]:
    """Values of accepted rows, by row index.

    Args:
        values: of the file, one for each row.
        kind: type of the column.
        shape: a key of `SHAPES`: how values and type are nested.
        written: the job's timestamp format.
    """
    around, make, take = SHAPES[shape]
    # A slice of a longer column, whose other rows do not count.
    batch = pa.RecordBatch.from_arrays([make(pa.concat_arrays([values, values]))], ["v"]).slice(len(values))
    formats = {"v": written}
    decoder = ParquetDecoder(
        schema_of({"v": around.format(kind)}), UnknownField.DROP, lineage=True, timestamp_formats=formats
    )
    accepted, rejected = outcome(decoder.decode(Block("a", 0, batch.num_rows, batch)))
    assert len(accepted) + len(rejected) == len(values)
    assert all(reason.startswith("v: ") for _, reason, _ in rejected)
    return {offset: take(row["v"]) for offset, row in accepted}


def _at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[misc,arg-type]


@shapes
def test_counts_are_times_by_the_jobs_unit_at_any_depth(shape: str) -> None:
    millis = TimeFormat("epoch_ms")
    expected = {0: _at(2020, 9, 13, 12, 26, 40, 123_000), 1: _at(1970, 1, 1)}
    counts = pa.array([1_600_000_000_123, 0, 2**63 - 1])
    assert fit(counts, "timestamp", shape, millis) == expected
    assert fit(counts.cast(pa.decimal128(20, 0)), "timestamp", shape, millis) == expected
    for kind in ("timestamp", "timestamp_ntz", "date"):
        assert fit(counts, kind, shape) == {}
    assert fit(counts, "date", shape, millis) == {}


@shapes
def test_texts_are_times_by_the_jobs_pattern_at_any_depth(shape: str) -> None:
    texts = pa.array(["31/01/2026 12:00", "2026-01-31T12:00Z", "31/02/2026 12:00"])
    berlin = TimeFormat("%d/%m/%Y %H:%M", "Europe/Berlin")
    for column in (texts, texts.cast(pa.large_string()), texts.cast(pa.binary())):
        assert fit(column, "timestamp", shape, berlin) == {0: _at(2026, 1, 31, 11)}
        assert fit(column, "timestamp", shape) == {1: _at(2026, 1, 31, 12)}
    days = pa.array(["31/01/2026", "2026-01-31", "2026-02-30"])
    assert fit(days, "date", shape, TimeFormat("%d/%m/%Y", is_of_dates=True)) == {0: datetime.date(2026, 1, 31)}
    assert fit(days, "date", shape) == {1: datetime.date(2026, 1, 31)}


@shapes
@pytest.mark.parametrize("zone", [None, "Mars/Phobos"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_is_a_date_only_at_a_days_beginning_and_in_a_year_of_dates(
    unit: str, zone: str | None, shape: str
) -> None:
    day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counts = [0, day, -day, 1, day - 1, 2**63 - 1, (2**63 - 1) // day * day, -(2**63) + 1, None]
    found = fit(pa.array(counts, pa.int64()).view(pa.timestamp(unit, zone)), "date", shape)
    days = [datetime.date(1970, 1, 1), datetime.date(1970, 1, 2), datetime.date(1969, 12, 31)]
    if unit == "ns":  # its last day is in 2262
        assert found.pop(6) == datetime.date(2262, 4, 11)
    assert found == dict(enumerate(days)) | {8: None}


@shapes
def test_times_out_of_the_years_of_dates_fit_nothing(shape: str) -> None:
    far = pa.array([2**62, -(2**62), 0, None], pa.int64())
    days = pa.array([4_000_000, -4_000_000, 0, None], pa.int32()).view(pa.date32())
    times = [*(far.view(pa.timestamp(unit, zone)) for unit in ("s", "ms", "us") for zone in (None, "UTC")), days]
    for values in (*times, far.view(pa.date64())):
        for kind in ("date", "timestamp", "timestamp_ntz", "string"):
            assert list(fit(values, kind, shape)) == [2, 3], (values.type, kind)


@shapes
def test_bytes_are_read_as_the_texts_that_they_are(shape: str) -> None:
    texts = [b"0x10", b"1e400", b"16", b"true", b"\xff", b"2026-01-31", None]
    wanted: Mapping[str, dict[int, Any]] = {
        "int": {2: 16},
        "double": {2: 16.0},
        "decimal(4,0)": {2: Decimal(16)},
        "boolean": {3: True},
        "timestamp": {5: _at(2026, 1, 31)},
        "string": {0: "0x10", 1: "1e400", 2: "16", 3: "true", 5: "2026-01-31"},
        "binary": dict(enumerate(texts)),
    }
    for kind, expected in wanted.items():
        for found in (pa.binary(), pa.large_binary()):
            assert fit(pa.array(texts, found), kind, shape) == {6: None} | expected, kind


_TIMES = [
    pa.array([0], pa.timestamp("us", "UTC")),
    pa.array([0], pa.timestamp("ms")),
    pa.array([0], pa.int32()).view(pa.date32()),
    pa.array([0], pa.time64("us")),
    pa.array([0], pa.duration("s")),
]


@shapes
@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        *(
            (each, ["tinyint", "int", "bigint", "float", "double", "decimal(20,0)", "boolean", "binary"])
            for each in _TIMES
        ),
        (_TIMES[3], ["date", "timestamp"]),
        (_TIMES[4], ["date", "timestamp", "string"]),
        (pa.array([True]), ["int", "double", "decimal(4,0)", "timestamp", "date", "binary"]),
        (pa.array([1]), ["binary", "date", "timestamp"]),
    ],
    ids=str,
)
def test_conversions_that_the_manual_does_not_list_are_rejected(values: pa.Array, kinds: list[str], shape: str) -> None:
    assert {kind: fit(values, kind, shape) for kind in kinds} == {kind: {} for kind in kinds}


@shapes
def test_conversions_that_the_manual_lists_are_exact(shape: str) -> None:
    wide = pa.array([2**64 - 1, 1], pa.uint64())
    assert fit(wide, "bigint", shape) == {1: 1}
    assert fit(wide, "string", shape) == {0: "18446744073709551615", 1: "1"}
    assert fit(pa.array([1.5, 2.0, float("nan")]), "int", shape) == {1: 2}
    assert fit(pa.array([2**53 + 1, 1]), "double", shape) == {1: 1.0}
    assert fit(pa.array([True, False]), "string", shape) == {0: "true", 1: "false"}
    assert fit(pa.array([0, 1, 2]), "boolean", shape) == {0: False, 1: True}
    assert fit(pa.array([datetime.date(2026, 1, 31)]), "timestamp_ntz", shape) == {0: datetime.datetime(2026, 1, 31)}
    assert fit(pa.array([0], pa.time32("s")), "string", shape) == {0: "00:00:00"}
    assert fit(pa.array(['{"y":1}', '{"y":"z"}']), "struct<y:int>", shape) == {0: {"y": 1}}
    assert fit(pa.nulls(2), "int", shape) == {0: None, 1: None}


def test_a_maps_key_that_does_not_fit_rejects_its_row_alone() -> None:
    maps = pa.array([[("1", 1)], [("x", 1), ("2", 2)], None, []], pa.map_(pa.string(), pa.int64()))
    for shape in SHAPES.keys() - {"dictionary"}:
        assert fit(maps, "map<int,int>", shape) == {0: [(1, 1)], 2: None, 3: []}


_TWICE: Mapping[str, tuple[pa.Array, str]] = {
    "as it is": (pa.array([[("a", 1), ("a", 1)]], pa.map_(pa.string(), pa.int32())), "map<string,int>"),
    "of values": (pa.array([[("a", 1), ("a", 1)]], pa.map_(pa.string(), pa.int64())), "map<string,int>"),
    "digits": (pa.array([[("1", 1), ("01", 2)]], pa.map_(pa.string(), pa.int32())), "map<int,int>"),
    "scale": (pa.array([[("1.0", 1), ("1.00", 2)]], pa.map_(pa.string(), pa.int32())), "map<decimal(5,2),int>"),
    "nanoseconds": (
        pa.array([[(1, 1), (999, 2)]], pa.map_(pa.timestamp("ns", "UTC"), pa.int32())),
        "map<timestamp,int>",
    ),
    "zones": (
        pa.array([[("2020-01-01T00:00Z", 1), ("2020-01-01T01:00+01:00", 2)]], pa.map_(pa.string(), pa.int32())),
        "map<timestamp,int>",
    ),
    "zeros": (pa.array([[(0.0, 1), (-0.0, 2)]], pa.map_(pa.float64(), pa.int32())), "map<double,int>"),
    "no numbers": (
        pa.array([[(float("nan"), 1), (float("nan"), 2)]], pa.map_(pa.float64(), pa.int32())),
        "map<double,int>",
    ),
    "structs": (
        pa.array([[({"x": 1}, 1), ({"x": 1}, 2)]], pa.map_(pa.struct([("x", pa.int32())]), pa.int32())),
        "map<struct<x:int>,int>",
    ),
    "left out": (
        pa.array(
            [[({"x": 1, "y": 1}, 1), ({"x": 1, "y": 2}, 2)]],
            pa.map_(pa.struct([("x", pa.int32()), ("y", pa.int32())]), pa.int32()),
        ),
        "map<struct<x:int>,int>",
    ),
    "lists": (
        pa.array([[{"key": "a", "value": 1}, {"key": "a", "value": 2}]]),
        "map<string,int>",
    ),
    "texts": (pa.array(['{"1":1,"01":2}']), "map<int,int>"),
    "inside": (
        pa.array([[(1, [("a", 1), ("a", 2)])]], pa.map_(pa.int32(), pa.map_(pa.string(), pa.int32()))),
        "map<int,map<string,int>>",
    ),
}


@pytest.mark.parametrize("which", _TWICE)
@shapes
def test_a_map_with_a_key_twice_rejects_its_row_alone(which: str, shape: str) -> None:
    if shape == "dictionary" and which != "texts":
        return  # Arrow has no dictionaries of maps
    found, kind = _TWICE[which]
    once = pa.nulls(1, found.type) if pa.types.is_string(found.type) else pa.array([[], None], found.type)
    values = pa.concat_arrays([once, found, once])
    expected = {at: value for at, value in enumerate(once.to_pylist())}
    expected |= {at + len(once) + 1: value for at, value in expected.items()}
    assert fit(values, kind, shape) == expected


def test_the_reason_of_a_map_with_a_key_twice_says_so() -> None:
    maps = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    batch = pa.RecordBatch.from_arrays([maps], ["m"])
    decoder = ParquetDecoder(schema_of({"m": "map<string,int>"}), UnknownField.DROP, lineage=True)
    ((_, reason, raw),) = outcome(decoder.decode(Block("a", 0, 1, batch)))[1]
    assert reason.endswith(" is not a map<string,int> with each key once")
    assert b'"value": 1' in raw
    assert b'"value": 2' in raw
