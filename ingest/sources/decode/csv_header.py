"""The header line of a CSV file: its column names, or why the line is unusable."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from ingest.sources.decode.csv_lines import CARRIAGE_RETURN, fault_of
from ingest.sources.decode.lines import invalid_utf8
from ingest.sources.decode.options import CsvOptions

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_NOT_A_LINE_END = "a carriage return outside quotes; lines have to end with LF or CR LF, not with CR alone or CR CR LF"


def header_fault(line: bytes, dialect: CsvOptions) -> str | None:
    """Why a header line is unusable, as the reason for rejecting every line of its file; None where it is usable.

    Args:
        line: without its line end and without the byte order mark of UTF-8.
        dialect: the file's dialect.
    """
    if line.startswith(_UTF_16):
        return "the file is UTF-16: only UTF-8 is read"
    try:
        text = line.decode()
    except UnicodeDecodeError as failure:
        return f"the file's header is {invalid_utf8(failure)}"
    if "\0" in text:
        return "the file's header has a NUL byte: is the file UTF-16? Only UTF-8 is read"
    try:
        header_names(text, dialect)
    except csv.Error as error:
        return unreadable_header(error)
    return None


def unreadable_header(error: csv.Error) -> str:
    """The reason for rejecting every line of a file whose header is no record of CSV."""
    return f"the file's header cannot be read: {error}"


def foreign_header(names: Sequence[str]) -> str:
    """The reason for rejecting every line of a file whose header has none of the schema's columns."""
    return f"the file's header has none of the schema's columns: {','.join(names)[:200]}"


def header_names(line: str, dialect: CsvOptions) -> list[str]:
    """Column names of a header line, without blanks around them.

    Raises:
        csv.Error: the line is no record of CSV.
    """
    try:
        rows = list(csv.reader([line], delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True))
    except csv.Error:
        if fault_of(line, dialect) == CARRIAGE_RETURN:
            raise csv.Error(_NOT_A_LINE_END) from None
        raise
    if line.endswith("\r"):  # which Python takes for a line end
        raise csv.Error(_NOT_A_LINE_END)
    return [name.strip() for name in rows[0]] if rows else []
