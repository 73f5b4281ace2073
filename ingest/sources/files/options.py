"""What a job file says about a `files` source: where, which format, how much at a time, when a file has settled."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ingest.units import ByteSize, Duration


class FileFormat(enum.Enum):
    """How a file's records are written."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    PARQUET = "parquet"


class UnknownField(enum.Enum):
    """What happens to a record with a field that the schema does not have."""

    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


EPOCH_UNITS: Mapping[str, int] = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
"""Timestamp formats that are numbers, and how many microseconds one unit has."""


class CsvOptions(BaseModel):
    """The dialect of CSV files; one record is one line.

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


class FilesOptions(BaseModel):
    r"""The ``source`` block of a job file for ``type: files``.

    Attributes:
        path: a folder (walked), a glob or one file, on any fsspec store; names with ``.`` or ``_`` first are skipped.
        format: how the files are written; json is one object a line.
        pattern: for text, an RE2 expression that matches a whole line; its named groups are the columns.
        max_bytes_per_epoch: most bytes of files that one epoch takes.
        max_files_per_epoch: most files that one epoch takes from.
        close_after: seconds a file must be unchanged before its unterminated last line, or a compressed or
            Parquet file as a whole, counts. 0: at once.
        compression: ``auto`` goes by the name's ending (.gz, .zst).
        timestamp_format: how timestamps are written, one for all or by column: strptime directives, or ``epoch_s``,
            ``epoch_ms``, ``epoch_us``. Without it ISO 8601; no zone means UTC.
        csv: dialect of CSV files.
        nulls: texts that mean null in csv and text columns.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["files"] = "files"
    path: str = Field(min_length=1)
    format: FileFormat
    pattern: str | None = None
    max_bytes_per_epoch: ByteSize = Field(default=256_000_000, gt=0)
    max_files_per_epoch: int = Field(default=10_000, gt=0)
    close_after: Duration = Field(default=10.0, ge=0)
    compression: Literal["auto", "none", "gzip", "zstd"] = "auto"
    timestamp_format: str | Mapping[str, str] | None = None
    csv: CsvOptions = CsvOptions()
    nulls: tuple[str, ...] = ("",)

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
        if self.format is FileFormat.TEXT and self.pattern is None:
            raise ValueError("format text needs pattern: a regular expression whose named groups are the columns")
        if self.format is not FileFormat.TEXT and self.pattern is not None:
            raise ValueError(f"pattern is for format text only, not for {self.format.value}")
        if self.format is not FileFormat.CSV and "csv" in self.model_fields_set:
            raise ValueError(f"csv is for format csv only, not for {self.format.value}")
        if self.format is FileFormat.PARQUET and self.compression not in ("auto", "none"):
            raise ValueError("Parquet files compress inside; leave compression out")
        return self

    def timestamp_format_of(self, column: str) -> str | None:
        """The column's timestamp format; None is ISO 8601."""
        if self.timestamp_format is None or isinstance(self.timestamp_format, str):
            return self.timestamp_format
        return self.timestamp_format.get(column)

    def compression_of(self, path: str) -> str | None:
        """The compression of one file: gzip, zstd or None."""
        if self.format is FileFormat.PARQUET or self.compression == "none":
            return None
        if self.compression != "auto":
            return self.compression
        return next((kind for ending, kind in ((".gz", "gzip"), (".zst", "zstd")) if path.endswith(ending)), None)
