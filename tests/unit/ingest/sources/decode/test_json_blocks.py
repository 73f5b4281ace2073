"""Which lines need not be decoded one by one: what is slow must be rare."""

from __future__ import annotations

import inspect
import json
import sys

import numpy as np
import pyarrow as pa
import pytest

from ingest.sources.decode.fields import entries, take_apart
from ingest.sources.decode.json_blocks import JsonBlocks
from ingest.sources.decode.native import can_name
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
    blocks = JsonBlocks({"at": TimeFormat("epoch_ms")}, strict=False)
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
    assert not len(JsonBlocks({}, strict=False).take(line.encode(), 1, schema).lines)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "{}{}",
            "{{}",
            "{}}{}",
            "{,}",
            "{1}",
            "{{}}",
            '{"a":1}}',
            '{"a}',
            '{"a":"\\"}',
            '{"a":1}{"b":2}',
            '{"a":[]{}}',
        ),
        *('{"a"}', '{"a":}', '{"a":1 "b":2}', '{"x","a":1}', '{"x":"a":1}', '{1,"a":2}', '{"x":1,}', '{"x":[1,]}'),
        *('{"x":01}', '{"x":1.}', '{"x":+1}', '{"x":1e}', '{"x":NaN}', '{"x":Inf}', '{"x":tru}', '{"x":"\t"}'),
        *('{"a":[]{}}', '{"x":"\\x"}', '{"x":\x0b1}', "{'x':1}"),
    ],
)
def test_a_line_that_is_not_json_is_left_out_and_no_other(line: str) -> None:
    lines = f'{{"k":[1]}}\n{line}\n{{"k": "}}{{" }}'.encode()
    objects = take_apart(lines, 3, schema_of({"k": "string"}), strict=False)
    assert objects.lines.tolist() == [0, 2]
    assert objects.column("k").texts.to_pylist() == [b"[1]", b'"}{"']


def test_fields_are_what_is_written_and_the_last_one_counts() -> None:
    lines = b'{"a" :  {"x" : 1.10}\t,"b":2}\r\n{"\\u0061":1,"a":null}\r\n{"b":3}\r\n'
    objects = take_apart(lines, 3, schema_of(dict.fromkeys(["a", "ä", ""], "string")), strict=False)
    column = objects.column("a")
    assert (column.texts.to_pylist(), column.rows.tolist()) == ([b'{"x" : 1.10}', b"null"], [0, 1])
    assert column.first.tolist() == [ord("{"), ord("n")]
    left = schema_of({"a": "string"})
    assert objects.as_lines(left, {}) == b'{"a":{"x" : 1.10}}\n{"a":null}\n{}\n'
    assert objects.as_lines(left, {"a": np.array([0])}) == b'{}\n{"a":null}\n{}\n'
    assert len(take_apart(lines, 3, schema_of({"a": "string"}), strict=True)) == 1
    assert not len(objects.column("ä").first)


def test_of_a_repeated_entry_the_last_one_counts_at_the_place_of_the_first() -> None:
    found = entries(pa.array([b'{"x":1, "y" : [ ] ,"\\u0078":2}', b"{}", b'{"":null}']))
    assert found.counts.tolist() == [2, 0, 1]
    assert found.names.to_pylist() == ["x", "y", ""]
    assert found.values.to_pylist() == [b"2", b"[ ]", b"null"]


def test_lines_that_are_called_from_too_far_down_are_left() -> None:
    def down(frames: int) -> int:
        return down(frames - 1) if frames else len(take_apart(b"{}", 1, schema_of({"a": "int"}), strict=False))

    depth = sys.getrecursionlimit() - len(inspect.stack())
    assert [down(frames) for frames in (0, depth - 60)] == [1, 0]


def test_a_schema_with_base64_or_maps_in_arrays_is_left_to_the_slow_way() -> None:
    for kind in ("binary", "array<map<string,int>>", "map<int,string>", "map<string,binary>", "struct<b:binary>"):
        assert not JsonBlocks({}, strict=False).usable(schema_of({"c": kind}))
