"""Job file options on the format of records, common to all sources."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from ingest.sources.decode.strptime import format_error, says_time, says_year
from ingest.sources.decode.zones import zone
from ingest.sources.options import SourceBlock
from timeline.errors import ConfigError

EPOCH_UNITS: Mapping[str, int] = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
"""Numeric timestamp formats, and the microseconds in one unit of each."""

_FIRST_YEAR = 1000
_LAST_YEAR = 9999
_WALL_CLOCK = pa.timestamp("us")


class RecordFormat(enum.Enum):
    """Format of a source's records; no source supports all formats."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    RAW = "raw"
    PARQUET = "parquet"


class UnknownField(enum.Enum):
    """Treatment of a record with a field that the schema does not have."""

    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


class YearOf(enum.Enum):
    """Origin of the year for times that are written without one."""

    FILE = "file"
    MESSAGE = "message"


class CsvOptions(BaseModel):
    """The dialect of CSV; one record is one line.

    Attributes:
        header: whether each file's first line names its columns; without it the columns are the schema's, in order.
        delimiter: one character.
        quote: one character, doubled inside a quoted value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    header: bool = True
    delimiter: str = ","
    quote: str = '"'

    @field_validator("delimiter", "quote")
    @classmethod
    def _one_byte(cls, value: str) -> str:
        if len(value) != 1 or not value.isascii() or value in "\r\n\0":
            raise ValueError("one ASCII character other than a line end is allowed")
        return value

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.quote!r}; two different characters are allowed")
        return self


class SourceOptions(SourceBlock):
    """The keys of a job file's ``source`` block on the format of records.

    Attributes:
        format: how records are written.
        pattern: for text, an RE2 expression that matches a whole record; its named groups are the columns.
        timestamp_format: format of timestamps, one for all or by column: strptime directives, or ``epoch_s``,
            ``epoch_ms``, ``epoch_us``; default ISO 8601. Date columns may have a format by column.
        timezone: the IANA zone of timestamps that are written without an offset; None is UTC.
        year: the year for a timestamp_format without one: a number for all records, or its origin.
        csv: dialect of CSV.
        nulls: texts that mean null in csv and text columns.
    """

    formats: ClassVar[tuple[RecordFormat, ...]] = ()
    """The formats that this source supports."""

    year_words: ClassVar[tuple[YearOf, ...]] = ()
    """The origins of a year that this source supports."""

    format: RecordFormat
    pattern: str | None = None
    timestamp_format: str | Mapping[str, str] | None = None
    timezone: str | None = None
    year: int | YearOf | None = None
    csv: CsvOptions = CsvOptions()
    nulls: tuple[str, ...] = ("",)

    @field_validator("format", mode="before")
    @classmethod
    def _format_of_this_source(cls, value: object) -> object:
        if value not in cls.formats and value not in [one.value for one in cls.formats]:
            raise ValueError(f"allowed are {', '.join(one.value for one in cls.formats)}")
        return value

    @field_validator("pattern")
    @classmethod
    def _named_groups(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value)
        except re.error as failure:
            raise ValueError(f"not a regular expression: {failure}") from failure
        except (RecursionError, OverflowError) as failure:
            raise ValueError("not a regular expression that can be compiled: it is nested too deep") from failure
        if not groups.groupindex:
            raise ValueError("the pattern has no named group; columns are written (?P<name>...)")
        if len(groups.groupindex) != groups.groups:
            raise ValueError("the pattern has a group without a name; write (?:...) where no column is meant")
        return value

    @field_validator("timestamp_format")
    @classmethod
    def _known_formats(cls, value: str | Mapping[str, str] | None) -> str | Mapping[str, str] | None:
        for text in _patterns(value):
            if "%" not in text:
                raise ValueError(f"{text!r}: strptime directives are allowed, or one of {', '.join(EPOCH_UNITS)}")
            found = format_error(text)
            if found is not None:
                raise ValueError(f"{text!r}: {found}")
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                zone(value)
            except ConfigError as unknown:
                raise ValueError(str(unknown).removeprefix("source.timezone: ")) from unknown
        return value

    @field_validator("year", mode="before")
    @classmethod
    def _year_or_word(cls, value: object) -> object:
        words = [word.value for word in cls.year_words]
        if value is None or value in cls.year_words or value in words:
            return value
        if isinstance(value, str) and re.fullmatch("[0-9]{4}", value):
            value = int(value)  # a reference's value is text
        if isinstance(value, bool) or not isinstance(value, int) or not _FIRST_YEAR <= value <= _LAST_YEAR:
            raise ValueError(f"a number of four digits such as 2026 is allowed, or {', '.join(words)}")
        return value

    @model_validator(mode="after")
    def _fits_format(self) -> Self:
        if self.format is RecordFormat.TEXT and self.pattern is None:
            raise ValueError("format text needs pattern: a regular expression whose named groups are the columns")
        if self.format is not RecordFormat.TEXT and self.pattern is not None:
            raise ValueError(f"pattern is for format text only, not for {self.format.value}")
        if self.format is not RecordFormat.CSV and "csv" in self.model_fields_set:
            raise ValueError(f"csv is for format csv only, not for {self.format.value}")
        return self

    @model_validator(mode="after")
    def _year_is_known(self) -> Self:
        without = [text for text in _patterns(self.timestamp_format) if not says_year(text)]
        if without and self.year is None:
            words = "".join(
                f", or year: {word.value} (the time of the {word.value} tells it)" for word in self.year_words
            )
            raise ValueError(
                f"timestamp_format {without[0]!r} does not say the year; add %Y or %y if it is written, "
                f"else year: <n> (for all records){words}"
            )
        if self.year is not None and not without:
            raise ValueError("year is for a timestamp_format without %Y or %y, and there is none; leave year out")
        if self.format is RecordFormat.PARQUET and isinstance(self.year, YearOf):
            raise ValueError(f"year: {self.year.value} is for records that are lines; for parquet year: <n> is allowed")
        if self.format is RecordFormat.RAW and self.timezone is not None:
            raise ValueError("timezone is for timestamps, and format raw has none; leave it out")
        return self

    @property
    def reading(self) -> dict[str, str]:
        """See SourceBlock."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return {f"source.{key}": str(said[key]) for key in SourceOptions.model_fields if key in said}

    def format_findings(self, kinds: Mapping[str, pa.DataType]) -> Iterator[tuple[str | None, str]]:
        """Formats that do not fit the columns: the column, None for the one format of all columns, and the reason."""
        if isinstance(self.timestamp_format, str):
            if any(map(pa.types.is_date, kinds.values())) and not any(map(_has_timestamp, kinds.values())):
                day = next(name for name, kind in kinds.items() if pa.types.is_date(kind))
                yield None, f"one format for all is for timestamps, and there are none; a date is named: {{{day}: …}}"
            for name, kind in kinds.items():
                if kind == _WALL_CLOCK and "%z" in self.timestamp_format:
                    yield None, _zone_of_wall_clock(self.timestamp_format, name)
            return
        for name, text in (self.timestamp_format or {}).items():
            kind = kinds.get(name)
            if kind == _WALL_CLOCK and "%z" in text:
                yield name, _zone_of_wall_clock(text, name)
            elif kind is not None and pa.types.is_date(kind) and text in EPOCH_UNITS:
                yield name, f"{text} counts from an instant, and {name} is a date; make it a timestamp"
            elif kind is not None and pa.types.is_date(kind) and says_time(text):
                yield name, f"{text!r} has a time of day or a zone, but {name} is a date; make it a timestamp"

    @property
    def has_header(self) -> bool:
        """Whether records are CSV with a header line."""
        return self.format is RecordFormat.CSV and self.csv.header

    def timestamp_format_of(self, column: str) -> str | None:
        """The column's timestamp format; None is ISO 8601."""
        if self.timestamp_format is None or isinstance(self.timestamp_format, str):
            return self.timestamp_format
        return self.timestamp_format.get(column)


def _patterns(formats: str | Mapping[str, str] | None) -> list[str]:
    """The formats without `EPOCH_UNITS`."""
    texts = [formats] if isinstance(formats, str) else (formats or {}).values()
    return [text for text in texts if text not in EPOCH_UNITS]


def _has_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_timestamp(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


def _zone_of_wall_clock(text: str, name: str) -> str:
    return f"{text!r} has a zone, but {name} is a timestamp_ntz; make it a timestamp"
