"""Match of a Parquet file's columns to the job's: selected by name, and cast to the job's types at any depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.files.exact_casts import cast_exactly

ENTRY = ["key", "value"]
"""Fields of a map's entries where the map is written as a list."""


def refused(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Reason to reject all rows of a file; None where it has some of the job's columns, each once.

    Names are case-sensitive: ``A`` is another column than ``a``.

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
    if is_list(found) and pa.types.is_list(wanted):
        return _refused_inside(found.value_type, wanted.value_type, f"{path}[]")
    return None


def _listed(names: Sequence[str]) -> str:
    return ",".join(names)[:200]


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's list types."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def are_texts(values: pa.Array) -> bool:
    """Whether every text of a column, at any depth, is UTF-8: no reader of Parquet checks."""
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
    return are_texts(values.flatten()) if is_list(kind) else True


def fitted(values: pa.Array, kind: pa.DataType, written: TimeFormat | None = None) -> tuple[pa.Array, pa.Array | None]:
    """Cast a column to a type; also flags rows in which a value does not fit, None where all fit.

    The rules are the same at any depth. Lists of keys and values become maps: the quarantine returned maps in this
    form before it kept types.

    Args:
        values: the file's column.
        kind: the job's type.
        written: how times are written.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type == kind and not _is_bounded(kind):
        return values, None
    if not pa.types.is_nested(values.type) or not pa.types.is_nested(kind):
        nested = pa.types.is_nested(values.type)
        cast = pa.nulls(len(values), kind) if nested else cast_exactly(values, kind, written)
        return cast, _if_any(pc.and_(pc.is_null(cast), pc.is_valid(values)))
    if is_list(values.type) and not pa.types.is_list(values.type):
        values = pc.cast(values, pa.list_(values.type.value_type))
    values = values.take(pa.arange(0, len(values)))  # from_arrays refuses the offsets of a slice
    if pa.types.is_map(kind) and pa.types.is_list(values.type):
        values = _entries_as_map(values, kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _fitted_struct(values, kind, written)
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        return _fitted_map(values, kind, written)
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        items, wrong = fitted(values.values, kind.value_type, written)
        lists = pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=values.is_null())
        return lists, _holding(wrong, values)
    return pa.nulls(len(values), kind), _if_any(values.is_valid())


def _fitted_struct(
    values: pa.StructArray, kind: pa.StructType, written: TimeFormat | None
) -> tuple[pa.Array, pa.Array | None]:
    found = dict(zip(values.type.names, values.flatten(), strict=True))
    parts, wrong = [], None
    for field in kind:
        part = found.get(field.name)
        if part is None:
            parts.append(pa.nulls(len(values), field.type))
            continue
        part, misfits = fitted(part, field.type, written)
        parts.append(part)
        wrong = _either(wrong, misfits)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null()), wrong


def _fitted_map(values: pa.MapArray, kind: pa.MapType, written: TimeFormat | None) -> tuple[pa.Array, pa.Array | None]:
    keys, misfits = fitted(values.keys, kind.key_type, written)
    wrong = _holding(misfits, values)
    if wrong is not None:
        # Null for these rows: a map's keys cannot be null.
        at = pc.if_else(wrong, pa.scalar(None, pa.int64()), pa.arange(0, len(values)))
        values = values.take(at)
        keys, _ = fitted(values.keys, kind.key_type, written)
    items, misfits = fitted(values.items, kind.item_type, written)
    maps = pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=values.is_null())
    return maps, _either(_either(wrong, _repeating(keys, values)), _holding(misfits, values))


def _repeating(keys: pa.Array, maps: pa.MapArray) -> pa.Array | None:
    """Flags maps with a repeated key, compared as table readers do: 0.0 equals -0.0, and NaN equals NaN.

    Args:
        keys: of all maps, concatenated, in the job's type.
        maps: the maps that the keys belong to.
    """
    which = _numbered(keys)
    counts = np.diff(maps.offsets.to_numpy())
    of_map = np.repeat(np.arange(len(counts)), counts)
    _, first = np.unique(of_map * (len(keys) + 1) + which, return_index=True)
    if len(first) == len(which):
        return None
    again = np.ones(len(which), np.bool_)
    again[first] = False
    return pa.array(np.isin(np.arange(len(counts)), of_map[again]))


def _numbered(keys: pa.Array) -> npt.NDArray[np.int64]:
    """A number for each key, the same for equal keys."""
    if pa.types.is_nested(keys.type):
        numbers: dict[object, int] = {}
        return np.array([numbers.setdefault(_comparable(key), len(numbers)) for key in keys.to_pylist()], np.int64)
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # -0.0 becomes 0.0
    found: npt.NDArray[np.int64] = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _comparable(value: object) -> object:
    """A hashable Python value that is equal to another where the keys are."""
    match value:
        case dict():
            return tuple((name, _comparable(item)) for name, item in value.items())
        case list():
            return tuple(map(_comparable, value))
        case float() if value != value:
            return "NaN"
        case _:
            return value


def _entries_as_map(values: pa.ListArray, kind: pa.MapType) -> pa.Array:
    entries, missing = values.values, values.is_null()
    if not len(entries):
        none = pa.array([], kind.key_type), pa.array([], kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, *none, mask=missing)
    if pa.types.is_struct(entries.type) and entries.type.names == ENTRY:
        keys, items = entries.flatten()
        if not keys.null_count:
            return pa.MapArray.from_arrays(values.offsets, keys, items, mask=missing)
    return values


def _holding(items: pa.Array | None, lists: pa.Array) -> pa.Array | None:
    """Flags lists that hold a flagged item."""
    if items is None:
        return None
    ends = np.cumsum(np.concatenate([[0], items.to_numpy(zero_copy_only=False)]))[lists.offsets.to_numpy()]
    return pa.array(np.diff(ends) > 0)


def _either(first: pa.Array | None, second: pa.Array | None) -> pa.Array | None:
    if first is None or second is None:
        return second if first is None else first
    return pc.or_(first, second)


def _if_any(flags: pa.Array) -> pa.Array | None:
    return flags if pc.any(flags).as_py() else None


def _is_bounded(kind: pa.DataType) -> bool:
    """Whether a file's column of exactly this type can hold forbidden values: digits, years, repeated keys."""
    if pa.types.is_map(kind):
        return True
    if pa.types.is_nested(kind):
        return any(_is_bounded(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))
