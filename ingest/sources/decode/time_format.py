"""The format of a column's timestamps and dates, as decoders receive it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ingest.sources.decode.options import EPOCH_UNITS
from ingest.sources.decode.strptime import Year, says_year
from sinks.sql_types import type_name


@dataclass(frozen=True)
class TimeFormat:
    """Format of the times of one column. Without a format, times are ISO 8601, and no offset means UTC.

    Attributes:
        pattern: strptime directives, or one of `EPOCH_UNITS`; None is ISO 8601.
        timezone: the zone of instants without an offset; None is UTC.
        year: the year for times without one; None where unknown.
        is_of_dates: the pattern is for dates; else for timestamps, and dates in the same column are ISO 8601.
    """

    pattern: str | None = None
    timezone: str | None = None
    year: Year | None = None
    is_of_dates: bool = False

    @property
    def micros_per_unit(self) -> int | None:
        """Microseconds in one unit of a count since 1970; None where times are texts."""
        return EPOCH_UNITS.get(self.pattern or "")

    @property
    def day_pattern(self) -> str | None:
        """The pattern of dates; None is ISO 8601."""
        return self.pattern if self.is_of_dates else None

    def timezone_of(self, kind: pa.DataType) -> str | None:
        """The zone of a column's local times; a wall clock (timestamp_ntz) and a date have none."""
        return self.timezone if pa.types.is_timestamp(kind) and kind.tz is not None else None

    def expected(self, kind: pa.DataType) -> str | None:
        """Description of a fitting value, human-readable; None where the type's name suffices."""
        if not (pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and self.is_of_dates)):
            return None
        if self.pattern is None:
            return None
        unknown = ", as no year is known" if self._needs_year and self.year is None else ""
        return f"a {type_name(kind)} in the format {self.pattern}{unknown}"

    @property
    def _needs_year(self) -> bool:
        return self.pattern is not None and self.micros_per_unit is None and not says_year(self.pattern)
