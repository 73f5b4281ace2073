"""Parquet files: row groups of a range into record batches, and the batches into the job's columns.

A row group belongs to the range in which its first page starts; the offset of a row is its index
in the file. A row group that cannot be read further is one rejected row; the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem

from ingest.sources.base import Block, Decoded, halves_of_batch
from ingest.sources.decode.convert import Converted
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.records import TextRecords
from ingest.sources.decode.rows import refuse_all, select, unknown_field_error, unreadable
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.values import article, expected_map, mismatch
from ingest.sources.files.locate import locate, range_gone
from ingest.sources.files.lookup_retry import MOST_LOOKUPS
from ingest.sources.files.parquet_columns import are_texts, fitted, refused
from ingest.sources.files.parquet_restore import CONTEXT, TEXT, with_types
from ingest.sources.files.parquet_rows import row_text, shown_as
from ingest.sources.files.raw import RawFile, unavailable
from sinks.sql_types import type_name
from timeline.epoch import OffsetRange

_BATCH_ROWS = 16 * 1024
_BROKEN = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError)
"""Errors that pyarrow raises for a damaged file (thrift errors are OSError)."""


@dataclass(frozen=True)
class ParquetReader:
    """Picklable reader of Parquet files; see `RangeReader`.

    Attributes:
        fs: the store.
    """

    fs: AbstractFileSystem

    def _opened(self, offsets: OffsetRange) -> tuple[str, RawFile]:
        """Path and open file of a range; retried where the file is renamed between lookup and opening."""
        for look in range(MOST_LOOKUPS):
            path = locate(self.fs, offsets).path
            try:
                return path, RawFile(self.fs, path)
            except FileNotFoundError as failure:
                if look == MOST_LOOKUPS - 1:
                    raise range_gone(offsets, f"file {path} does not exist any more") from failure
            except OSError as failure:
                unavailable(path, failure)
        raise AssertionError("unreachable: the last look returns or raises")

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader."""
        if offsets.start == offsets.until:
            return
        path, source = self._opened(offsets)
        with source:
            try:
                # Old timestamps of Spark and Hive (INT96): as nanoseconds, the default, years beyond 2262 wrap around.
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            except _BROKEN as failure:
                source.require_store()
                # One row for the whole file, however many pieces it is split into.
                if offsets.start == 0:
                    yield _broken(offsets, 0, f"{path} is not readable as Parquet: {failure}")
                return
            first = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if offsets.start <= _starts_at(file.metadata.row_group(group)) < offsets.until:
                    yield from _read_group(source, file, group, first, offsets)
                first += rows


def _read_group(source: RawFile, file: pq.ParquetFile, group: int, first: int, offsets: OffsetRange) -> Iterator[Block]:
    batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except _BROKEN as failure:
            source.require_store()
            yield _broken(offsets, first, f"row group {group} cannot be read from here on: {failure}")
            return
        if batch is None:
            return
        yield Block(offsets.shard, first, batch.num_rows, batch)
        first += batch.num_rows


def _starts_at(group: pq.RowGroupMetaData) -> int:
    starts = []
    for column in range(group.num_columns):
        chunk = group.column(column)
        starts.append(chunk.dictionary_page_offset or chunk.data_page_offset)
    return min(starts, default=0)


def _broken(offsets: OffsetRange, at: int, reason: str) -> Block:
    return Block(offsets.shard, at, 1, None, {"reason": reason})


@dataclass(frozen=True)
class ParquetDecoder:
    """Picklable decoder of Parquet rows; see `Decoder`. A cast loses nothing but digits beyond microseconds.

    Attributes:
        schema: the columns.
        on_unknown_field: action where a file has a column that the schema does not have.
        lineage: whether offsets are wanted.
        timestamp_formats: by column, for files that hold times as texts, numbers or local times.
    """

    schema: pa.Schema
    on_unknown_field: UnknownField
    lineage: bool
    timestamp_formats: Mapping[str, TimeFormat | None] = attribute(default_factory=dict)

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            return self._unreadable(block)
        batch = block.data
        assert isinstance(batch, pa.RecordBatch)
        columns, bad = self._columns(block, batch)
        offsets = pa.arange(block.start, block.start + batch.num_rows)
        raw = pa.nulls(batch.num_rows, pa.binary())
        if bad:
            shown = {index: row_text(batch, index) for index in bad}
            raw = pa.array([shown.get(index) for index in range(batch.num_rows)], pa.binary())
        records = TextRecords(block.shard, raw, offsets)
        return with_types(select(records, self.schema, columns, bad, lineage=self.lineage), batch.schema)

    def _unreadable(self, block: Block) -> Decoded:
        """The one rejected row of a block without data, with the bytes and context that it had before."""
        reason, text = str(block.detail["reason"]), block.detail.get(TEXT)
        raw = None if text is None else str(text).encode(errors="surrogateescape")
        found = unreadable(block.shard, block.start, reason, self.schema, lineage=self.lineage, raw=raw)
        context = pa.array([block.detail.get(CONTEXT)], pa.string())
        at = found.rejected.schema.get_field_index("context")
        return replace(found, rejected=found.rejected.set_column(at, found.rejected.schema.field(at), context))

    def _columns(self, block: Block, batch: pa.RecordBatch) -> tuple[list[pa.Array], dict[int, str]]:
        """The job's columns, and the rows that do not fit, with their reasons."""
        reason = refused(batch.schema, self.schema)
        unknown = [name for name in batch.schema.names if name not in self.schema.names]
        if unknown and reason is None and self.on_unknown_field is UnknownField.FAIL:
            raise unknown_field_error(block.shard, block.start, unknown[0])
        if unknown and reason is None and self.on_unknown_field is UnknownField.QUARANTINE:
            reason = f"{unknown[0]}: the schema has no such field"
        if reason is not None:
            none = [pa.nulls(batch.num_rows, field.type) for field in self.schema]
            return none, dict.fromkeys(range(batch.num_rows), reason)
        bad = _not_utf8(batch, self.schema)
        if bad:
            # These rows are not cast: Arrow may make anything of texts that are not UTF-8.
            fits = pa.array([index not in bad for index in range(batch.num_rows)], pa.bool_())
            batch = pa.RecordBatch.from_arrays(
                [pc.if_else(fits, column, pa.scalar(None, column.type)) for column in batch.columns],
                schema=batch.schema,
            )
        columns = []
        for field in self.schema:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            converted = _cast(batch.column(at), field, self.timestamp_formats.get(field.name))
            columns.append(converted.values)
            for index, found in converted.bad.items():
                bad.setdefault(index, found)
        return columns, bad

    def halves(self, block: Block) -> Sequence[Block]:
        """See Decoder."""
        return halves_of_batch(block, block.start + block.rows // 2)

    def refuse(self, block: Block, reason: str) -> Decoded:
        """See Decoder."""
        if block.data is None:
            return self.decode(block)
        assert isinstance(block.data, pa.RecordBatch)
        raw = pa.array([row_text(block.data, index) for index in range(block.rows)], pa.binary())
        records = TextRecords(block.shard, raw, pa.arange(block.start, block.start + block.rows))
        refused_rows = refuse_all(records, self.schema, reason, lineage=self.lineage)
        return with_types(refused_rows, block.data.schema)


def _not_utf8(batch: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """Rows with a text that is not UTF-8: a Parquet file can hold it, but no reader could decode it again."""
    bad: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in schema.names and not are_texts(column):
            for index in range(batch.num_rows):
                if not are_texts(column.take(pa.array([index]))):
                    bad.setdefault(index, f"{name}: a text is not UTF-8")
    return bad


def _cast(values: pa.Array, field: pa.Field, written: TimeFormat | None = None) -> Converted:
    """Cast a column to the job's type, with a reason for each value that does not fit."""
    cast, wrong = fitted(values, field.type, written)
    if wrong is None:
        return Converted(cast, {})
    places = positions_of(wrong)
    skipped = _never_shown(values.take(pa.array(places)), field.type, written)
    expected = expected_map(field.type) or (None if written is None else written.expected(field.type))
    bad = {
        at: mismatch(field.name, shown_as(values[at], field.type), field.type, never or expected)
        for at, never in zip(places, skipped, strict=True)
    }
    return Converted(pc.if_else(wrong, pa.scalar(None, field.type), cast), bad)


def _never_shown(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> list[str | None]:
    """For each value that does not fit, the expected value if it is a local time that its zone skipped; else None."""
    if written is None or written.timezone is None:
        return [None] * len(values)
    _, still = fitted(values, kind, replace(written, timezone=None))
    wrong = [False] * len(values) if still is None else still.to_pylist()
    times = f"{article(type_name(kind))} with times" if pa.types.is_nested(kind) else "a time"
    return [None if each else f"{times} that clocks of {written.timezone} showed" for each in wrong]
