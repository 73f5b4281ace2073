"""Accepted values, rejected values, and the human-readable reason of each rejection."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from ingest.sources.decode.infer import infer_json
from ingest.sources.decode.options import CsvOptions, RecordFormat, UnknownField
from ingest.sources.files.options import FilesOptions
from tests.unit.ingest.sources.rows import block_of, outcome, schema_of, source_of
from timeline.errors import ConfigError, DataError

UTC = datetime.UTC


def _decode_json(value: str, kind: str, **options: Any) -> tuple[Any, str | None]:
    """One JSON value decoded for a column of one type: the value, or the reason of its rejection."""
    decoder = source_of("x", **options).decoder(schema_of({"c": kind}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(f'{{"c":{value}}}\n'.encode())))
    return (accepted[0][1]["c"], None) if accepted else (None, rejected[0][1])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("127", "tinyint", 127),
        ("-9223372036854775808", "bigint", -(2**63)),
        ("1.5", "double", 1.5),
        ("12345678901234567890.123456789", "decimal(38,9)", Decimal("12345678901234567890.123456789")),
        ('"1.50"', "decimal(10,1)", Decimal("1.5")),
        ("true", "boolean", True),
        ('"YWJj"', "binary", b"abc"),
        ('"2020-02-29"', "date", datetime.date(2020, 2, 29)),
        ('"2020-01-01T10:00:00.123456789+02:00"', "timestamp", datetime.datetime(2020, 1, 1, 8, 0, 0, 123456, UTC)),
        ('"2020-01-01 10:00"', "timestamp", datetime.datetime(2020, 1, 1, 10, tzinfo=UTC)),
        ('"2020-01-01"', "timestamp", datetime.datetime(2020, 1, 1, tzinfo=UTC)),
        ('"2020-01-01T10:00:00"', "timestamp_ntz", datetime.datetime(2020, 1, 1, 10)),
        ('{"b": [1, {"x": 1.10}], "a": 1e400, "ä": null}', "string", '{"b": [1, {"x": 1.10}], "a": 1e400, "ä": null}'),
        ('{"a":1, "a":"\\u00e4"}', "string", '{"a":1, "a":"\\u00e4"}'),
        ('{"b": {"c" :[1 , 2]}, "d": 1}', "struct<b:string,d:int>", {"b": '{"c" :[1 , 2]}', "d": 1}),
        ('{"k": [1, 1], "l": 1.0, "m": true}', "map<string,string>", [("k", "[1, 1]"), ("l", "1.0"), ("m", "true")]),
        ('[{"x": 1}, "y", null]', "array<string>", ['{"x": 1}', "y", None]),
        ("123456789012345678901234567890.10", "string", "123456789012345678901234567890.10"),
        ('{"a": 1, "c": 2}', "struct<a:int,b:string>", {"a": 1, "b": None}),
        ('{"k": {"x": 1}}', "map<string,struct<x:int>>", [("k", {"x": 1})]),
        ('{"1": 2}', "map<int,int>", [(1, 2)]),
        ('{"1": 1, "2": 0, "1": 3}', "map<int,int>", [(1, 3), (2, 0)]),
        ('{"a": 1, "b": 0, "\\u0061": 3}', "map<string,int>", [("a", 3), ("b", 0)]),
        ('[{"t": "2020-01-01"}, null]', "array<struct<t:date>>", [{"t": datetime.date(2020, 1, 1)}, None]),
        ("null", "map<string,int>", None),
    ],
)
def test_a_value_that_fits_is_kept_exactly(value: str, kind: str, expected: Any) -> None:
    assert _decode_json(value, kind) == (expected, None)


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        ("128", "tinyint", "c: 128 is not a tinyint"),
        ("9223372036854775808", "bigint", "c: 9223372036854775808 is not a bigint"),
        ("1.0", "int", "c: 1.0 is not an int"),
        ('"1"', "int", "c: '1' is not an int"),
        ("true", "int", "c: true is not an int"),
        ("1e39", "float", "c: 1e39 is not a float"),
        ("NaN", "double", "c: NaN is not a double"),
        ("1.234", "decimal(10,2)", "c: 1.234 is not a decimal(10,2)"),
        ('"x"', "boolean", "c: 'x' is not a boolean"),
        ('"2020-02-30"', "date", "c: '2020-02-30' is not a date"),
        ('"2020-02-30T00:00:00Z"', "timestamp", "c: '2020-02-30T00:00:00Z' is not a timestamp"),
        ("1600000000", "timestamp", "c: 1600000000 is not a timestamp"),
        ('"2020-01-01T00:00:00Z"', "timestamp_ntz", "c: '2020-01-01T00:00:00Z' is not a timestamp_ntz"),
        ('{"a": "x"}', "struct<a:int>", "c.a: 'x' is not an int"),
        ('[1, "x"]', "array<int>", "c[1]: 'x' is not an int"),
        ('{"k": "x"}', "map<string,int>", "c['k']: 'x' is not an int"),
        ('{"1": "a", "01": "b"}', "map<int,string>", "c: '01' beside '1' is not another key of the map"),
        ('{"0": 1, "-0": 2}', "map<double,int>", "c: '-0' beside '0' is not another key of the map"),
        (
            '{"16777216": 1, "16777217": 2}',
            "map<float,int>",
            "c: '16777217' beside '16777216' is not another key of the map",
        ),
        ('{"1": 1, "x": {}, "1.0": 2}', "map<decimal(5,2),int>", "c, key: 'x' is not a decimal(5,2)"),
        (
            '[{"1": 1, "1.0": 2}]',
            "array<map<decimal(5,2),int>>",
            "c[0]: '1.0' beside '1' is not another key of the map",
        ),
        (
            '{"2020-01-01T00:00Z": 1, "2020-01-01T01:00+01:00": 2}',
            "map<timestamp,int>",
            "c: '2020-01-01T01:00+01:00' beside '2020-01-01T00:00Z' is not another key of the map",
        ),
        (
            '{"k": {"QQ==": 1, "QR==": 2}}',
            "map<string,map<binary,int>>",
            "c['k']: 'QR==' beside 'QQ==' is not another key of the map",
        ),
        ("{", "int", "malformed JSON: Expecting ',' delimiter at character 7"),
        (f'"{"x" * 100}"', "int", f"c: '{'x' * 59}... is not an int"),
        ('{"a": NaN}', "string", "c: NaN is not JSON is not a string"),
        ('{"k": {"a": [NaN]}}', "map<string,string>", "c['k']: NaN is not JSON is not a string"),
        ("[" * 100_000, "string", "malformed JSON: nested too deeply"),
    ],
)
def test_a_value_that_does_not_fit_names_column_value_and_type(value: str, kind: str, reason: str) -> None:
    assert _decode_json(value, kind) == (None, reason)


@pytest.mark.parametrize("text_format", [None, "%Y-%m-%dT%H:%M:%S%z"])
@pytest.mark.parametrize(
    ("offset", "minutes"),
    [("+00:60", None), ("+0060", None), ("+00:99", None), ("+24:00", None), ("-2400", None), ("+23:59", 1439),
     ("-00:00", 0), ("-2359", -1439), ("+0100", 60)],
)  # fmt: skip
def test_an_offset_has_hours_to_23_and_minutes_to_59(offset: str, minutes: int | None, text_format: str | None) -> None:
    value = f'"2020-01-01T00:00:00{offset}"'
    found, _ = _decode_json(value, "timestamp", timestamp_format=text_format)
    expected = (
        None if minutes is None else datetime.datetime(2020, 1, 1, tzinfo=UTC) - datetime.timedelta(minutes=minutes)
    )
    assert found == expected
    nested, _ = _decode_json(f"[{value}]", "array<timestamp>", timestamp_format=text_format)
    assert nested == (None if minutes is None else [expected])
    kind = infer_json([f'{{"t":{value}}}'.encode()]).field("t").type
    assert kind == (pa.string() if minutes is None else pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("unit", "value", "micros"),
    [("epoch_s", "1600000000", 0), ("epoch_s", "1600000000.5", 500_000), ("epoch_ms", "1600000000001", 1000),
     ("epoch_us", '"1600000000000002"', 2)],
)  # fmt: skip
def test_epoch_numbers_are_timestamps_where_the_job_says_so(unit: str, value: str, micros: int) -> None:
    expected = datetime.datetime.fromtimestamp(1_600_000_000, UTC) + datetime.timedelta(microseconds=micros)
    assert _decode_json(value, "timestamp", timestamp_format=unit) == (expected, None)


def test_a_line_that_is_no_object_is_rejected_alone_with_its_bytes() -> None:
    decoder = source_of("x").decoder(schema_of({"n": "int"}), lineage=True)
    data = b'{"n":1}\r\n[2]\r\n\r\nnot json\r\n{"n":3\r\n{"n":"\xff"}\r\n{"n":6}'
    accepted, rejected = outcome(decoder.decode(block_of(data, 100)))
    assert accepted == [(100, {"n": 1}), (145, {"n": 6})]
    assert rejected == [
        (109, "a JSON object is expected, found an array", b"[2]"),
        (116, "malformed JSON: Expecting value at character 0", b"not json"),
        (126, "malformed JSON: Expecting ',' delimiter at character 6", b'{"n":3'),
        (134, "not UTF-8: byte 0xff at 6", b'{"n":"\xff"}'),
    ]


@pytest.mark.parametrize("kind", ["struct<a:int>", "map<string,struct<a:int>>", "array<struct<a:int>>"])
def test_an_unknown_field_is_dropped_quarantined_or_stops_the_job(kind: str) -> None:
    inner = {"s": '{"a":1,"z":2}', "m": '{"k":{"a":1,"z":2}}', "a": '[{"a":1,"z":2}]'}[kind[0]]
    for line, name in ((f'{{"c":{inner}}}', "c.z"), ('{"c":null,"z":1}', "z")):
        data = f'{{"c":null}}\n{line}\n'.encode()
        decoders = {
            unknown: source_of("x", on_unknown_field=unknown).decoder(schema_of({"c": kind}), lineage=True)
            for unknown in UnknownField
        }
        assert len(outcome(decoders[UnknownField.DROP].decode(block_of(data)))[0]) == 2
        _, rejected = outcome(decoders[UnknownField.QUARANTINE].decode(block_of(data)))
        assert [(offset, reason) for offset, reason, _ in rejected] == [(11, f"{name}: the schema has no such field")]
        with pytest.raises(DataError, match=rf"shard shard, offset 11.*'{name}'"):
            decoders[UnknownField.FAIL].decode(block_of(data))


def _csv(data: bytes, header: str = "a,b", **options: Any) -> Any:
    source = source_of("x", format="csv", **options)
    return outcome(
        source.decoder(schema_of({"a": "int", "b": "string"}), lineage=True).decode(block_of(data, header=header))
    )


def test_csv_values_are_typed_and_misfits_rejected_alone() -> None:
    accepted, rejected = _csv(b'1,x\n2,"a,""b"""\n,\n3,""\nx,y\n4\n5,6,7\n0x10,z\n6,"open\n7,ok\n')
    assert [row for _, row in accepted] == [
        {"a": 1, "b": "x"}, {"a": 2, "b": 'a,"b"'}, {"a": None, "b": None}, {"a": 3, "b": ""}, {"a": 7, "b": "ok"},
    ]  # fmt: skip
    assert [(raw, reason) for _, reason, raw in rejected] == [
        (b"x,y", "a: 'x' is not an int"),
        (b"4", "1 column where 2 are expected"),
        (b"5,6,7", "3 columns where 2 are expected"),
        (b"0x10,z", "a: '0x10' is not an int"),
        (b'6,"open', "a quote that is not closed"),
    ]


def test_a_nested_value_in_csv_keeps_objects_in_string_columns_as_they_are_written() -> None:
    decoder = source_of("x", format="csv").decoder(schema_of({"a": "array<string>"}), lineage=True)
    accepted, _ = outcome(decoder.decode(block_of(b'"[{""x"": 1}, ""y""]"\n', header="a")))
    assert accepted == [(0, {"a": ['{"x": 1}', "y"]})]


def test_two_keys_of_a_text_that_are_one_key_of_the_map_reject_their_row() -> None:
    decoder = source_of("x", format="csv", csv={"delimiter": ";"}).decoder(
        schema_of({"m": "map<int,string>", "s": "struct<m:map<date,int>>"}), lineage=True
    )
    lines = b"""{"1":"a","2":"b"};\n{"1":"a","01":"b"};\n"""
    accepted, rejected = outcome(decoder.decode(block_of(lines, header="m;s")))
    assert accepted == [(0, {"m": [(1, "a"), (2, "b")], "s": None})]
    assert [reason for _, reason, _ in rejected] == [
        """m: '{"1":"a","01":"b"}' is not a map<int,string> with each key once"""
    ]


def test_csv_columns_go_by_the_header_of_their_file() -> None:
    assert _csv(b"x,1\n", header="b,a")[0] == [(0, {"a": 1, "b": "x"})]
    assert _csv(b"1\n", header="a")[0] == [(0, {"a": 1, "b": None})]
    assert _csv(b"1,2\n", header="a,z")[0] == [(0, {"a": 1, "b": None})]
    assert "none of the schema's columns" in _csv(b"1,2\n", header="y,z")[1][0][1]
    assert "z" in _csv(b"1,2\n", header="a,z", on_unknown_field=UnknownField.QUARANTINE)[1][0][1]
    with pytest.raises(DataError, match="'z'"):
        _csv(b"1,2\n", header="a,z", on_unknown_field=UnknownField.FAIL)


def test_csv_dialects_without_a_header_go_by_the_schema() -> None:
    assert _csv(b"1,0\n", nulls=["0"])[0] == [(0, {"a": 1, "b": None})]
    dialect = CsvOptions(header=False, delimiter=";", quote="'")
    assert _csv(b"1;'x;y'\nNULL;NULL\n", csv=dialect, nulls=["NULL"])[0] == [
        (0, {"a": 1, "b": "x;y"}),
        (8, {"a": None, "b": None}),
    ]


def test_a_pattern_matches_whole_lines_and_types_its_groups() -> None:
    source = source_of("x", format="text", pattern=r"(?P<a>\S+)(?: (?P<b>\w+))?", nulls=["-", ""])
    decoder = source.decoder(schema_of({"b": "string", "a": "int"}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(b"1 x\n- y\n2\nz z\n1 x y\n")))
    assert [row for _, row in accepted] == [{"b": "x", "a": 1}, {"b": "y", "a": None}, {"b": None, "a": 2}]
    assert [(raw, reason) for _, reason, raw in rejected] == [
        (b"z z", "a: 'z' is not an int"),
        (b"1 x y", "the line does not match source.pattern"),
    ]


@pytest.mark.parametrize("nulls", [["", "-"], ["-"], []])
def test_a_group_that_took_no_part_is_null_and_one_that_matched_nothing_is_its_text(nulls: list[str]) -> None:
    source = source_of(
        "x", format="text", pattern=r"(?P<a>\w*)(?:;(?P<b>\w*))?(?:;(?P<c>\w+)|!(?P<d>\w*))?", nulls=nulls
    )
    decoder = source.decoder(schema_of(dict.fromkeys("abcd", "string")), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(b";\nx\nx;y\nx;;y\nx!\n;;;\n!z\n\xff\n")))
    empty = None if "" in nulls else ""
    assert [tuple(row.values()) for _, row in accepted] == [
        (empty, empty, None, None),
        ("x", None, None, None),
        ("x", "y", None, None),
        ("x", empty, "y", None),
        ("x", None, None, empty),
        (empty, None, None, "z"),
    ]
    assert [raw for _, _, raw in rejected] == [b";;;", b"\xff"]


def test_a_pattern_that_cannot_serve_the_schema_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"named c; its groups are a"):
        source_of("x", format="text", pattern="(?P<a>x)").decoder(schema_of({"c": "string"}), lineage=False)
    with pytest.raises(ConfigError, match="RE2"):
        source_of("x", format="text", pattern="(?P<a>x)(?=y)").decoder(schema_of({"a": "string"}), lineage=False)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "17/May/2015:10:05:03 +0200", datetime.datetime(2015, 5, 17, 8, 5, 3, tzinfo=UTC)),
        ("%d/%b/%Y:%H:%M:%S %z", "1/May/2015:10:05:03 +0000", datetime.datetime(2015, 5, 1, 10, 5, 3, tzinfo=UTC)),
        ("%d/%b/%Y:%H:%M:%S %z", "30/Feb/2015:10:05:03 +0000", None),
        ("%y%m%d %H%M%S", "081109 203615", datetime.datetime(2008, 11, 9, 20, 36, 15, tzinfo=UTC)),
        ("%y%m%d %H%M%S", "691109 203615", datetime.datetime(1969, 11, 9, 20, 36, 15, tzinfo=UTC)),
        ("%Y-%m-%d %H:%M:%S,%f", "2020-01-01 10:00:00,123", datetime.datetime(2020, 1, 1, 10, 0, 0, 123000, UTC)),
        ("%d %B %Y %I%p", "1 January 2020 3PM", datetime.datetime(2020, 1, 1, 15, tzinfo=UTC)),
        ("%m/%d/%Y", "02/30/2020", None),
    ],
)
def test_timestamp_formats_mean_what_strptime_means(
    pattern: str, text: str, expected: datetime.datetime | None
) -> None:
    value, reason = _decode_json(f'"{text}"', "timestamp", timestamp_format=pattern)
    assert value == expected
    assert (reason is None) == (expected is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "text"}, "format text needs pattern"),
        ({"format": "json", "pattern": "(?P<a>x)"}, "for format text only"),
        ({"format": "text", "pattern": "("}, "not a regular expression"),
        ({"format": "text", "pattern": "x"}, "no named group"),
        ({"format": "text", "pattern": "(?P<a>x)(y)"}, "group without a name"),
        ({"format": "json", "timestamp_format": "iso"}, "strptime directives are allowed"),
        ({"format": "json", "unknown": 1}, "Extra inputs"),
        ({"format": "json", "max_bytes_per_epoch": "0"}, "greater than 0"),
        ({"format": "csv", "csv": {"quote": ","}}, "two different characters"),
        ({"format": "csv", "csv": {"delimiter": "||"}}, "one ASCII character"),
        ({"format": "json", "csv": {"header": False}}, "csv is for format csv only"),
        ({"format": "parquet", "compression": "gzip"}, "compress inside"),
    ],
)
def test_impossible_options_are_refused_with_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FilesOptions.model_validate({"path": "x", **options})


def test_options_are_read_as_the_job_file_writes_them() -> None:
    options = FilesOptions.model_validate(
        {"type": "files", "path": "x", "format": "csv", "max_bytes_per_epoch": "256MB", "close_after": "500ms"}
    )
    assert (options.format, options.max_bytes_per_epoch, options.close_after) == (RecordFormat.CSV, 256_000_000, 0.5)


@pytest.mark.parametrize(
    ("formats", "kind", "message"),
    [
        ({"other": "epoch_ms"}, "timestamp", "timestamp_format.other"),
        ({"c": "epoch_ms"}, "bigint", r"timestamp_format\.c.*no column of type timestamp"),
        ("%Y-%m-%d %z", "timestamp_ntz", "c is a timestamp_ntz"),
    ],
)
def test_a_timestamp_format_that_fits_no_column_is_refused(formats: Any, kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source_of("x", timestamp_format=formats).decoder(schema_of({"c": kind}), lineage=False)


def test_half_a_surrogate_pair_anywhere_rejects_its_row_alone() -> None:
    data = b'{"c":1}\n{"c":{"\\ud800":1}}\n{"c":1,"\\ud800":1}\n{"c":{"k":"\\ud800"}}\n'
    decoder = source_of("x", on_unknown_field=UnknownField.QUARANTINE).decoder(schema_of({"c": "int"}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(data)))
    assert [row for _, row in accepted] == [{"c": 1}]
    assert [reason for _, reason, _ in rejected] == [
        'c: {"\\ud800":1} is not an int',
        "\\ud800: the schema has no such field",
        'c: {"k":"\\ud800"} is not an int',
    ]


def test_json_of_any_depth_is_a_row_or_a_rejected_row() -> None:
    decoder = source_of("x").decoder(schema_of({"c": "string", "n": "int"}), lineage=True)
    for depth in (10, 300, 700, 980, 1_000, 5_000, 200_000):
        data = b'{"c":' + b'[{"x":' * depth + b"1" + b"}]" * depth + b',"n":1}'
        accepted, rejected = outcome(decoder.decode(block_of(data)))
        assert len(accepted) + len(rejected) == 1


@pytest.mark.parametrize("blank", ["", " "])
def test_a_number_of_thousands_of_digits_in_a_text_is_kept_as_written(blank: str) -> None:
    # A line with a leading blank is decoded alone.
    value = '{"n":' + "9" * 5_000 + "}"
    decoder = source_of("x").decoder(schema_of({"c": "string"}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(f'{blank}{{"c":{value}}}\n'.encode())))
    assert accepted == [(0, {"c": value})]
    assert rejected == []


@pytest.mark.parametrize("lines", [['"0000-01-01"'], ['"0000-01-01"', '"2020-02-30"', '"2020-02-29"']])
def test_the_year_0_is_no_date_whichever_way_it_is_read(lines: list[str]) -> None:
    decoder = source_of("x").decoder(schema_of({"c": "date"}), lineage=True)
    for blank in ("", " "):
        data = "".join(f'{blank}{{"c":{line}}}\n' for line in lines).encode()
        accepted, rejected = outcome(decoder.decode(block_of(data)))
        assert [row["c"] for _, row in accepted] == [datetime.date(2020, 2, 29)] * (len(lines) > 1)
        assert rejected[0][1] == "c: '0000-01-01' is not a date"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('1,"a"b', "text behind a closing quote: 'b'"),
        ('1,"a" ', "text behind a closing quote: ' '"),
        ('1,"a""', "a quote that is not closed"),
        ("\r1,a", "a carriage return or line feed outside quotes"),
        ("1,a\r", "a carriage return or line feed outside quotes"),
        ("1,a\rb", "a carriage return or line feed outside quotes"),
        ("1,a,", "3 columns where 2 are expected"),
    ],
)
def test_what_is_no_csv_is_rejected_with_what_is_wrong(line: str, reason: str) -> None:
    good = [(0, {"a": 1, "b": "x"}), (4 + len(line) + 2, {"a": 2, "b": 'y"z'})]
    assert _csv(b"1,x\n" + line.encode() + b"\r\n" + b'2,y"z\n') == (good, [(4, reason, line.encode())])


@pytest.mark.parametrize("header", ["a,b,a", "a, b,b ", '"b",a,b'])
def test_a_header_that_names_a_column_twice_rejects_the_rows_of_its_file(header: str) -> None:
    decoder = source_of("x", format="csv").decoder(schema_of({"a": "int", "b": "string"}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of(b"1,2,3\n4,5,6\n", 10, header=header)))
    twice = "a" if header == "a,b,a" else "b"
    assert accepted == []
    assert [reason for _, reason, _ in rejected] == [f"{twice}: the file's header names this column more than once"] * 2
    # Two columns of one name do not matter where the schema has no such column.
    decoder = source_of("x", format="csv").decoder(schema_of({"c": "int"}), lineage=True)
    assert outcome(decoder.decode(block_of(b"1,2,3,4,5\n", header="a,a,c,,"))) == ([(0, {"c": 3})], [])


@pytest.mark.parametrize("header", ["id\rname", "x" * 200_000, '"id"x,name'])
def test_a_header_that_is_none_rejects_the_rows_of_its_file(header: str) -> None:
    source = source_of("x", format="csv")
    decoder = source.decoder(schema_of({"id": "int"}), lineage=True)
    block = block_of(b"1,a\n2,b\n", 10, header=header)
    accepted, rejected = outcome(decoder.decode(block))
    assert accepted == []
    assert [reason.partition(":")[0] for _, reason, _ in rejected] == ["the file's header cannot be read"] * 2
