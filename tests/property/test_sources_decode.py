"""A line is decoded independently of the lines around it."""

from __future__ import annotations

import csv
import json
import math
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.sources.base import Decoder
from ingest.sources.decode.csv_records import CsvDecoder
from ingest.sources.decode.options import CsvOptions, UnknownField
from ingest.sources.decode.records import TextRecords
from tests.unit.ingest.sources.rows import block_of, outcome, plain_lines, schema_of, source_of

_COLUMNS = {
    "i": "int",
    "l": "bigint",
    "s": "string",
    "d": "double",
    "f": "float",
    "b": "boolean",
    "t": "timestamp",
    "n": "timestamp_ntz",
    "y": "date",
    "m": "decimal(10,2)",
    "e": "timestamp",
    "o": "struct<x:bigint,y:string>",
    "a": "array<double>",
}
_JSON_VALUES = [
    "1",
    "-0",
    "1.0",
    "1e2",
    "99999999999",
    "99999999999999999999",
    "NaN",
    "Infinity",
    "1e400",
    "1e39",
    "0.1",
    "true",
    "false",
    "null",
    '"x"',
    '""',
    '"1"',
    '"2020-01-01"',
    '"2020-02-30"',
    '"2020-01-01T10:00:00Z"',
    '"2020-01-01 10:00"',
    '"2020-01-01T10:00:00.1234567+02:00"',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\u00e4"',
    "{}",
    '{"x":1}',
    '{"x":"1"}',
    '{"x":1,"z":2}',
    '{"x":1,"x":2}',
    "[]",
    "[1,2.5]",
    "[NaN]",
    '["x"]',
    "1.23",
    "1.234",
    '"1.23"',
    '" 1"',
    "123456789012",
    "01",
    "0x10",
    "{",
    "[[[]]]",
    '"yesterday"',
    "1.10",
    "1600000000001.5",
    "99999999999999999999999",
    "-62135596800001",
    "-",
    '"2020-01-01T24:00:00Z"',
    '"T"',
    '"9999-12-31T23:59:59.999999Z"',
]
_FIELDS = st.tuples(st.sampled_from([*_COLUMNS, "unknown"]), st.sampled_from(_JSON_VALUES))
_OBJECTS = st.lists(_FIELDS, max_size=3).map(
    lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"
)
_GOOD = st.sampled_from(['{"i":1,"s":"x","t":"2020-01-01T00:00:00Z"}', '{"i":2}', "{}", '{"o":{"x":5},"a":[1.5]}'])
_ODD = st.sampled_from(
    [
        "",
        " ",
        '{"i":1} {"i":2}',
        '{"i":',
        "3}",
        "{",
        "}",
        '{"i":1}}',
        '{"i":1}x',
        ' {"i":1}',
        '{"i":1} ',
        "[1]",
        "5",
        "null",
        '{"s":"a',
        'b"}',
        '{"i":1}\0',
        '\0{"i":1}',
        "\ufeff{}",
        '{"s":"\0"}',
        '{"s":"ä€"}',
        '{"i":1,}',
        "{}{}",
        '{"s":"}"}',
    ]
)
_JSON_LINES = st.lists(
    st.one_of(_GOOD, _GOOD, _OBJECTS, _ODD).map(str.encode) | st.just(b'{"s":"\xff"}'), min_size=1, max_size=12
)
_ENDS = st.sampled_from([b"\n", b"\r\n"])


def _decoder(kind: UnknownField = UnknownField.DROP, **columns: str) -> Decoder:
    return source_of(
        "x", on_unknown_field=kind, timestamp_format={"e": "epoch_ms"} if "e" in (columns or _COLUMNS) else None
    ).decoder(schema_of(columns or _COLUMNS), lineage=True)


def _same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself and -0.0 different from 0.0."""
    return repr(left) == repr(right)


def _assert_lines_are_independent(decoder: Decoder, data: bytes, **detail: str) -> None:
    together = outcome(decoder.decode(block_of(data, 0, **detail)))
    accepted, rejected = [], []
    for start, line in plain_lines(data):
        good, bad = outcome(decoder.decode(block_of(line, start, **detail)))
        assert len(good) + len(bad) == 1
        accepted += good
        rejected += bad
    assert _same(together, (accepted, rejected))


@settings(max_examples=300)
@given(_JSON_LINES, _ENDS, st.sampled_from([UnknownField.DROP, UnknownField.QUARANTINE]))
@example([b'{"i":1} {"i":2}', b'{"i":', b"3}"], b"\n", UnknownField.DROP)
@example([b'{"i":1}', b'{"i":1}x', b'{"i":"x"}'], b"\n", UnknownField.DROP)
def test_a_json_line_is_decoded_as_if_it_were_alone(lines: list[bytes], end: bytes, unknown: UnknownField) -> None:
    _assert_lines_are_independent(_decoder(unknown), end.join(lines) + end)


@settings(max_examples=300)
@given(_FIELDS, st.sampled_from([UnknownField.DROP, UnknownField.QUARANTINE]))
def test_arrow_and_the_slow_way_take_the_same_values(field: tuple[str, str], unknown: UnknownField) -> None:
    name, value = field
    line = f'{{"{name}":{value}}}'.encode()
    # A binary column forces decoding line by line.
    fast = outcome(_decoder(unknown).decode(block_of(line)))
    slow = outcome(_decoder(unknown, **_COLUMNS, raw="binary").decode(block_of(line)))
    for _, row in slow[0]:
        row.pop("raw")
    assert _same(fast, slow)


_CSV_CELLS = st.sampled_from(
    [
        "1",
        "x",
        "",
        '""',
        '"a,b"',
        '"a""b"',
        '"open',
        'cl"ose',
        "2020-01-01",
        "a\rb",
        '"a\rb"',
        "1.5",
        "ä",
        " 1",
        "-",
        "0x1F",
        "nan",
    ]
)
_CSV_LINES = st.lists(
    st.lists(_CSV_CELLS, min_size=1, max_size=4).map(lambda cells: ",".join(cells).encode()), min_size=1, max_size=8
)


@settings(max_examples=300)
@given(_CSV_LINES, _ENDS)
@example([b'1,"open', b"a\rb,x", b"2,y"], b"\n")
@example([b'a\rb,1,"open'], b"\n")
@example([b"1,x", b'2,"open'], b"\n")
def test_a_csv_line_is_decoded_as_if_it_were_alone(lines: list[bytes], end: bytes) -> None:
    decoder = source_of("x", format="csv").decoder(schema_of({"a": "int", "b": "string"}), lineage=True)
    _assert_lines_are_independent(decoder, end.join(lines) + end, header="a,b")


def _by_pythons_csv(line: str, dialect: CsvOptions) -> list[str] | None:
    """The values of one CSV record; None if it is not one. An added value reveals an unquoted line end."""
    more = f"{line}{dialect.delimiter}x"
    try:
        (*values, last), *others = csv.reader([more], delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True)
    except csv.Error:
        return None
    return values if line and last == "x" and not others else None


_DIALECTS = st.sampled_from([CsvOptions(header=False), CsvOptions(header=False, delimiter=";", quote="'")])


@settings(max_examples=1500)
@given(st.lists(st.text("\",\r\n a\ufeff\0;'", max_size=7), min_size=1, max_size=6), _DIALECTS, st.integers(1, 3))
@example(["\ra,b", "a,b\r", "a\rb,c"], CsvOptions(header=False), 2)
@example(["\ufeffa,b", "\ufeffc,d"], CsvOptions(header=False), 2)
@example(['"a"b,c', 'a"b,c', '"a""b",c', '"a"" ,c'], CsvOptions(header=False), 2)
@example(['"a', 'b",c'], CsvOptions(header=False), 1)
@example(["a\nb", '"a', 'b"'], CsvOptions(header=False), 1)
def test_csv_is_read_as_pythons_csv_reads_each_line(lines: list[str], dialect: CsvOptions, width: int) -> None:
    schema = pa.schema([(f"c{at}", pa.string()) for at in range(width)])
    decoder = CsvDecoder(schema, dialect, (), {}, UnknownField.DROP, lineage=True)
    expected = [_by_pythons_csv(line, dialect) for line in lines]
    expected = [None if values is None or len(values) != width else values for values in expected]

    def read(some: list[str]) -> list[list[str] | None]:
        texts = pa.array([line.encode() for line in some], pa.binary())
        accepted, rejected = outcome(decoder.decode(TextRecords("s", texts, pa.arange(0, len(some)))))
        assert len(accepted) + len(rejected) == len(some)
        values = {offset: list(row.values()) for offset, row in accepted}
        return [values.get(at) for at in range(len(some))]

    assert read(lines) == expected
    assert [read([line])[0] for line in lines] == expected


_TEXT_CELLS = st.text("12- xä", max_size=4)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(_TEXT_CELLS, _TEXT_CELLS).map(lambda cells: " ".join(cells).encode()) | st.just(b"\xff 1"), min_size=1
    )
)
def test_a_text_line_is_decoded_as_if_it_were_alone(lines: list[bytes]) -> None:
    decoder = source_of("x", format="text", pattern=r"(?P<a>\S*) (?P<b>.*)").decoder(
        schema_of({"a": "int", "b": "string"}), lineage=True
    )
    _assert_lines_are_independent(decoder, b"\n".join(lines))


_TIMES = st.sampled_from(
    [
        "2020-01-01",
        "2020-02-30",
        "2020-02-30T00:00:00Z",
        "2020-01-01T10",
        "2020-01-01 10:11",
        "2020-01-01T10:11:12.5Z",
        "x",
        "",
        "2020-01-01T10:11:12.1234567",
        "2020-01-01T10:11:12,5",
        "2020-01-01T10:11:12+0230",
        "2020-01-01T24:00",
        "1-1-1",
        "2020-01-01T10:11:12-23:59",
        "2020-01-01T10:11:12+99",
        "2020-01-01T10:11:12+00:60",
        "2020-01-01T10:11:12-0075",
        "0001-01-01T00:00:00+02:00",
        "9999-12-31T23:59:59.999999-02:00",
    ]
)


@settings(max_examples=200)
@given(st.lists(_TIMES, min_size=1), st.sampled_from(["timestamp", "timestamp_ntz", "date"]))
def test_a_timestamp_is_read_as_if_it_were_alone(texts: list[str], kind: str) -> None:
    decoder = source_of("x", format="text", pattern=r"<(?P<t>.*)>").decoder(schema_of({"t": kind}), lineage=True)
    _assert_lines_are_independent(decoder, "\n".join(f"<{text}>" for text in texts).encode())


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "17/May/2015:10:05:03 +0000",
                "30/Feb/2015:10:05:03 +0000",
                "1/May/2015:1:05:03 -0130",
                "x",
                "17/May/2015:10:05:03",
                "17/Mai/2015:10:05:03 +0000",
                "17/may/2015:10:05:03 +0000",
                "17/May/2015:10:05:03 +0060",
            ]
        ),
        min_size=1,
    )
)
def test_a_formatted_timestamp_is_read_as_if_it_were_alone(texts: list[str]) -> None:
    decoder = source_of("x", format="text", pattern=r"<(?P<t>.*)>", timestamp_format="%d/%b/%Y:%H:%M:%S %z").decoder(
        schema_of({"t": "timestamp"}), lineage=True
    )
    _assert_lines_are_independent(decoder, "\n".join(f"<{text}>" for text in texts).encode())


_ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200)
@given(_ANY_JSON)
def test_a_string_column_keeps_any_json_value_as_text_that_means_the_same(value: Any) -> None:
    data = json.dumps({"s": value}).encode()
    accepted, rejected = outcome(_decoder(s="string").decode(block_of(data)))
    assert rejected == []
    text = accepted[0][1]["s"]
    if value is None or isinstance(value, str):
        assert text == value
    else:
        assert json.loads(text) == value
        assert not isinstance(value, float) or math.copysign(1, json.loads(text)) == math.copysign(1, value)
