"""Columns that msgspec reads itself: integers, booleans, and structs and maps of only these.

For these types msgspec accepts exactly what `values` accepts, and Python integers cost less than a second pass by
Arrow's parser does where lines are long and columns few. Texts, times, decimals and floats are left to Arrow, which
is exact where msgspec is not.
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


def is_typed(kind: pa.DataType) -> bool:
    """Whether msgspec reads values of this type."""
    if pa.types.is_struct(kind):
        return can_name(field.name for field in kind) and all(is_typed(field.type) for field in kind)
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and is_typed(kind.item_type)
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind))


def msgspec_type(kind: pa.DataType, *, strict: bool) -> Any:
    """The msgspec type of values of a column, or null: exact for typed columns, `Any` for types that msgspec lacks.

    Args:
        kind: the column's type.
        strict: refuse fields that structs do not have.
    """
    if pa.types.is_struct(kind) and can_name(field.name for field in kind):
        fields = {field.name: (msgspec_type(field.type, strict=strict), None) for field in kind}
        return fields_type(fields, strict=strict) | None
    if pa.types.is_map(kind):
        return dict.__class_getitem__((str, msgspec_type(kind.item_type, strict=strict))) | None
    if pa.types.is_list(kind):
        return list.__class_getitem__(msgspec_type(kind.value_type, strict=strict)) | None
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_floating(kind):
        return float | None
    if pa.types.is_string(kind):
        return str | None
    if not pa.types.is_signed_integer(kind):
        return Any
    limit = 1 << (kind.bit_width - 1)
    return Annotated[int, Meta(ge=-limit, le=limit - 1)] | None


def typed_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of values that msgspec parsed.

    Args:
        values: of the type that `msgspec_type` gives.
        kind: the column's type.
    """
    if not pa.types.is_nested(kind):
        return pa.array(values, kind)
    rows = np.array([row for row, value in enumerate(values) if value is not None], np.intp)
    present = values if len(rows) == len(values) else [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        fields = [typed_array(attribute(present, at), field.type) for at, field in enumerate(kind)]
        return scatter(pa.StructArray.from_arrays(fields, fields=list(kind)), rows, len(values))
    keys = pa.array(list(chain.from_iterable(present)), kind.key_type)
    items = typed_array(list(chain.from_iterable(map(dict.values, present))), kind.item_type)
    return map_array(kind, keys, items, np.array(list(map(len, present)), np.intp), rows, len(values))


def map_array(
    kind: pa.MapType, keys: pa.Array, items: pa.Array, counts: Positions, at: Positions, rows: int
) -> pa.Array:
    """A column of maps, null at rows without one.

    Args:
        kind: the column's type.
        keys: keys of all maps, concatenated.
        items: the value of each key.
        counts: number of entries of each map.
        at: row of each map.
        rows: length of the column.
    """
    ends = np.zeros(rows + 1, np.int32)
    ends[at + 1] = counts
    is_null = np.ones(rows, np.bool_)
    is_null[at] = False
    offsets = pa.array(np.cumsum(ends, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=pa.array(is_null))


def scatter(values: pa.Array, at: Positions, rows: int) -> pa.Array:
    """A column with values at some rows, null at the others.

    Args:
        values: the values.
        at: row of each value.
        rows: length of the column.
    """
    if len(at) == rows:
        return values
    index = np.full(rows, -1, np.int64)
    index[at] = np.arange(len(at))
    return values.take(pa.array(index, mask=index < 0))


def can_name(names: Iterable[str]) -> bool:
    """Whether msgspec accepts these field names: it refuses names that JSON writes with an escape."""
    return not any(char in '"\\' or char < " " for name in names for char in name)


def fields_type(fields: Mapping[str, tuple[Any, Any]], *, strict: bool) -> Any:
    """A msgspec struct type with fields of these types and defaults.

    Args:
        fields: type and default by name.
        strict: refuse other fields.
    """
    attributes = {name: f"field{at}" for at, name in enumerate(fields)}
    return msgspec.defstruct(
        "Fields",
        [(attributes[name], kind, default) for name, (kind, default) in fields.items()],
        rename={attribute: name for name, attribute in attributes.items()},
        forbid_unknown_fields=strict,
        gc=False,
    )


def attribute(objects: Iterable[Any], at: int) -> list[Any]:
    """The value of one field in each struct of a `fields_type`."""
    return list(map(attrgetter(f"field{at}"), objects))
