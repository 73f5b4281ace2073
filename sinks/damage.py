"""Damage checks of a Parquet file: its checksum, its pages, its statistics.

The manifest has a CRC-32 of all bytes of each file that Tideline has written. Files of a query are written by Spark,
which puts a CRC into each page (Parquet format, `PageHeader.crc`) for the page's data. Every file is decoded as well,
and each column's values are compared with the null count and bounds in the footer; in a file without checksums, a
change within those bounds is not found.
"""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timeline.epoch import WrittenFile
from timeline.units import count

_BROKEN = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, RuntimeError)
"""Errors of the decoder of bytes in memory; each of them means damaged bytes."""


def damage_of(body: bytes, written: WrittenFile) -> str | None:
    """A file's damage, human-readable; None if it is intact.

    Args:
        body: the whole file.
        written: the file's entry in the manifest.
    """
    if written.crc32 is not None and zlib.crc32(body) != written.crc32:
        return f"its bytes add up to {zlib.crc32(body):08x}, those that were written to {written.crc32:08x}"
    rows = written.rows
    try:
        file = pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
        if file.metadata.num_rows != rows:
            return f"it holds {count(file.metadata.num_rows, 'row')}, the manifest says {rows:,}"
        found = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            table.validate(full=True)
            found += table.num_rows
            column = _outside(file.metadata.row_group(group), table)
            if column is not None:
                return f"values of column {column!r} are not those that its statistics tell of"
        return None if found == rows else f"it holds {count(found, 'row')}, the manifest says {rows:,}"
    except _BROKEN as error:
        # The decoder's message may quote values.
        is_sum = "CRC" in str(error)
        return (
            "a page's checksum is not that of its bytes" if is_sum else f"it cannot be decoded ({type(error).__name__})"
        )


def _outside(group: pq.RowGroupMetaData, table: pa.Table) -> str | None:
    """A column with values outside its statistics; floats and nested columns are not checked."""
    for index in range(group.num_columns):
        chunk = group.column(index)
        name, told = chunk.path_in_schema, chunk.statistics
        if told is None or name not in table.column_names:
            continue
        column = table.column(name)
        if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
            continue
        if told.has_null_count and told.null_count != column.null_count:
            return str(name)
        if told.has_min_max and column.null_count < len(column) and not _is_within(column, told):
            return str(name)
    return None


def _is_within(column: pa.ChunkedArray, told: pq.Statistics) -> bool:
    try:
        least, greatest = (pa.scalar(bound, column.type) for bound in (told.min, told.max))
        found = pc.min_max(column)
        return bool(pc.less_equal(least, found["min"]).as_py() and pc.less_equal(found["max"], greatest).as_py())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return True  # a type whose bounds Arrow does not read or compare
