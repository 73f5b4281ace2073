"""Lines decoded in blocks give the same result as line by line: with maps, texts, and any malformed input."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.sources.decode.json.line_block import JsonColumns, LineBlock
from ingest.sources.decode.json.object_fields import map_entries, parse_objects
from ingest.sources.decode.json.ways import decode_block
from ingest.sources.decode.options import UnknownField
from tests.unit.ingest.sources.rows import block_of, outcome, schema_of, source_of

_COLUMNS = {
    "i": "int",
    "s": "string",
    "m": "map<string,int>",
    "ms": "map<string,string>",
    "mm": "map<string,map<string,double>>",
    "mo": "map<string,struct<i:int,s:string>>",
    "mt": "map<string,timestamp>",
    "o": "struct<i:int,s:string,m:map<string,date>>",
    "a": "array<string>",
    "b": "boolean",
    "l": "bigint",
    "n": "struct<i:smallint,m:map<string,boolean>>",
    "mn": "map<string,struct<i:tinyint,n:struct<l:bigint>>>",
}
_STRINGS = st.sampled_from(
    [
        '""',
        '"x"',
        '"i"',
        '"s"',
        '"m"',
        '"\\u006d"',
        '"a\\"b"',
        '"\\\\"',
        '"\\\\\\""',
        '"{"',
        '"}]"',
        '"[,:"',
        '"\\"m\\":{"',
        '"ä€😀"',
        '"\\u00e4"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\n\\/"',
        '"NaN"',
        '"a: Inf, "',
        '"2020-01-01"',
        '"2020-01-01T10:00:00Z"',
        '"\t"',
        '"\x7f"',
        '"\\x"',
        "'x'",
        '"open',
    ]
)
_GOOD_SCALARS = (
    "1",
    "-0",
    "0",
    "128",
    "32768",
    "9223372036854775808",
    "1.0",
    "1.50",
    "1e400",
    "99999999999999999999",
    "true",
    "false",
    "null",
    "null",
)
_SCALARS = st.sampled_from([*_GOOD_SCALARS, "NaN", "-Infinity", "Infinity", "01", "nul", "+1"])
_BLANKS = st.sampled_from(["", "", "", "", "", " ", " ", "\t", " \r ", " " * 20, "\x0b"])


def _object(names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.tuples(_BLANKS, names, _BLANKS, _BLANKS, values, _BLANKS)
    return st.lists(fields.map(lambda f: f"{f[0]}{f[1]}{f[2]}:{f[3]}{f[4]}{f[5]}"), max_size=4).map(
        lambda found: "{" + ",".join(found) + "}"
    )


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda found: "[" + ", ".join(found) + "]")


_VALUES = st.recursive(_STRINGS | _SCALARS, lambda inner: _object(_STRINGS, inner) | _array(inner), max_leaves=8)
_NAMES = st.sampled_from([f'"{name}"' for name in (*_COLUMNS, "unknown")]) | _STRINGS
_LINES = _object(_NAMES, _VALUES | _object(_STRINGS, _VALUES))
_GOOD_LINES = st.sampled_from(
    [
        '{"i":1,"s":"x","m":{"a":1,"b":null},"ms":{"a":"x"},"mm":{"a":{"b":1.5}},"o":{"i":1,"s":"y","m":null}}',
        '{"s":{"m":{"a":"}"}},"m":{},"mo":{"x":{"i":2,"s":[1, 2]}},"mt":{"t":"2020-01-01T10:00:00Z"}}',
        '{"s": [1, {"a": 1.10}], "i": 5, "ms": {"a": 1.10, "b": true, "c": {"d": []}}, "m": null}',
        '{"b":true,"l":-9223372036854775808,"n":{"i":1,"m":{"i":false,"":null}},"mn":{"a":{"i":127,"n":{"l":1}},"b":null}}',
        '{"n":{"m":{},"other":[]},"mn":{"i":{"n":null,"n":{"l":0}},"i":{"i":-128}},"b":null,"l":9223372036854775807}',
        "{}",
    ]
)


@st.composite
def _broken(draw: st.DrawFn) -> str:
    """A line with one character too many or too few."""
    line: str = draw(_GOOD_LINES | _LINES)
    at = draw(st.integers(0, len(line)))
    inserted: str = draw(st.sampled_from(["", *'{}[]",:\\ 1nä\0']))
    return line[:at] + inserted + line[at + (inserted == "") :]


_ANY_LINES = st.lists(_GOOD_LINES | _LINES | _LINES | _broken(), min_size=1, max_size=8)
_ENDS = st.sampled_from(["\n", "\r\n"])
_KINDS = st.sampled_from([UnknownField.DROP, UnknownField.QUARANTINE])


def _assert_same(data: bytes, unknown: UnknownField, **columns: str) -> list[Any]:
    """Assert that a block and single lines give the same result; returns the rejected records."""
    fast = _decoded(data, unknown, **columns)
    # A binary column forces decoding line by line.
    accepted, rejected = _decoded(data, unknown, **columns, raw="binary")
    for _, row in accepted:
        row.pop("raw")
    assert repr(fast) == repr((accepted, rejected))
    found: list[Any] = rejected
    return found


def _decoded(data: bytes, unknown: UnknownField, **columns: str) -> Any:
    return outcome(
        source_of("x", on_unknown_field=unknown).decoder(schema_of(columns), lineage=True).decode(block_of(data))
    )


@settings(max_examples=300)
@given(_ANY_LINES, _ENDS, _KINDS, st.booleans())
@example(['{"m":{"a":1,"x","b":2}}', '{"m":{"a":1,,"b":2}}', '{"m":{"a" "b":1}}'], "\n", UnknownField.DROP, True)
@example(['{"m":{"a":1 "b":2}}', '{"m":{1,"a":2}}', '{"m":{"a":1,}}'], "\n", UnknownField.DROP, False)
@example(['{"m":{"a":1,"b"' + " " * 20 + ':2},"s":{}}', '{"m":{"a":1}}'], "\n", UnknownField.DROP, True)
@example(['{"m":{"a":1,"\\u0061":2}}', '{"m":{ }}', '{"m":{{}}}', '{"m":{null}}'], "\n", UnknownField.DROP, True)
@example(['{"m":{"a":1},"m":{"a":2}}', '{"m":{"a":1},"\\u006d":null}'], "\n", UnknownField.QUARANTINE, True)
@example(['{"s":{"a":NaN}}', '{"s":01}', '{"s":{"a":1]}', '{"s":{}}'], "\n", UnknownField.QUARANTINE, True)
@example(['{"s":Inf}', '{"s":[-Inf ]}', '{"ms":{"a":Inf}}', '{"s":["Inf"]}'], "\n", UnknownField.DROP, True)
@example(['{"s":{}' + " " * 20 + "}", '{"s":1' + " " * 20 + ',"i":1}'], "\n", UnknownField.DROP, True)
@example(['{"s":{},"s":[]}', '{"i":1}'], "\n", UnknownField.DROP, True)
@example(['{"s":1 2,"i":3}', '{"s":1,2,"i":3}', '{"s":tru}', '{"s":[1,]}'], "\n", UnknownField.DROP, True)
@example(['{"x":"\\\\","s":{"a":"\\\\\\""}}', '{"x":"open,"s":{}}'], "\r\n", UnknownField.DROP, False)
def test_blocks_and_single_lines_give_the_same_rows_and_reasons(
    lines: list[str], end: str, unknown: UnknownField, is_ended: bool
) -> None:
    _assert_same((end.join(lines) + end * is_ended).encode(), unknown, **_COLUMNS)


@settings(max_examples=300)
@given(_ANY_LINES, _ENDS, _KINDS)
@example(['{"i":1,"unknown":[NaN, -Infinity]}', '{"i":"x"}'], "\n", UnknownField.DROP)
@example(['{"i":1,"unknown":[NaN, -Infinity]}', '{"i":2}'], "\n", UnknownField.DROP)
def test_the_same_where_arrow_reads_every_column_in_place(lines: list[str], end: str, unknown: UnknownField) -> None:
    _assert_same(end.join(lines).encode(), unknown, i="int", s="string", a="array<string>", m="double")


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_STYLES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"separators": (" , ", " :  "), "ensure_ascii": False}]
)


@settings(max_examples=300)
@given(st.lists(st.dictionaries(_TEXTS, _JSON, max_size=4), min_size=1, max_size=5), _STYLES, _ENDS)
def test_fields_of_valid_objects_are_all_found(objects: list[dict[str, Any]], style: dict[str, Any], end: str) -> None:
    lines = [json.dumps(one, **style) for one in objects]
    found = map_entries(pa.array([line.encode() for line in lines]))
    pairs = zip(found.names.to_pylist(), (json.loads(value) for value in found.values.to_pylist()), strict=True)
    assert repr([dict(islice(pairs, count)) for count in found.counts]) == repr(objects)
    taken = parse_objects(end.join(lines).encode(), len(lines), schema_of({"a": "string", "b": "string"}), strict=False)
    assert taken.lines.tolist() == list(range(len(objects)))
    for name in ("a", "b"):
        column = taken.raw_values(name)
        assert column.rows.tolist() == [row for row, one in enumerate(objects) if name in one]
        assert [json.loads(value) for value in column.texts.to_pylist()] == [
            one[name] for one in objects if name in one
        ]


_DEPTHS = range(800, 1000, 3)


def test_what_is_nested_deeply_is_judged_by_the_same_depth_in_a_block_and_alone() -> None:
    lines = [f'{{"s":{"[" * depth}{"]" * depth}}}' for depth in _DEPTHS]
    lines += [f'{{"unknown":{"[" * depth}{"]" * depth}}}' for depth in _DEPTHS]
    rejected = _assert_same("\n".join(lines).encode(), UnknownField.DROP, s="string", m="map<string,int>")
    assert 0 < len(rejected) < len(lines)


@settings(max_examples=200)
@given(st.lists(st.fixed_dictionaries({"s": _JSON, "ms": st.dictionaries(_TEXTS, _JSON, max_size=4)}), min_size=1))
def test_maps_and_texts_of_valid_lines_are_taken_as_blocks(objects: list[dict[str, Any]]) -> None:
    lines = [json.dumps(one) for one in objects]
    schema = schema_of({"s": "string", "ms": "map<string,string>"})
    taken = decode_block(LineBlock("\n".join(lines).encode(), len(lines), JsonColumns(schema, {}, strict=True)))
    assert np.array_equal(taken.lines, np.arange(len(lines)))
    for text, one in zip(taken.columns[0].to_pylist(), objects, strict=True):
        assert text == one["s"] if isinstance(one["s"], str) or one["s"] is None else text == json.dumps(one["s"])


_DIGITS = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**39).map(str) | st.sampled_from(["9" * count for count in range(1, 40)]),
    st.sampled_from(["", ".0", ".5", ".25", ".123456789012345678"]),
    st.sampled_from(["", "", "e0", "e2", "E-2", "e400"]),
)


@settings(max_examples=300)
@given(
    st.sampled_from([(5, 2), (9, 2), (10, 0), (18, 2), (20, 10), (28, 10), (38, 0), (38, 1), (38, 18), (38, 38)]),
    st.sampled_from(["{}", "struct<x:{}>", "array<{}>", "map<string,{}>", "struct<x:array<{}>>"]),
    st.lists(_DIGITS, min_size=1, max_size=6),
)
@example((38, 1), "{}", ["34028236692093846346337460743176821146"])  # becomes 0.4 if 128 bits wrap around
@example((38, 1), "struct<x:{}>", ["34028236692093846346337460743176821146"])
@example((38, 1), "map<string,{}>", ["34028236692093846346337460743176821146"])
@example((20, 2), "{}", ["1", "99999999999999999999", "2"])
@example((18, 2), "array<{}>", ["1", "123456789012345678"])
def test_decimals_of_too_many_digits_are_rejected_wherever_they_stand(
    digits: tuple[int, int], shape: str, numbers: list[str]
) -> None:
    kind = shape.format(f"decimal({digits[0]},{digits[1]})")
    inside = {"{}": "%s", "array<{}>": "[%s]", "struct<x:array<{}>>": '{"x":[%s]}'}.get(shape, '{"x":%s}')
    data = "".join(f'{{"d":{inside % number}}}\n' for number in numbers).encode()
    _assert_same(data, UnknownField.DROP, d=kind)
