"""Fields of the JSON objects of lines: each field as it is written, and no line that is not JSON."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pyarrow as pa
import pytest

from ingest.sources.decode.json.object_fields import map_entries, parse_objects
from tests.unit.ingest.sources.rows import schema_of


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
    objects = parse_objects(lines, 3, schema_of({"k": "string"}), strict=False)
    assert objects.lines.tolist() == [0, 2]
    assert objects.raw_values("k").texts.to_pylist() == [b"[1]", b'"}{"']


def test_fields_are_what_is_written_and_the_last_one_counts() -> None:
    lines = b'{"a" :  {"x" : 1.10}\t,"b":2}\r\n{"\\u0061":1,"a":null}\r\n{"b":3}\r\n'
    objects = parse_objects(lines, 3, schema_of(dict.fromkeys(["a", "ä", ""], "string")), strict=False)
    column = objects.raw_values("a")
    assert (column.texts.to_pylist(), column.rows.tolist()) == ([b'{"x" : 1.10}', b"null"], [0, 1])
    assert column.first.tolist() == [ord("{"), ord("n")]
    left = schema_of({"a": "string"})
    assert objects.as_lines(left, {}) == b'{"a":{"x" : 1.10}}\n{"a":null}\n{}\n'
    assert objects.as_lines(left, {"a": np.array([0])}) == b'{}\n{"a":null}\n{}\n'
    assert len(parse_objects(lines, 3, schema_of({"a": "string"}), strict=True)) == 1
    assert not len(objects.raw_values("ä").first)


def test_of_a_repeated_entry_the_last_one_counts_at_the_place_of_the_first() -> None:
    found = map_entries(pa.array([b'{"x":1, "y" : [ ] ,"\\u0078":2}', b"{}", b'{"":null}']))
    assert found.counts.tolist() == [2, 0, 1]
    assert found.names.to_pylist() == ["x", "y", ""]
    assert found.values.to_pylist() == [b"2", b"[ ]", b"null"]


def test_lines_that_are_called_from_too_far_down_are_left() -> None:
    def down(frames: int) -> int:
        return down(frames - 1) if frames else len(parse_objects(b"{}", 1, schema_of({"a": "int"}), strict=False))

    depth = sys.getrecursionlimit() - len(inspect.stack())
    assert [down(frames) for frames in (0, depth - 60)] == [1, 0]
