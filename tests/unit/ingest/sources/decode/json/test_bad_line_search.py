"""Lines around bad lines are decoded as a block, whatever Arrow's reason to refuse a line."""

from __future__ import annotations

import json

import pytest

from ingest.sources.decode.json.line_block import JsonColumns, LineBlock
from ingest.sources.decode.json.ways import decode_block
from ingest.sources.decode.time_format import TimeFormat
from tests.unit.ingest.sources.rows import schema_of

_COLUMNS = {
    "at": "timestamp",
    "counted": "timestamp",
    "day": "date",
    "x": "double",
    "price": "decimal(5,2)",
    "wide": "decimal(38,10)",
    "text": "string",
    "n": "array<int>",
    "times": "array<timestamp>",
    "prices": "array<decimal(5,2)>",
    "pair": "struct<x:double,i:int>",
}
_GOOD = {
    "at": "2024-05-01T10:00:00Z",
    "counted": 1_600_000_000_000.5,
    "day": "2024-05-01",
    "x": -1.5,
    "price": "-999.99",
    "wide": 1.50,
    "text": 'a "quoted" é text',
    "n": [1, None],
    "times": ["2024-05-01 10:00:00+02:00", None],
    "prices": [1.5, "2.25"],
    "pair": {"x": 1, "i": None, "other": [{}]},
}
_BAD = [
    '{"at":17}',
    '{"counted":"yesterday"}',
    '{"day":20240501}',
    '{"x":"1.5"}',
    '{"x":[]}',
    '{"price":1000}',
    '{"price":1.125}',
    '{"price":"x"}',
    '{"price":1e-10000000}',
    '{"wide":true}',
    '{"n":[1,2.5]}',
    '{"n":[2147483648]}',
    '{"n":[[]]}',
    '{"times":["yesterday"]}',
    '{"times":[17]}',
    '{"prices":["x"]}',
    '{"pair":{"i":"1"}}',
    '{"pair":[1]}',
]
_NULLS = json.dumps(dict.fromkeys(_COLUMNS))
_TEXTS = [json.dumps(_GOOD), "{}", _NULLS]


def _left(lines: list[str]) -> list[int]:
    columns = JsonColumns(schema_of(_COLUMNS), {"counted": TimeFormat("epoch_ms")}, strict=False)
    decoded = decode_block(LineBlock("\n".join(lines).encode(), len(lines), columns))
    assert {len(values) for values in decoded.columns} == {len(decoded.lines)}
    return sorted(set(range(len(lines))).difference(decoded.lines.tolist()))


@pytest.mark.parametrize("bad", _BAD)
@pytest.mark.parametrize("at", [0, 77, 299])
def test_a_value_that_does_not_fit_leaves_its_line_alone(bad: str, at: int) -> None:
    lines = _TEXTS * 100
    lines[at] = bad
    assert _left(lines) == [at]


def test_one_bad_line_in_a_hundred_leaves_the_others_decoded_together() -> None:
    lines = _TEXTS * 1000
    bad = list(range(50, 3000, 100))
    for index, at in enumerate(bad):
        lines[at] = _BAD[index % len(_BAD)]
    assert _left(lines) == bad


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_lines_that_are_all_bad_are_all_left(count: int) -> None:
    assert _left(['{"times":["yesterday"]}'] * count) == list(range(count))


def test_the_search_ends_where_most_lines_are_bad() -> None:
    lines = ['{"times":["yesterday"]}', "{}"] * 1000
    assert len(_left(lines)) > 1800
