"""Lines that are decoded as a block: decoding line by line is slow and must be rare."""

from __future__ import annotations

import json

import pytest

from ingest.sources.decode.json.line_block import JsonColumns, LineBlock
from ingest.sources.decode.json.typed_columns import can_name
from ingest.sources.decode.json.ways import can_decode, decode_block
from ingest.sources.decode.time_format import TimeFormat
from tests.unit.ingest.sources.rows import schema_of

_SCHEMA = schema_of(
    {
        "id": "int",
        "at": "timestamp",
        "text": "string",
        "zones": "map<string,struct<n:int,s:string>>",
        "labels": "map<string,string>",
        "deep": "struct<m:map<string,map<string,date>>,t:string>",
    }
)
_GOOD = {
    "id": 1,
    "at": 1_600_000_000_000,
    "text": {"id": [1, {"}": '"'}], "zones": {"\\": None}},
    "zones": {"a": {"n": 1, "s": "x"}, "b": None, "": {"n": None, "s": ["y"], "other": {}}},
    "labels": {"text": "x", "n": 1.50, "b": False, "o": {"a": "{"}},
    "deep": {"m": {"x": {"y": "2020-01-01"}}, "t": [[]]},
    "other": {"zones": {"x": "y"}, "text": 1},
}


def _left(lines: list[str], end: str = "\n") -> list[int]:
    """Lines that are not decoded as a block."""
    columns = JsonColumns(_SCHEMA, {"at": TimeFormat("epoch_ms")}, strict=False)
    assert can_decode(columns)
    decoded = decode_block(LineBlock(end.join(lines).encode(), len(lines), columns))
    for column, values in zip(_SCHEMA, decoded.columns, strict=True):
        assert (len(values), values.type) == (len(decoded.lines), column.type)
    return sorted(set(range(len(lines))).difference(decoded.lines.tolist()))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\t", " :  ")])
def test_maps_texts_and_structs_of_them_are_decoded_as_blocks(separators: tuple[str, str], end: str) -> None:
    other = [{"text": None, "zones": {}}, {"text": True, "zones": None}, {"text": "ä", "id": None}, {}]
    assert _left([json.dumps(one, separators=separators) for one in [_GOOD, *other, _GOOD]] * 3, end) == []


_TEXT = json.dumps(_GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        "{{}",
        '{"text":"open}',
        '{"text":{}}}',
        '{"id":"x"}',
        '{"id":1.5}',
        '{"zones":{"a":{"n":1.5}}}',
        '{"zones":[]}',
        '{"labels":{"a" "b":1}}',
        '{"deep":{"m":{"x":1}}}',
        '{"text":{"a":tru}}',
        '{"text":[NaN]}',
        '{"text":"\\ud800"}',
        '{"other":"\\ud800"}',
        '{"text":' + "[" * 2000 + "]" * 2000 + "}",
        _TEXT[:-9] + "}",
        _TEXT.replace('"other"', '"oth'),
    ],
)
def test_a_bad_line_leaves_the_lines_around_it_in_their_block(bad: str) -> None:
    assert _left([_TEXT] * 100 + [bad] + [_TEXT] * 99) == [100]


def test_many_bad_lines_of_every_kind_leave_the_others_in_their_blocks() -> None:
    kinds = [
        '{"id":"x"}',
        '{"text":"open}',
        '{"text":[1,]}',
        '{"zones":{"a":{"n":"x"}}}',
        '{"deep":{"t":}}',
        '{"at":-}',
    ]
    lines = [_TEXT] * 3_000
    bad = list(range(50, 3_000, 100))
    for index, at in enumerate(bad):
        lines[at] = kinds[index % len(kinds)]
    assert _left(lines) == bad


@pytest.mark.parametrize("name", [r"a\b", 'a"b', "a\tb"])
def test_a_name_that_is_an_escape_in_json_is_left_to_the_slow_way(name: str) -> None:
    schema = schema_of({name: "map<string,int>"})
    line = json.dumps({name: {"x": 1}})
    assert not can_name(schema.names)
    assert not len(decode_block(LineBlock(line.encode(), 1, JsonColumns(schema, {}, strict=False))).lines)


def test_a_schema_with_base64_or_maps_in_arrays_is_left_to_the_slow_way() -> None:
    for kind in ("binary", "array<map<string,int>>", "map<int,string>", "map<string,binary>", "struct<b:binary>"):
        assert not can_decode(JsonColumns(schema_of({"c": kind}), {}, strict=False))
