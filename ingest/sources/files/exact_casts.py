"""Columns of Parquet files in the job's types, where Arrow's own cast would take a value for another.

Decimals wrap, texts are read more generously than anywhere else (``0x10``, ``1e400``), 5 becomes true, and a float
that is too large or too small for 32 bits becomes an infinity or 0. The same inside of structs, lists and maps.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.convert import convert
from ingest.sources.decode.decimals import to_decimals
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import outside
from ingest.sources.files.parquet_times import converted_times, texts_of, within_years


def may_hold_others(kind: pa.DataType) -> bool:
    """Whether a file's column of this very type can hold what the type does not allow.

    Decimals with too many digits; inside of nested types, years that no column has.
    """
    if pa.types.is_nested(kind):
        return any(_is_bounded(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def cast_exactly(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """The values as of this type; null where one does not fit, as far as that is known without a refusal.

    Args:
        values: of any type.
        kind: the type, one that a schema can declare.
        written: how times are written, at any depth.

    Raises:
        pa.ArrowInvalid: a value does not fit.
        pa.ArrowNotImplementedError: none of that type does.
    """
    options = pc.CastOptions(kind, allow_time_truncate=True)
    if pa.types.is_nested(kind):
        return pc.cast(_with_parts(values, kind, written), options=options)
    if pa.types.is_decimal(kind):
        return to_decimals(values, kind)
    texts = _as_texts(values, kind)
    if texts is not None:
        return convert(texts, "", kind, written).values
    if pa.types.is_temporal(values.type):
        if not (pa.types.is_temporal(kind) or pa.types.is_string(kind)):
            return pa.nulls(len(values), kind)  # a count of what, since when?
        values = within_years(values)
    cast = pc.cast(values, options=options)
    if pa.types.is_float32(kind) and pa.types.is_float64(values.type):
        became_zero = pc.and_(_is_zero(cast), pc.invert(_is_zero(values)))
        became_infinite = pc.and_(pc.is_inf(cast), pc.is_finite(values))
        return _without(cast, pc.or_(became_zero, became_infinite))
    return cast


def _as_texts(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Values that are read as texts of them are; None where Arrow casts them right."""
    found = values.type
    if pa.types.is_dictionary(found):
        values, found = values.dictionary_decode(), found.value_type
    if pa.types.is_binary(found) or pa.types.is_large_binary(found):
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return None
        values, is_text = texts_of(values), True
    elif pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found):
        is_text = not (pa.types.is_string(kind) or pa.types.is_binary(kind))
    elif pa.types.is_boolean(kind):
        is_text = pa.types.is_integer(found) or pa.types.is_decimal(found)
        if pa.types.is_floating(found):
            values, is_text = pc.cast(values, pa.int8()), True
        elif pa.types.is_decimal(found):
            values = to_decimals(values, pa.decimal128(1, 0))
    else:
        # Arrow divides, which does not always give the nearest float.
        is_text = pa.types.is_floating(kind) and pa.types.is_decimal(found)
    return pc.cast(values, pa.string()) if is_text else None


def _with_parts(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """Structs, lists and maps whose parts are of the type's; others as they are."""
    if not pa.types.is_nested(kind):
        return _part(values, kind, written)
    if pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = pc.cast(values, pa.list_(values.type.value_type))
    values = values.take(pa.arange(0, len(values)))  # a slice's offsets make no list
    missing = values.is_null()
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type) and values.type.num_fields:
        kinds = {field.name: field.type for field in kind}
        names = values.type.names
        fields = [
            _with_parts(part, kinds[name], written) if name in kinds else part
            for name, part in zip(names, values.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(fields, names, mask=missing)
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(
            values.offsets, _with_parts(values.values, kind.value_type, written), mask=missing
        )
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        keys = _with_parts(values.keys, kind.key_type, written)
        items = _with_parts(values.items, kind.item_type, written)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=missing)
    return values


def _part(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """Values inside of others.

    Raises:
        pa.ArrowInvalid: one does not fit.
    """
    times = converted_times(values, pa.field("", kind), written)
    if times is not None:
        parts = times.values
    else:
        is_right = values.type == kind and not may_hold_others(kind)
        parts = values if is_right else cast_exactly(values, kind, written)
    if pa.types.is_timestamp(kind):
        parts = _without(parts, outside(parts))
    elif pa.types.is_date(kind):
        in_range = pc.and_(pc.greater_equal(parts, datetime.date.min), pc.less_equal(parts, datetime.date.max))
        parts = _without(parts, pc.invert(in_range))
    if parts.null_count > values.null_count:
        raise pa.ArrowInvalid("a value does not fit")
    return parts


def _is_bounded(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return may_hold_others(kind)
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_zero(values: pa.Array) -> pa.Array:
    return pc.equal(values, pa.scalar(0, values.type))


def _without(values: pa.Array, wrong: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(wrong, False), pa.scalar(None, values.type), values)
