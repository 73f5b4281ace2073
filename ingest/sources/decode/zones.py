"""Local times to instants by the zone database.

A time that clocks showed twice (autumn) is the first of the two; a time that clocks skipped (spring) is no instant.
The database is Python's (`zoneinfo`): the system's, or the package tzdata where the system has none. Columns:
`ingest.sources.decode.zone_columns`.
"""

from __future__ import annotations

import datetime
import functools
import zoneinfo

from timeline.errors import ConfigError

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_ONE_DAY_BUT_A_MICROSECOND = datetime.timedelta(days=1) - _MICROSECOND


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """A zone by its IANA name.

    Raises:
        ConfigError: the database of this machine has no zone of this name.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as failure:
        raise ConfigError(
            f"source.timezone: {name!r} is no name of the IANA time zone database on this machine, as Europe/Berlin is"
            "; where the machine has no such database, install its tzdata"
        ) from failure


def local_micros(wall: datetime.datetime, name: str) -> int | None:
    """Microseconds since 1970 at which clocks of a zone first showed this time; None for a skipped time."""
    local = wall.replace(tzinfo=zone(name), fold=0)
    first, second = local.utcoffset(), local.replace(fold=1).utcoffset()
    assert first is not None and second is not None
    # PEP 495: the reading before the change has the smaller offset for a skipped time, the larger for a repeated one.
    return None if first < second else (wall - _EPOCH - first) // _MICROSECOND


@functools.lru_cache(maxsize=100_000)
def offset_of_day(name: str, day: int) -> int | None:
    """Microseconds from UTC of a zone's clocks on a day since 1970; None on a day on which clocks change."""
    start = _EPOCH + datetime.timedelta(days=day)
    found = {
        edge.replace(tzinfo=zone(name), fold=fold).utcoffset()
        for edge in (start, start + _ONE_DAY_BUT_A_MICROSECOND)
        for fold in (0, 1)
    }
    offset = found.pop()
    return offset // _MICROSECOND if not found and offset is not None else None
