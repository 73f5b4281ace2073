"""What a job file says about how records are written, whatever source they come from."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from ingest.sources.options import SourceBlock

EPOCH_UNITS: Mapping[str, int] = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
"""Timestamp formats that are numbers, and how many microseconds one unit has."""


class RecordFormat(enum.Enum):
    """How a source's records are written; no source has all of them."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    RAW = "raw"
    PARQUET = "parquet"


class UnknownField(enum.Enum):
    """What happens to a record with a field that the schema does not have."""

    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


class CsvOptions(BaseModel):
    """The dialect of CSV; one record is one line.

    Attributes:
        header: whether each file's first line names its columns; without it they are the schema's, in order.
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
    """The ``source`` block of a job file, as far as it says how records are written.

    Attributes:
        format: how records are written.
        pattern: for text, an RE2 expression that matches a whole record; its named groups are the columns.
        timestamp_format: how timestamps are written, one for all or by column: strptime directives, or ``epoch_s``,
            ``epoch_ms``, ``epoch_us``. Without it ISO 8601; no zone means UTC.
        csv: dialect of CSV.
        nulls: texts that mean null in csv and text columns.
    """

    formats: ClassVar[tuple[RecordFormat, ...]] = ()
    """The formats that this source has."""

    format: RecordFormat
    pattern: str | None = None
    timestamp_format: str | Mapping[str, str] | None = None
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
        if not groups.groupindex:
            raise ValueError("the pattern has no named group; columns are written (?P<name>...)")
        if len(groups.groupindex) != groups.groups:
            raise ValueError("the pattern has a group without a name; write (?:...) where no column is meant")
        return value

    @field_validator("timestamp_format")
    @classmethod
    def _known_formats(cls, value: str | Mapping[str, str] | None) -> str | Mapping[str, str] | None:
        for text in [value] if isinstance(value, str) else (value or {}).values():
            if text not in EPOCH_UNITS and "%" not in text:
                raise ValueError(f"{text!r}: strptime directives are allowed, or one of {', '.join(EPOCH_UNITS)}")
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

    @property
    def has_header(self) -> bool:
        """Whether CSV records come with a line that names their columns."""
        return self.format is RecordFormat.CSV and self.csv.header

    def timestamp_format_of(self, column: str) -> str | None:
        """The column's timestamp format; None is ISO 8601."""
        if self.timestamp_format is None or isinstance(self.timestamp_format, str):
            return self.timestamp_format
        return self.timestamp_format.get(column)
