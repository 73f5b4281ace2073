"""A Parquet file's columns held against the job's: which of them are meant, and values in a form that Arrow casts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

ENTRY = ["key", "value"]
"""Fields of a map's entries where they are written as a list."""
_NANOS = 1000


def refused(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Why no row of a file is taken; None where each column that is wanted and there is there once.

    Names count as they are written: ``A`` is another column than ``a``.

    Args:
        found: columns of the file.
        wanted: the job's columns.
    """
    if not set(found.names) & set(wanted.names):
        return f"the file has none of the schema's columns: {_listed(found.names)}"
    for field in wanted:
        places = found.get_all_field_indices(field.name)
        if len(places) > 1:
            return f"{field.name}: the file has {len(places)} columns of this name"
        if places and (reason := _refused_inside(found.field(places[0]).type, field.type, field.name)):
            return reason
    return None


def _refused_inside(found: pa.DataType, wanted: pa.DataType, path: str) -> str | None:
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in found]
        if not set(names) & {field.name for field in wanted}:
            return f"{path}: the file's struct has none of the schema's fields: {_listed(names)}"
        for field in wanted:
            if names.count(field.name) > 1:
                return f"{path}.{field.name}: the file has {names.count(field.name)} fields of this name"
            if field.name in names:
                inner = found.field(names.index(field.name)).type
                if (reason := _refused_inside(inner, field.type, f"{path}.{field.name}")) is not None:
                    return reason
        return None
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _refused_inside(found.item_type, wanted.item_type, f"{path}[]")
    if _is_list(found) and pa.types.is_list(wanted):
        return _refused_inside(found.value_type, wanted.value_type, f"{path}[]")
    return None


def _listed(names: Sequence[str]) -> str:
    return ",".join(names)[:200]


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def are_texts(values: pa.Array) -> bool:
    """Whether every text of a column, at any depth, is UTF-8: no reader of Parquet looks."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return are_texts(values.dictionary)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
    if pa.types.is_struct(kind):
        return all(map(are_texts, values.flatten()))
    if pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        return all(are_texts(each.slice(first, last - first)) for each in (values.keys, values.items))
    return are_texts(values.flatten()) if _is_list(kind) else True


def shaped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as Arrow casts it without a wrong value; the column itself where it needs nothing, as most do.

    Wherever the type has a map, lists of keys and values become maps: so maps come back from the quarantine. Wherever
    it has a timestamp, nanoseconds become microseconds, rounded down: Arrow cuts toward 1970, and a text's digits
    beyond microseconds are dropped, which is down.

    Args:
        values: the file's column.
        kind: the job's type.
    """
    return _shaped(values, kind) if _has_map(kind) or _has_nanoseconds(values.type) else values


def _has_map(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(_has_map(kind.field(place).type) for place in range(kind.num_fields))


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_nanoseconds(kind.value_type)
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    if not pa.types.is_nested(kind):
        return False
    return any(_has_nanoseconds(kind.field(place).type) for place in range(kind.num_fields))


def _shaped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    found = values.type
    if pa.types.is_dictionary(found):
        return _shaped(pc.cast(values, found.value_type), kind)
    if pa.types.is_timestamp(found) and found.unit == "ns" and pa.types.is_timestamp(kind):
        return _floored(values)
    if not pa.types.is_nested(found) or found == kind:
        return values
    if _is_list(found) and not pa.types.is_list(found):
        values = pc.cast(values, pa.list_(found.value_type))
    values = values.take(pa.arange(0, len(values)))  # a slice's offsets make no list
    missing = values.is_null()
    if pa.types.is_struct(kind) and pa.types.is_struct(found):
        kinds = {field.name: field.type for field in kind}
        names = found.names
        fields = [_shaped(part, kinds.get(name, part.type)) for name, part in zip(names, values.flatten(), strict=True)]
        return pa.StructArray.from_arrays(fields, names, mask=missing)
    if pa.types.is_map(found) and pa.types.is_map(kind):
        keys, items = _shaped(values.keys, kind.key_type), _shaped(values.items, kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=missing)
    if not pa.types.is_list(values.type):
        return values
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _shaped(values.values, kind.value_type), mask=missing)
    return _entries_as_map(values, kind, missing) if pa.types.is_map(kind) else values


def _entries_as_map(values: pa.Array, kind: pa.DataType, missing: pa.Array) -> pa.Array:
    entries = values.values
    if not len(entries):
        none = pa.array([], kind.key_type), pa.array([], kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, *none, mask=missing)
    if pa.types.is_struct(entries.type) and entries.type.names == ENTRY:
        keys, items = entries.flatten()
        if not keys.null_count:
            return pa.MapArray.from_arrays(values.offsets, keys, _shaped(items, kind.item_type), mask=missing)
    return values


def _floored(values: pa.Array) -> pa.Array:
    """Nanoseconds as microseconds, rounded down; as they are where Arrow's cast does the same, since 1970."""
    nanos = values.view(pa.int64())
    smallest = pc.min(nanos).as_py()
    if smallest is None or smallest >= 0:
        return values
    micros = pc.divide(nanos, _NANOS)  # toward 0
    above = pc.greater(pc.multiply(micros, _NANOS), nanos)
    return pc.subtract(micros, pc.cast(above, pa.int64())).view(pa.timestamp("us", values.type.tz))
