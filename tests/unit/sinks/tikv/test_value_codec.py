from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from sinks.json_text import from_json, to_json
from sinks.sql_types import parse_type
from sinks.tikv.value_codec import ValueCodec
from timeline.errors import ConfigError, FormatError

SCHEMA = pa.schema([("n", pa.int32()), ("s", pa.string()), ("t", pa.string())])
CODEC = ValueCodec(SCHEMA)


def value_of(**row: object) -> bytes:
    value: bytes = CODEC.encode(pa.RecordBatch.from_pylist([row], SCHEMA))[0].as_py()
    return value


def test_what_lies_under_a_null_is_not_written() -> None:
    hidden = pa.Array.from_buffers(pa.int32(), 1, [pa.py_buffer(b"\0"), pa.py_buffer(struct.pack("<i", 7))])
    offsets = pa.py_buffer(np.array([0, 6], np.int32))
    secret = pa.Array.from_buffers(pa.string(), 1, [pa.py_buffer(b"\0"), offsets, pa.py_buffer(b"secret")])
    rows = pa.RecordBatch.from_arrays([hidden, secret, pa.array(["x"])], schema=SCHEMA)
    assert CODEC.encode(rows)[0].as_py() == value_of(n=None, s=None, t="x")


def test_floats_keep_every_bit() -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000, 1], np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(bits.view(np.float64))], names=["f"])
    found = ValueCodec(rows.schema)
    decoded = found.decode(found.encode(rows)).column("f").to_numpy()
    assert decoded.view(np.uint64).tolist() == bits.tolist()


def test_moments_beyond_pythons_years_keep_their_microsecond() -> None:
    moments = pa.array([-(2**63) + 1, -1, 0, 2**63 - 1], pa.int64())
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="Asia/Tokyo")):
        nested = pa.StructArray.from_arrays([moments.cast(kind)], names=["at"])
        rows = pa.RecordBatch.from_arrays([moments.cast(kind), nested], names=["at", "nested"])
        codec = ValueCodec(rows.schema)
        assert codec.decode(codec.encode(rows)).equals(rows)


def test_other_types_of_text_and_units_are_taken_as_the_schemas() -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int8()), pa.array(["a"], pa.large_string()), pa.array(["b"], pa.string_view())],
        names=["n", "s", "t"],
    )
    assert CODEC.encode(rows)[0].as_py() == value_of(n=1, s="a", t="b")


@pytest.mark.parametrize("kind", [pa.uint8(), pa.time64("us"), pa.timestamp("ns"), pa.list_(pa.duration("s"))])
def test_a_column_that_cannot_be_stored_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"`wrong`.*cannot be stored; allowed are"):
        ValueCodec(pa.schema([("fine", pa.int8()), ("wrong", kind)]))


def test_a_row_whose_fixed_part_is_too_wide_to_be_counted_is_refused() -> None:
    wide = [(f"c{place}", pa.decimal128(38, 0)) for place in range(4096)]
    ValueCodec(pa.schema(wide[:4000]))
    with pytest.raises(ConfigError, match="4,096 columns"):
        ValueCodec(pa.schema(wide))


def test_the_same_column_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="each name once"):
        ValueCodec(pa.schema([("a", pa.int8()), ("a", pa.string())]))


def test_a_delete_has_no_columns() -> None:
    with pytest.raises(FormatError, match="delete"):
        CODEC.decode(pa.array([value_of(n=1), None]))


GOOD = value_of(n=1, s="ab", t="c")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"", "shorter than its header"),
        (GOOD[:6], "shorter than its header"),
        (b"\x02" + GOOD[1:], "version 2; this version of Tideline reads 1"),
        (GOOD[:12], "shorter than its fixed part"),
        (GOOD[:-1], "not as long"),
        (GOOD + b"\0", "not as long"),
        (GOOD[:12] + struct.pack("<II", 3, 2) + GOOD[20:], "go back"),
        (GOOD[:1] + struct.pack("<HHH", 3, 1, 8) + GOOD[7:], "only be appended"),
        (GOOD[:1] + struct.pack("<HHH", 4, 1, 4) + GOOD[7:], "only be appended"),
        (GOOD[:1] + struct.pack("<HHH", 3, 3, 4) + GOOD[7:20] + struct.pack("<I", 3) + GOOD[20:], "only be appended"),
        (GOOD[:-1] + b"\xff", "no string"),
    ],
)
def test_a_value_that_is_not_of_this_layout_is_refused(value: bytes, fault: str) -> None:
    with pytest.raises(FormatError, match=fault):
        CODEC.decode(pa.array([GOOD, value, GOOD]))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("array<int>", '["x"]'),
        ("array<int>", "[1.5]"),
        ("array<int>", "{}"),
        ("array<int>", "[1"),
        ("array<tinyint>", "[300]"),
        ("array<double>", "[NaN]"),
        ("array<double>", "[true]"),
        ("array<boolean>", "[1]"),
        ("array<string>", "[1]"),
        ("array<date>", '["yesterday"]'),
        ("array<date>", "[1]"),
        ("array<timestamp>", '["2024-05-01T12:00:00.000000"]'),
        ("array<timestamp_ntz>", '["2024-05-01T12:00:00.000000Z"]'),
        ("array<binary>", '["?"]'),
        ("array<decimal(3,1)>", "[123.4]"),
        ("struct<a:int>", "[1]"),
        ("map<int,int>", '{"1":2}'),
    ],
)
def test_json_text_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(FormatError):
        from_json([text], parse_type(kind))


CALENDAR = [
    ("timestamp", -(2**63), '"-290308-12-21T19:59:05.224192Z"'),
    ("timestamp_ntz", -(2**63), '"-290308-12-21T19:59:05.224192"'),
    ("timestamp", 2**63 - 1, '"294247-01-10T04:00:54.775807Z"'),
    ("timestamp", -62_167_219_200_000_000, '"0000-01-01T00:00:00.000000Z"'),
    ("timestamp", -62_167_219_200_000_001, '"-0001-12-31T23:59:59.999999Z"'),
    ("timestamp_ntz", -87_077_544_457_122_776, '"-0790-08-16T01:12:22.877224"'),
    ("date", -(2**31), '"-5877641-06-23"'),
    ("date", 2**31 - 1, '"5881580-07-11"'),
    ("date", -719_529, '"-0001-12-31"'),
    ("date", -737_828, '"-0051-11-24"'),
]


@pytest.mark.parametrize(("kind", "number", "text"), CALENDAR)
def test_dates_and_times_of_every_year_have_a_text_that_is_read_back(kind: str, number: int, text: str) -> None:
    of = parse_type(kind)
    stored = pa.int32() if pa.types.is_date32(of) else pa.int64()
    column = pa.array([0, None, number], stored).cast(of)
    texts = to_json(column)
    assert texts[2] == text
    assert from_json([each if each != "null" else None for each in texts], of).equals(column)
    nested = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), column, type=pa.list_(of))
    assert from_json(to_json(nested), nested.type).equals(nested)


@pytest.mark.parametrize(("kind", "text"), [("date", '"-051-11-24"'), ("timestamp", '"-790-08-16T01:12:22.877224Z"')])
def test_years_of_three_digits_that_were_written_before_are_read(kind: str, text: str) -> None:
    assert to_json(from_json([text], parse_type(kind))) == [text.replace('"-', '"-0')]


def test_repeated_keys_of_a_map_stay_repeated() -> None:
    for kind, text in (("map<string,int>", '{"a":1,"a":2}'), ("map<int,int>", "[[1,1],[1,2]]")):
        column = from_json([text], parse_type(kind))
        assert len(column[0].as_py()) == 2
        assert to_json(column) == [text]
