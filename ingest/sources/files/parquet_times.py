"""Times of Parquet files in a column's type: by the counts that the file has, whatever its zones are called.

Texts and counts without a unit are not converted here; texts are parsed as in all other formats (`exact_casts`).
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.convert import convert
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import epoch_column, local
from ingest.sources.decode.timestamps import EPOCH_PRECISION, FIRST_MICROS, LAST_MICROS, epoch_scale

_WALL_CLOCK = pa.timestamp("us")
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_SECONDS_PER_DAY = 86_400
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((day - _EPOCH).days for day in (datetime.date.min, datetime.date.max))


def to_timestamps(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """Timestamps from times, dates, and counts whose unit the job file gives; null for any other value.

    A date becomes its midnight, a wall-clock time like any other, as where the date is written as a text.

    Args:
        values: of a file; nanoseconds are rounded down, as a text's digits beyond microseconds are dropped.
        kind: the timestamp type.
        written: how times of the column are written.
    """
    found = values.type
    if pa.types.is_timestamp(found) or pa.types.is_date(found):
        is_date = pa.types.is_date(found)
        walls = pc.cast(to_dates(values), _WALL_CLOCK) if is_date else _in_micros(values)
        is_instant = not is_date and found.tz is not None
        timezone = None if written is None or is_instant else written.timezone_of(kind)
        return walls.view(kind) if timezone is None else local(walls, timezone)
    unit = None if written is None else written.micros_per_unit
    if unit is None:  # Arrow would take any number for a count of microseconds
        return pa.nulls(len(values), kind)
    if pa.types.is_integer(found):
        counts = pc.cast(values, pa.decimal128(EPOCH_PRECISION, epoch_scale(unit)))
        return epoch_column(counts, unit, kind)
    if pa.types.is_floating(found) or pa.types.is_decimal(found):
        numbers = pc.cast(values, pa.float32()) if pa.types.is_float16(found) else values
        return convert(pc.cast(numbers, pa.string()), "", kind, written).values
    return pa.nulls(len(values), kind)


def to_dates(values: pa.Array) -> pa.Array:
    """Dates from dates and from times at midnight, in UTC where they have a zone; null for any other value."""
    found = values.type
    if pa.types.is_date32(found):
        return in_years(values)
    if not (pa.types.is_timestamp(found) or pa.types.is_date64(found)):
        return pa.nulls(len(values), pa.date32())
    unit = "ms" if pa.types.is_date64(found) else found.unit
    per_day = pa.scalar(_SECONDS_PER_DAY * _UNITS_PER_SECOND[unit])
    counts = values.view(pa.int64())
    days = pc.divide(counts, per_day)
    first, last = pa.scalar(_FIRST_DAY), pa.scalar(_LAST_DAY)
    inside = pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))
    is_day = pc.and_(inside, pc.equal(pc.multiply(days, per_day), counts))
    return pc.cast(pc.if_else(is_day, days, pa.scalar(None, pa.int64())), pa.int32()).view(pa.date32())


def in_years(values: pa.Array) -> pa.Array:
    """Timestamps or dates, null outside the years 1 to 9999."""
    kind = values.type
    if pa.types.is_date32(kind):
        counts, first, last = pc.cast(values.view(pa.int32()), pa.int64()), _FIRST_DAY, _LAST_DAY
    else:
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        if unit == "ns":  # 64 bits hold no other years
            return values
        per_unit = _MICROS_PER_UNIT[unit]
        counts, first, last = values.view(pa.int64()), FIRST_MICROS // per_unit, LAST_MICROS // per_unit
    # Check minimum and maximum first: comparing a column with a number takes longer.
    ends = pc.min_max(counts).as_py()
    if ends["min"] is None or (first <= ends["min"] and ends["max"] <= last):
        return values
    inside = pc.and_(pc.greater_equal(counts, pa.scalar(first)), pc.less_equal(counts, pa.scalar(last)))
    return pc.if_else(inside, values, pa.scalar(None, kind))


def _in_micros(times: pa.Array) -> pa.Array:
    """Times without their zone in microseconds, rounded down; null where a time is out of range."""
    unit, counts = times.type.unit, in_years(times).view(pa.int64())
    if unit == "ns":
        per_micro = pa.scalar(1_000)
        micros = pc.divide(counts, per_micro)  # toward 0
        above = pc.greater(pc.multiply(micros, per_micro), counts)
        counts = pc.subtract(micros, pc.cast(above, pa.int64()))
    elif unit != "us":
        counts = pc.multiply(counts, pa.scalar(_MICROS_PER_UNIT[unit]))
    return counts.view(_WALL_CLOCK)
