"""Times of Parquet files that are no timestamps there, or have no zone: texts, counts since 1970, local times.

Texts and counts mean what they mean in all other formats; columns that are times with a zone pass it by.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.convert import Converted, convert
from ingest.sources.decode.lines import as_text, positions_of
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import epoch_column, local
from ingest.sources.decode.timestamps import EPOCH_PRECISION, FIRST_MICROS, LAST_MICROS, epoch_scale
from ingest.sources.decode.values import Number, mismatch
from ingest.sources.files.shown import plain

_WALL_CLOCK = pa.timestamp("us")
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000}
_FIRST_DAY = FIRST_MICROS // 86_400_000_000
_LAST_DAY = LAST_MICROS // 86_400_000_000


def converted_times(values: pa.Array, field: pa.Field, written: TimeFormat | None) -> Converted | None:
    """A file's texts or numbers as a column of times; None where that is no column of times, or they are times."""
    if not (pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)):
        return None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        values = texts_of(values)
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return convert(pc.cast(values, pa.string()), field.name, field.type, written)
    if pa.types.is_timestamp(kind) and pa.types.is_date(field.type):
        return _days(values, field)
    unit = None if written is None else written.micros_per_unit
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    if unit is None:
        # Arrow would take any number for a count, of microseconds or days.
        expected = None if written is None else written.expected(field.type)
        bad = {
            at: mismatch(field.name, Number(values[at]), field.type, expected) for at in positions_of(values.is_valid())
        }
        return Converted(pa.nulls(len(values), field.type), bad)
    if not pa.types.is_integer(kind):
        return convert(pc.cast(values, pa.string()), field.name, field.type, written)
    assert written is not None
    counts = pc.cast(values, pa.decimal128(EPOCH_PRECISION, epoch_scale(unit)))
    return _converted(epoch_column(counts, unit, field.type), values, field, written)


def _days(values: pa.Array, field: pa.Field) -> Converted:
    """Times as days; one with a time of day, in UTC where it has a zone, or beyond all years does not fit."""
    written = pc.cast(values, pa.timestamp(values.type.unit))
    times = within_years(written)
    days = pc.cast(pc.floor_temporal(times, unit="day"), field.type)
    fits = pc.fill_null(pc.equal(pc.cast(days, times.type), times), False)
    bad = {
        at: mismatch(field.name, str(plain(written[at])), field.type)
        for at in positions_of(pc.and_(pc.invert(fits), values.is_valid()))
    }
    return Converted(pc.if_else(fits, days, pa.scalar(None, field.type)) if bad else days, bad)


def within_years(values: pa.Array) -> pa.Array:
    """Times and days of the years 1 to 9999; null for others, of which Arrow says anything."""
    kind = values.type
    if pa.types.is_date32(kind):
        first, last = _FIRST_DAY, _LAST_DAY
        counts = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
        per_unit = _MICROS_PER_UNIT.get(unit, 1)
        first, last = FIRST_MICROS // per_unit, LAST_MICROS // per_unit
        if unit == "ns":  # all of its years are among them; its least count stands for no time
            first, last = -(2**63) + 1, 2**63 - 1
        counts = pc.cast(values, pa.int64())
    else:
        return values
    inside = pc.and_(
        pc.greater_equal(counts, pa.scalar(first, counts.type)), pc.less_equal(counts, pa.scalar(last, counts.type))
    )
    return values if pc.all(inside).as_py() is not False else pc.if_else(inside, values, pa.scalar(None, kind))


def texts_of(values: pa.Array) -> pa.Array:
    """Binary values as texts: some writers do not mark texts as such. Null where one is not UTF-8."""
    texts = as_text(pc.fill_null(pc.cast(values, pa.binary()), b"")).texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _converted(times: pa.Array, values: pa.Array, field: pa.Field, written: TimeFormat | None) -> Converted:
    """Times, and what those are that are null though a number is there."""
    missed = positions_of(pc.and_(pc.is_null(times), pc.is_valid(values)))
    expected = None if written is None else written.expected(field.type)
    return Converted(times, {at: mismatch(field.name, Number(values[at]), field.type, expected) for at in missed})


def has_local_times(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a file has times without a zone, or ISO texts, where the column has instants, at any depth."""
    if pa.types.is_timestamp(wanted) and wanted.tz is not None:
        return bool(pa.types.is_string(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))
    return any(has_local_times(inner, wanted_inner) for inner, wanted_inner in _insides(kind, wanted))


def with_instants(
    values: pa.Array, wanted: pa.DataType, written: TimeFormat | None
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Values with their local times as instants, and in which of them a time never was.

    Args:
        values: with `has_local_times`. Texts are there where a rejected row was made a row again.
        wanted: the column's type.
        written: how texts are written, and the zone whose clocks showed local times; None is ISO 8601 and UTC.
    """
    if not has_local_times(values.type, wanted):
        return values, np.zeros(len(values), np.bool_)
    if pa.types.is_timestamp(values.type) or pa.types.is_string(values.type):
        if pa.types.is_string(values.type):
            instants = convert(values, "", wanted, written).values
        else:
            instants = local(_in_micros(values), (written.timezone if written else None) or "UTC")
        missed = pc.and_(pc.is_null(instants), pc.is_valid(values))
        return instants, missed.to_numpy(zero_copy_only=False)
    values = values.take(pa.arange(0, len(values)))  # a slice's offsets make no list
    missing = values.is_null()
    if pa.types.is_struct(values.type):
        bad = np.zeros(len(values), np.bool_)
        parts = []
        for name, part in zip(values.type.names, values.flatten(), strict=True):
            at = wanted.get_field_index(name)
            if at >= 0:
                part, wrong = with_instants(part, wanted.field(at).type, written)
                bad |= wrong
            parts.append(part)
        return pa.StructArray.from_arrays(parts, values.type.names, mask=missing), bad
    if pa.types.is_map(values.type):
        items, wrong = with_instants(values.items, wanted.item_type, written)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, mask=missing), _rows_of(wrong, values)
    values = pc.cast(values, pa.list_(values.type.value_type))
    items, wrong = with_instants(values.values, wanted.value_type, written)
    return pa.ListArray.from_arrays(values.offsets, items, mask=missing), _rows_of(wrong, values)


def _in_micros(walls: pa.Array) -> pa.Array:
    """Wall clocks in microseconds, null where they do not fit: Arrow refuses all for one."""
    if walls.type.unit == "ns":
        walls = pc.floor_temporal(walls, unit="microsecond")  # the cast cuts toward 1970
    per_unit = _MICROS_PER_UNIT.get(walls.type.unit)
    if per_unit is not None:
        counts = pc.cast(walls, pa.int64())
        first, last = (pa.scalar(limit // per_unit) for limit in (FIRST_MICROS, LAST_MICROS))
        inside = pc.and_(pc.greater_equal(counts, first), pc.less_equal(counts, last))
        walls = pc.if_else(inside, walls, pa.scalar(None, walls.type))
    return pc.cast(walls, _WALL_CLOCK)


def _rows_of(items: npt.NDArray[np.bool_], lists: pa.Array) -> npt.NDArray[np.bool_]:
    """Which lists hold one of these items."""
    ends = np.cumsum(np.concatenate([[0], items]))[lists.offsets.to_numpy()]
    found: npt.NDArray[np.bool_] = np.diff(ends) > 0
    return found


def _insides(kind: pa.DataType, wanted: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return [
            (field.type, wanted.field(at).type) for field in kind if (at := wanted.get_field_index(field.name)) >= 0
        ]
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        return [(kind.item_type, wanted.item_type)]
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return [(kind.value_type, wanted.value_type)] if is_list and pa.types.is_list(wanted) else []
