"""Every type that a schema can declare round-trips through its name."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sinks.sql_types import parse_type, type_name

_NAMES = st.one_of(
    st.sampled_from(["a", "ts", "Äb", "a b", "x`y", "1", "a:b", "<", "array"]), st.text("ab_ `<>:,", min_size=1)
)
_SIMPLE = st.one_of(
    st.sampled_from(
        [
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "float",
            "double",
            "string",
            "boolean",
            "binary",
            "date",
            "timestamp",
            "timestamp_ntz",
        ]
    ).map(parse_type),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda kinds: pa.map_(*kinds)),
        st.dictionaries(_NAMES, inner, min_size=1, max_size=4).map(lambda fields: pa.struct(list(fields.items()))),
    )


@given(st.recursive(_SIMPLE, _nested, max_leaves=8))
def test_every_type_is_read_back_from_its_name(kind: pa.DataType) -> None:
    assert parse_type(type_name(kind)) == kind


@given(st.text("abint<>(),:` 0123", max_size=30))
def test_a_text_is_a_type_or_a_value_error(text: str) -> None:
    try:
        kind = parse_type(text)
    except ValueError:
        return
    assert parse_type(type_name(kind)) == kind
