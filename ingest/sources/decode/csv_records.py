"""Decodes CSV: one record is one line, columns by the file's header.

Lines that are no records (`ingest.sources.decode.csv_lines`) are rejected; Arrow's reader parses the others together.
A block that looks regular goes to Arrow unchecked: lines that are no records would change the number of rows.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from ingest.sources.base import Decoded
from ingest.sources.decode.convert import convert
from ingest.sources.decode.csv_header import foreign_header, header_names, unreadable_header
from ingest.sources.decode.csv_lines import faults, look_regular
from ingest.sources.decode.lines import as_text
from ingest.sources.decode.options import CsvOptions, UnknownField
from ingest.sources.decode.records import RawRecords, join_lines
from ingest.sources.decode.rows import refuse_all, select, unknown_field_error
from ingest.sources.decode.time_format import TimeFormat
from timeline.units import count

_SENTINEL = "0"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvDecoder:
    """Picklable; see `RecordDecoder`.

    Attributes:
        schema: columns; a column that the header does not have is null.
        dialect: the dialect of the files.
        nulls: texts outside quotes that mean null.
        timestamp_formats: by column.
        on_unknown_field: treatment of a header with a column that the schema does not have.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    dialect: CsvOptions
    nulls: tuple[str, ...]
    timestamp_formats: Mapping[str, TimeFormat | None]
    on_unknown_field: UnknownField
    lineage: bool

    def decode(self, records: RawRecords) -> Decoded:
        """See RecordDecoder."""
        try:
            names = header_names(records.header or "", self.dialect) if self.dialect.header else self.schema.names
        except csv.Error as error:
            return refuse_all(records, self.schema, unreadable_header(error), lineage=self.lineage)
        refused = self._refused_header(names, records)
        if refused is not None:
            return refuse_all(records, self.schema, refused, lineage=self.lineage)
        table, bad = parse_csv(records.texts, len(names), self.dialect, self.nulls)
        columns = []
        for field in self.schema:
            if field.name not in names:
                columns.append(pa.nulls(records.rows, field.type))
                continue
            found = table[names.index(field.name)]
            converted = convert(found, field.name, field.type, self.timestamp_formats.get(field.name))
            columns.append(converted.values)
            for index, reason in converted.bad.items():
                bad.setdefault(index, reason)
        return select(records, self.schema, columns, bad, lineage=self.lineage)

    def _refused_header(self, names: Sequence[str], records: RawRecords) -> str | None:
        """Why every row of this file is rejected; None where the header fits."""
        if not set(names) & set(self.schema.names):
            return foreign_header(names)
        if len(set(names)) < len(names):
            twice = [name for name, times in Counter(names).items() if times > 1 and name in self.schema.names]
            if twice:
                return f"{twice[0]}: the file's header names this column more than once"
        unknown = [name for name in names if name not in self.schema.names]
        if unknown and self.on_unknown_field is UnknownField.FAIL:
            raise unknown_field_error(records.shard, records.start, unknown[0])
        if unknown and self.on_unknown_field is UnknownField.QUARANTINE:
            return f"the file's header has a column that the schema does not have: {unknown[0]}"
        return None


def parse_csv(
    lines: pa.Array, width: int, dialect: CsvOptions, nulls: Sequence[str]
) -> tuple[list[pa.Array], dict[int, str]]:
    """Columns of texts, one value a line, and index and reason of each line that is no record.

    Args:
        lines: binary, one record each.
        width: number of columns in a record.
        dialect: delimiter and quote.
        nulls: texts outside quotes that are null.
    """
    texts = as_text(lines)
    how = _Dialect(width, dialect, tuple(nulls))
    data = join_lines(lines) + b"\n"
    if not texts.bad and look_regular(lines, data, dialect):
        wrong: dict[int, str] = {}
        columns = _parse_together(data, len(lines), how, wrong)
        if columns is not None:
            return _in_order([_Piece(_without(pa.arange(0, len(lines)), wrong), columns)], len(lines), width), wrong
    bad = texts.bad | faults(texts.texts, dialect)
    pieces: list[_Piece] = []
    _parse(_without(pa.arange(0, len(lines)), bad), lines, how, pieces, bad)
    return _in_order(pieces, len(lines), width), bad


def _without(at: pa.Array, left_out: Mapping[int, str]) -> pa.Array:
    """The numbers in `at`, without those at some indices."""
    if not left_out:
        return at
    return at.filter(pc.invert(pc.is_in(pa.arange(0, len(at)), value_set=pa.array(list(left_out), pa.int64()))))


def _in_order(pieces: Sequence[_Piece], rows: int, width: int) -> list[pa.Array]:
    """The columns of all pieces, with null for every line that is in no piece."""
    if not pieces:
        return [pa.nulls(rows, pa.string())] * width
    columns = [pa.concat_arrays([piece.columns[column] for piece in pieces]) for column in range(width)]
    order = pa.concat_arrays([piece.at for piece in pieces])
    if len(pieces) == 1 and len(order) == rows:
        return columns
    place = pc.index_in(pa.arange(0, rows), value_set=order)
    return [column.take(place) for column in columns]


@dataclass(frozen=True)
class _Dialect:
    """Parameters for parsing lines."""

    width: int
    csv: CsvOptions
    nulls: tuple[str, ...]


@dataclass(frozen=True)
class _Piece:
    """Lines that were parsed together: their indices and their columns."""

    at: pa.Array
    columns: list[pa.Array]


def _parse(at: pa.Array, lines: pa.Array, dialect: _Dialect, pieces: list[_Piece], bad: dict[int, str]) -> None:
    """Parse the lines at these indices, in halves where Arrow does not read one record from each line."""
    if len(at) == 0:
        return
    wrong: dict[int, str] = {}
    columns = _parse_together(join_lines(lines.take(at)) + b"\n", len(at), dialect, wrong)
    if columns is not None:
        bad.update({at[index].as_py(): reason for index, reason in wrong.items()})
        pieces.append(_Piece(_without(at, wrong), columns))
    elif len(at) == 1:
        bad[at[0].as_py()] = "not one record of CSV"
    else:
        middle = len(at) // 2
        _parse(at[:middle], lines, dialect, pieces, bad)
        _parse(at[middle:], lines, dialect, pieces, bad)


def _parse_together(data: bytes, lines: int, dialect: _Dialect, wrong: dict[int, str]) -> list[pa.Array] | None:
    """Columns of the lines, those in `wrong` left out; None unless every line is one record.

    Args:
        data: the lines, each with a line feed behind it.
        lines: number of lines.
        dialect: parameters for parsing.
        wrong: receives index and reason of lines with another number of columns.
    """
    names = [str(column) for column in range(dialect.width)]
    # An open quote in the last line would swallow nothing and stay undetected: a sentinel line follows the last line.
    # The sentinel's quotes keep it from being read as null.
    quoted = f"{dialect.csv.quote}{_SENTINEL}{dialect.csv.quote}"
    # Arrow skips a byte order mark at the start of its input; a file's own mark is not in its lines: this one is data.
    mark = _BOM if data.startswith(_BOM) else b""
    data = b"".join([mark, data, dialect.csv.delimiter.join([quoted] * dialect.width).encode(), b"\n"])

    def skip(row: pv.InvalidRow) -> str:
        wrong[row.number - 1] = f"{count(row.actual_columns, 'column')} where {row.expected_columns} are expected"
        return "skip"

    try:
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pv.ParseOptions(
                delimiter=dialect.csv.delimiter, quote_char=dialect.csv.quote, invalid_row_handler=skip
            ),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=list(dialect.nulls),
            ),
        )
    except pa.ArrowInvalid:
        return None
    # An extra record and an open quote that swallows the sentinel would cancel out in the count.
    last = [table.column(column)[-1].as_py() for column in range(dialect.width)] if table.num_rows else []
    if table.num_rows + len(wrong) != lines + 1 or last != [_SENTINEL] * dialect.width:
        return None
    return [table.column(column).slice(0, table.num_rows - 1).combine_chunks() for column in range(dialect.width)]
