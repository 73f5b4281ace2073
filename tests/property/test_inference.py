"""An inferred schema keeps every value of its sample: all digits of a number, or the text."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.sources.decode.convert import convert
from ingest.sources.decode.infer import infer_json, infer_texts
from tests.unit.ingest.sources.rows import block_of, outcome, source_of

_DIGITS = st.text("0123456789", min_size=1, max_size=24)
_WHOLE = st.builds(
    "{}{}".format, st.sampled_from(["", "", "", "-"]), _DIGITS.map(lambda digits: digits.lstrip("0") or "0")
)
_NUMBERS = st.one_of(
    st.integers(-(2**54), 2**54).map(str),
    st.sampled_from([2**53, 2**63]).flatmap(lambda edge: st.integers(edge - 2, edge + 2)).map(str),
    _WHOLE,
    st.builds("{}.{}".format, _WHOLE, _DIGITS),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}{}{}".format, _WHOLE, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 400)),
)
"""JSON numbers."""

_TEXTS = st.one_of(
    _NUMBERS,
    st.builds("{}{}".format, st.sampled_from(["+", "0", "-0", "+0"]), _NUMBERS),
    st.sampled_from(
        ["nan", "NaN", "inf", "-inf", "Infinity", "true", "False", "1", "0", ".5", "5.", "x", "1e400", "1e-400"]
    ),
    st.dates().map(str),
    st.datetimes().map(str),
)


def _is_kept(text: str, value: Any) -> bool:
    match value:
        case str():
            return value == text
        case bool():
            return str(value).lower() == text.lower()
        case int() | float():
            is_code = text.startswith("+") or (text.lstrip("-")[:1] == "0" and text.lstrip("-")[1:2].isdigit())
            return not is_code and Decimal(repr(value)) == Decimal(text)
        case datetime.datetime():
            return value.replace(tzinfo=None) == datetime.datetime.fromisoformat(text)
        case datetime.date():
            return value.isoformat() == text
        case _:
            return False


@given(st.lists(_TEXTS, min_size=1, max_size=5))
@example(["12345678901234567890", "12345678901234567891"])
@example(["9007199254740993", "1.5"])
@example(["+4915112345678901"])
@example(["nan", "inf"])
@example(["1", "nan"])
@example(["0.12345678901234567890"])
@example(["100000000000000000000"])
def test_columns_that_are_inferred_of_texts_keep_each_of_them(texts: list[str]) -> None:
    values = pa.array(texts)
    kind = infer_texts({"c": values}).field("c").type
    found = convert(values, "c", kind)
    assert found.bad == {}
    assert all(map(_is_kept, texts, found.values.to_pylist())), (kind, found.values)


@given(st.lists(_NUMBERS, min_size=1, max_size=5), st.sampled_from(["{}", "[{}]", '{{"x":{}}}']))
@example(["9007199254740993", "1.5"], "{}")
@example(["9007199254740992", "1.5"], "{}")
@example(["9007199254740993", "1"], "[{}]")
@example(["1e400"], "{}")
@example(["1e-400", "0e-400"], "{}")
@example(["0.12345678901234567890"], "{}")
def test_columns_that_are_inferred_of_json_keep_each_number(numbers: list[str], shape: str) -> None:
    lines = [f'{{"c":{shape.format(number)}}}'.encode() for number in numbers]
    schema = infer_json(lines)
    accepted, rejected = outcome(source_of("x").decoder(schema, lineage=True).decode(block_of(b"\n".join(lines))))
    assert rejected == []
    for number, (_, row) in zip(numbers, accepted, strict=True):
        value = row["c"]
        while isinstance(value, (list, dict)):
            value = value[0] if isinstance(value, list) else value["x"]
        assert _is_kept(number, value), (schema, value)


@given(st.lists(st.sampled_from(["NaN", "-Infinity", "1", "1.5"]), min_size=1, max_size=4))
def test_what_is_no_json_says_nothing_of_a_column(numbers: list[str]) -> None:
    finite = [number for number in numbers if number[0] == "1"]
    lines = [json.dumps({"c": None}).encode()]
    only_finite = infer_json([*lines, *(f'{{"c":{number}}}'.encode() for number in finite)])
    assert infer_json([*lines, *(f'{{"c":{number}}}'.encode() for number in numbers)]) == only_finite
