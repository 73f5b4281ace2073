"""Which lines need not be decoded one by one: what is slow must be rare."""

from __future__ import annotations

import json

import pytest

from ingest.sources.decode.json_blocks import JsonBlocks
from ingest.sources.decode.structure import Structure
from tests.unit.sources.rows import schema_of

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
    blocks = JsonBlocks({"at": "epoch_ms"}, strict=False)
    assert blocks.usable(_SCHEMA)
    taken = blocks.take(end.join(lines).encode(), len(lines), _SCHEMA)
    for at, column in enumerate(_SCHEMA):
        assert len(taken.column(at, column.type)) == len(taken.lines)
    return sorted(set(range(len(lines))).difference(taken.lines.tolist()))


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
        '{"zones":{"a":{"n":1},"a":{"n":2}}}',
        '{"zones":[]}',
        '{"labels":{"a" "b":1}}',
        '{"deep":{"m":{"x":1}}}',
        '{"text":{"a":tru}}',
        '{"text":[NaN]}',
        '{"text":{},"text":{}}',
        '{"text":' + "[" * 600 + "]" * 600 + "}",
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


def test_a_name_that_is_an_escape_in_json_is_not_taken_for_the_column() -> None:
    line = r'{"a\b":{"x":1}}'
    schema = schema_of({r"a\b": "map<string,int>"})
    assert JsonBlocks({}, strict=False).take(line.encode(), 1, schema).column(0, schema.types[0]).to_pylist() == [None]


@pytest.mark.parametrize("line", ["{}{}", '{"a":1}}', "{{}", "{}}{}", '{"a}', '{"a":"\\"}', '{"a":1}{"b":2}'])
def test_a_line_that_is_no_object_by_its_brackets_is_doubtful_and_no_other(line: str) -> None:
    structure = Structure.of(f'{{"k":[1]}}\n{line}\n{{"k":"}}{{"}}'.encode())
    assert structure.doubtful.tolist() == [False, True, False]
    assert structure.named(["k"]).rows.tolist() == [0, 2]


@pytest.mark.parametrize(
    "line",
    [
        '{"a"}',
        '{"a":}',
        '{"a":1 "b":2}',
        '{"x","a":1}',
        '{"x":"a":1}',
        '{1,"a":2}',
        "{,}",
        "{1}",
        "{{}}",
        '{"a":[]{}}',
        '{"a":1,"b"' + " " * 20 + ":2}",
        '{"a":' + " " * 20 + "[]}",
    ],
)
def test_an_object_that_is_not_fields_parted_by_commas_is_doubtful(line: str) -> None:
    fields = Structure.of(f'{{"k":[1]}}\n{line}\n{{ }}'.encode()).all()
    assert fields.doubtful.tolist() == [False, True, False]
    assert fields.rows.tolist() == [0]


def test_a_schema_with_base64_or_maps_in_arrays_is_left_to_the_slow_way() -> None:
    for kind in ("binary", "array<map<string,int>>", "map<int,string>", "map<string,binary>", "struct<b:binary>"):
        assert not JsonBlocks({}, strict=False).usable(schema_of({"c": kind}))
