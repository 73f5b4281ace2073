"""Columns of local times to instants, each time as `ingest.sources.decode.zones` reads it.

Conversion is by day: clocks change on a few days of a year, and all other days have one offset.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.zones import local_micros, offset_of_day

_DAY_MICROS = 86_400_000_000
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_INSTANT = pa.timestamp("us", tz="UTC")


def local_column(walls: pa.Array, name: str) -> pa.Array:
    """`local_micros` of a column.

    Args:
        walls: timestamps without a zone, in microseconds and in the years 1 to 9999.
        name: the zone.

    Returns:
        Instants; null for null and for times that clocks never showed.
    """
    valid = walls.is_valid().to_numpy(zero_copy_only=False)
    micros = pc.fill_null(pc.cast(walls, pa.int64()), 0).to_numpy(zero_copy_only=False)
    days, at = np.unique(micros // _DAY_MICROS, return_inverse=True)
    offsets = [offset_of_day(name, int(day)) for day in days]
    found = micros - np.array([offset or 0 for offset in offsets], np.int64)[at]
    changing = np.array([offset is None for offset in offsets], np.bool_)[at] & valid
    for place in np.flatnonzero(changing):
        instant = local_micros(_EPOCH + int(micros[place]) * _MICROSECOND, name)
        valid[place] = instant is not None
        found[place] = instant or 0
    return pc.cast(pa.array(found, mask=~valid), _INSTANT)
