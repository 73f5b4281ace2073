"""Casts of Parquet values to the job's types: exactly those that `docs/job-file.md` lists.

Arrow's own cast accepts more: decimals wrap, texts are parsed more leniently than anywhere else (``0x10``, ``1e400``),
5 becomes true, a float that is too large or too small for 32 bits becomes an infinity or 0, and a time a number.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.convert import convert
from ingest.sources.decode.decimals import to_decimals
from ingest.sources.decode.lines import as_text
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.files.parquet_times import in_years, to_dates, to_timestamps


def cast_exactly(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """Cast values to a type; null where a value does not fit.

    Args:
        values: of any type without a dictionary.
        kind: the target type, one that a schema can declare.
        written: how times are written.
    """
    found = values.type
    if _is_text(found) or _is_bytes(found):
        if pa.types.is_binary(kind):
            return pc.cast(values, kind)
        texts = _as_texts(values)
        return texts if pa.types.is_string(kind) else convert(texts, "", kind, written).values
    if pa.types.is_timestamp(kind):
        return to_timestamps(values, kind, written)
    if pa.types.is_date(kind):
        return to_dates(values)
    if pa.types.is_string(kind):
        return _written(values)
    if pa.types.is_boolean(kind):
        return _booleans(values)
    if pa.types.is_decimal(kind):
        return to_decimals(values, kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return _numbers(values, kind) if is_number and _is_number(found) else pa.nulls(len(values), kind)


def _written(values: pa.Array) -> pa.Array:
    """Numbers, booleans and times as texts."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = in_years(values)
    elif not (_is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_time(kind)):
        return pa.nulls(len(values), pa.string())
    return _cast(values, pa.string())


def _booleans(values: pa.Array) -> pa.Array:
    """Booleans, and the numbers 0 and 1."""
    found, kind = values.type, pa.bool_()
    if pa.types.is_boolean(found):
        return values
    if not _is_number(found):
        return pa.nulls(len(values), kind)
    if pa.types.is_floating(found):
        values = _cast(values, pa.int8())
    elif pa.types.is_decimal(found):
        values = to_decimals(values, pa.decimal128(1, 0))
    return convert(pc.cast(values, pa.string()), "", kind).values


def _numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind) and pa.types.is_decimal(values.type):
        # Arrow divides, which does not always give the nearest float.
        return convert(pc.cast(values, pa.string()), "", kind).values
    cast = _cast(values, kind)
    if pa.types.is_float32(kind) and pa.types.is_float64(values.type):
        became_zero = pc.and_(_is_zero(cast), pc.invert(_is_zero(values)))
        became_infinite = pc.and_(pc.is_inf(cast), pc.is_finite(values))
        wrong = pc.fill_null(pc.or_(became_zero, became_infinite), pa.scalar(False))
        return pc.if_else(wrong, pa.scalar(None, kind), cast)
    return cast


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow's cast, with null for refused values: Arrow refuses the whole array for one value."""
    try:
        return pc.cast(values, kind)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(values), kind)
    except pa.ArrowInvalid:
        middle = len(values) // 2
        if middle == 0:
            return pa.nulls(len(values), kind)
        return pa.concat_arrays([_cast(part, kind) for part in (values.slice(0, middle), values.slice(middle))])


def _as_texts(values: pa.Array) -> pa.Array:
    """Texts, and bytes that are valid UTF-8, else null: not all writers mark texts as such."""
    if _is_text(values.type):
        return pc.cast(values, pa.string())
    texts = as_text(pc.fill_null(pc.cast(values, pa.binary()), pa.scalar(b""))).texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())) if values.null_count else texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_zero(values: pa.Array) -> pa.Array:
    return pc.equal(values, pa.scalar(0, values.type))
