"""Random rows of any types, nested, with values that codecs get wrong: extremes, nulls at every level, empty values."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

LEAVES = ["tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz"]
LEAVES += ["decimal(5,2)", "decimal(38,0)", "decimal(38,20)", "decimal(20,20)", "string", "binary"]

_FLOATS = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    1e16,
    1e-7,
    0.1,
    -2.5,
    1e22,
    123456789.0,
]
_TEXTS = [
    "",
    "\0",
    "a\0b",
    "\U0001f600\U0010ffff",
    '"\\/\n\r\t\b\f',
    "\x7f\x85\u2028\u2029",
    "null",
    "NaN",
    "-Infinity",
    "1",
    "{}",
]
_TEXTS += ["grüße", "e\u0301", "\ufeff", "\ufffd", '{"a":[1,2]}', " ", "x" * 100]
_BYTES = [b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"plain", bytes(range(256))]
_EXACT = Context(prec=60)


def random_type(random: Random, depth: int = 3) -> str:
    """A type's name in Spark SQL; deeper types are rarer."""
    roll = random.random()
    if depth == 0 or roll < 0.4:
        return random.choice(LEAVES)
    if roll < 0.6:
        return f"array<{random_type(random, depth - 1)}>"
    if roll < 0.8:
        names = random.sample(["a", "B", "with space", "ü", 'q"uote', "a.b", "\U0001f600"], random.randint(1, 4))
        return f"struct<{','.join(f'`{name}`:{random_type(random, depth - 1)}' for name in names)}>"
    key = "string" if random.random() < 0.5 else random_type(random, min(1, depth - 1))
    return f"map<{key},{random_type(random, depth - 1)}>"


def random_array(random: Random, kind: pa.DataType, rows: int, *, nulls: float = 0.2) -> pa.Array:
    """Random values; children behind nulls of nested types are not empty either.

    Args:
        random: the generator.
        kind: type of the array.
        rows: its length.
        nulls: share of nulls, 0 to 1.
    """
    types = pa.types
    is_null = pa.array([random.random() < nulls for _ in range(rows)], pa.bool_())
    if types.is_struct(kind):
        children = [random_array(random, field.type, rows) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=is_null)
    if types.is_list(kind) or types.is_map(kind):
        offsets = [0]
        for _ in range(rows):
            offsets.append(offsets[-1] + random.choice([0, 0, 1, 1, 2, 5]))
        buffers = [_bitmap(is_null), pa.array(offsets, pa.int32()).buffers()[1]]
        if types.is_map(kind):
            keys = random_array(random, kind.key_type, offsets[-1], nulls=0.0)
            items = random_array(random, kind.item_type, offsets[-1])
            entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            return pa.Array.from_buffers(kind, rows, buffers, children=[entries])
        return pa.Array.from_buffers(kind, rows, buffers, children=[random_array(random, kind.value_type, offsets[-1])])
    values = [None if there else _value(random, kind) for there in is_null.to_pylist()]
    if types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _bitmap(is_null: pa.Array) -> pa.Buffer:
    return pa.array([not null for null in is_null.to_pylist()], pa.bool_()).buffers()[1]


def _value(random: Random, kind: pa.DataType) -> Any:
    """A value, never null; dates and times as numbers, since Python's own end at the year 9999."""
    types = pa.types
    if types.is_boolean(kind):
        return random.random() < 0.5
    if types.is_floating(kind):
        drawn = random.choice(_FLOATS) if random.random() < 0.6 else random.uniform(-1e6, 1e6)
        if kind.bit_width == 64:
            return drawn
        return struct.unpack("<f", struct.pack("<f", drawn if abs(drawn) < 1e38 or not math.isfinite(drawn) else 1e38))[
            0
        ]
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        digits = random.choice([0, 1, -1, most, -most, random.randint(-most, most)])
        return Decimal(digits).scaleb(-kind.scale, _EXACT)
    if types.is_string(kind):
        return random.choice(_TEXTS) if random.random() < 0.6 else "".join(map(chr, random.choices(range(0xD800), k=5)))
    if types.is_binary(kind):
        return random.choice(_BYTES) if random.random() < 0.6 else random.randbytes(random.randint(0, 20))
    most = 2 ** (kind.bit_width - 1)
    return random.choice(
        [0, 1, -1, most - 1, -most, random.randint(-most, most - 1), random.randint(-(10**6), 10**6) % most]
    )


def plain(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """An array's values for comparison: floats by their bits (one NaN), dates and times as numbers, maps in order."""
    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in plain(chunk)]
    kind, types = values.type, pa.types
    there = values.is_valid().to_pylist()
    found: Sequence[Any]
    if types.is_struct(kind):
        found = list(zip(*(plain(values.field(place)) for place in range(kind.num_fields)), strict=True))
    elif types.is_list(kind) or types.is_large_list(kind):
        found = _spans(values, plain(values.values))
    elif types.is_map(kind):
        found = _spans(values, list(zip(plain(values.keys), plain(values.items), strict=True)))
    elif types.is_floating(kind):
        found = [
            None if value is None else struct.pack("<d", math.nan if math.isnan(value) else value)
            for value in values.to_pylist()
        ]
    elif types.is_temporal(kind):
        found = values.cast(pa.int32() if types.is_date32(kind) else pa.int64()).to_pylist()
    else:
        found = values.to_pylist()
    return [value if is_there else None for value, is_there in zip(found, there, strict=True)]


def _spans(values: pa.Array, items: list[Any]) -> list[Any]:
    offsets = values.offsets.to_pylist()
    return [items[start:end] for start, end in pairwise(offsets)]
