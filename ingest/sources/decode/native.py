"""Columns that msgspec reads itself: numbers without a fraction, booleans, and structs and maps of nothing else.

Of these it takes exactly what `values` takes, and Python's own numbers on the way cost less than Arrow's
parser does where lines are long and columns few. Texts, times, decimals and floats are left to Arrow: it
is exact where they are not JSON's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from ingest.sources.decode.lines import Positions


def is_native(kind: pa.DataType) -> bool:
    """Whether msgspec reads values of this type as they are."""
    if pa.types.is_struct(kind):
        return can_name(field.name for field in kind) and all(is_native(field.type) for field in kind)
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and is_native(kind.item_type)
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind))


def native_type(kind: pa.DataType, *, strict: bool) -> Any:
    """What msgspec is to read: values of a native type, or null.

    Args:
        kind: the type.
        strict: refuse fields that structs do not have.
    """
    if pa.types.is_struct(kind):
        fields = {field.name: (native_type(field.type, strict=strict), None) for field in kind}
        return fields_type(fields, strict=strict) | None
    if pa.types.is_map(kind):
        return dict.__class_getitem__((str, native_type(kind.item_type, strict=strict))) | None
    if pa.types.is_boolean(kind):
        return bool | None
    limit = 1 << (kind.bit_width - 1)
    return Annotated[int, Meta(ge=-limit, le=limit - 1)] | None


def native_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What msgspec read, as a column.

    Args:
        values: of the type that `native_type` gives.
        kind: the column's.
    """
    if not pa.types.is_nested(kind):
        return pa.array(values, kind)
    rows = np.array([row for row, value in enumerate(values) if value is not None], np.intp)
    present = values if len(rows) == len(values) else [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        fields = [native_array(attribute(present, at), field.type) for at, field in enumerate(kind)]
        return spread(pa.StructArray.from_arrays(fields, fields=list(kind)), rows, len(values))
    keys = pa.array(list(chain.from_iterable(present)), kind.key_type)
    items = native_array(list(chain.from_iterable(map(dict.values, present))), kind.item_type)
    return map_array(kind, keys, items, np.array(list(map(len, present)), np.intp), rows, len(values))


def map_array(
    kind: pa.MapType, keys: pa.Array, items: pa.Array, counts: Positions, at: Positions, rows: int
) -> pa.Array:
    """A column of maps, null but at some rows.

    Args:
        kind: its type.
        keys: of all maps, one behind the other.
        items: of each key.
        counts: how many each map has.
        at: the row of each map.
        rows: of the column.
    """
    ends = np.zeros(rows + 1, np.int32)
    ends[at + 1] = counts
    is_null = np.ones(rows, np.bool_)
    is_null[at] = False
    offsets = pa.array(np.cumsum(ends, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=pa.array(is_null))


def spread(values: pa.Array, at: Positions, rows: int) -> pa.Array:
    """A column of values at their rows, null between them."""
    if len(at) == rows:
        return values
    index = np.full(rows, -1, np.int64)
    index[at] = np.arange(len(at))
    return values.take(pa.array(index, mask=index < 0))


def can_name(names: Iterable[str]) -> bool:
    """Whether fields can have these names: not where JSON writes one with an escape, which msgspec does not take."""
    return not any(char in '"\\' or char < " " for name in names for char in name)


def fields_type(fields: Mapping[str, tuple[Any, Any]], *, strict: bool) -> Any:
    """Objects with fields of these types and defaults."""
    attributes = {name: f"field{at}" for at, name in enumerate(fields)}
    return msgspec.defstruct(
        "Fields",
        [(attributes[name], kind, default) for name, (kind, default) in fields.items()],
        rename={attribute: name for name, attribute in attributes.items()},
        forbid_unknown_fields=strict,
        gc=False,
    )


def attribute(objects: Iterable[Any], at: int) -> list[Any]:
    """One field of objects of a `fields_type`."""
    return list(map(attrgetter(f"field{at}"), objects))
