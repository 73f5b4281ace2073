"""Single texts to timestamps: ISO 8601 and strptime formats; the range of timestamps.

Columns of texts: `ingest.sources.decode.timestamp_columns`.
"""

from __future__ import annotations

import datetime
import re

from ingest.sources.decode.strptime import ParsedTime, Year, parse
from ingest.sources.decode.zones import local_micros

_OFFSET = r"[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?"
"""Hours 00 to 23 and minutes 00 to 59 (RFC 3339, section 5.6): `datetime` reads +00:60 as +01:00."""
_ISO = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?)?(Z|{_OFFSET})?)?", re.ASCII
)
_UTC = datetime.UTC
FIRST_MICROS = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z."""
LAST_MICROS = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z."""
EPOCH_PRECISION = 28
"""Digits of a count since 1970 as a decimal: times a factor of 7 digits it fits the 38 of Arrow's multiplication."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_NO_OFFSET = datetime.timedelta()


def iso_micros(text: str, *, zoned: bool, timezone: str | None = None) -> int | None:
    """Microseconds since 1970 of one ISO 8601 text, further digits dropped; None where the text is no time.

    Args:
        text: date, or date and time with ``T`` or a space.
        zoned: whether the column is an instant: then a text may have an offset, and no offset means UTC. A wall clock
            (timestamp_ntz) has no offset.
        timezone: the zone of an instant without an offset, instead of UTC.
    """
    found = _ISO.fullmatch(text)
    if found is None or (found.group(6) and not zoned):
        return None
    day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime.datetime.fromisoformat(f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{zone or ''}")
    except ValueError:
        return None
    micros = _micros(moment) if moment.tzinfo is not None or timezone is None else local_micros(moment, timezone)
    return None if micros is None else in_range(micros + int(((fraction or "") + "000000")[:6]))


def format_micros(
    text: str, pattern: str, *, zoned: bool, timezone: str | None = None, year: Year | None = None
) -> int | None:
    """Microseconds since 1970 of one text by a strptime format; None where the text does not match.

    Args:
        text: the text.
        pattern: a format without a `strptime.flaw`.
        zoned: see `iso_micros`.
        timezone: see `iso_micros`.
        year: the year for a format without one.
    """
    moment = parse(text, pattern, year)
    if moment is None or (moment.offset is not None and not zoned):
        return None
    micros = _instant(moment, timezone)
    return None if micros is None else in_range(micros)


def format_day(text: str, pattern: str, year: Year | None) -> datetime.date | None:
    """The day of one text by a strptime format of days; None where the text does not match.

    Args:
        text: the text.
        pattern: a format without a `strptime.flaw`.
        year: the year for a format without one.
    """
    moment = parse(text, pattern, year)
    return None if moment is None else moment.wall.date()


def in_range(micros: int) -> int | None:
    """The timestamp if it lies in the years 1 to 9999, the range of Spark and Delta; else None."""
    return micros if FIRST_MICROS <= micros <= LAST_MICROS else None


def epoch_scale(micros_per_unit: int) -> int:
    """Decimal places of a count since 1970 that a timestamp can hold."""
    return len(str(micros_per_unit)) - 1


def _instant(moment: ParsedTime, timezone: str | None) -> int | None:
    """Microseconds since 1970; None for a time that the zone's clocks skipped."""
    if moment.offset is None and timezone is not None:
        return local_micros(moment.wall, timezone)
    return _micros(moment.wall) - (moment.offset or _NO_OFFSET) // _MICROSECOND


def _micros(moment: datetime.datetime) -> int:
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=_UTC)) - _EPOCH) // _MICROSECOND
