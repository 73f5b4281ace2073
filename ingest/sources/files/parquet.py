"""Parquet files: row groups of a range into record batches, and those into the job's columns.

A row group belongs to the range in which its first page starts; the offset of a row is its index
in the file. A row group that cannot be read further is one rejected row; the others are read.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from ingest.sources.decode.timestamp_columns import outside
from ingest.sources.decode.values import mismatch
from ingest.sources.files.exact_casts import cast_exactly, may_hold_others
from ingest.sources.files.parquet_columns import ENTRY, are_texts, refused, shaped
from ingest.sources.files.parquet_times import converted_times, has_local_times, with_instants
from ingest.sources.files.raw import RawFile, unavailable
from ingest.sources.files.read import locate, range_gone
from ingest.sources.files.shown import plain
from timeline.epoch import OffsetRange

_BATCH_ROWS = 16 * 1024
_BROKEN = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError)
"""What pyarrow raises for a damaged file (thrift errors are OSError)."""


@dataclass(frozen=True)
class ParquetReader:
    """Picklable; see `RangeReader`.

    Attributes:
        fs: the store.
    """

    fs: AbstractFileSystem

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader."""
        path = locate(self.fs, offsets)
        try:
            source = RawFile(self.fs, path)
        except FileNotFoundError as failure:
            raise range_gone(offsets, f"file {path} does not exist any more") from failure
        except OSError as failure:
            unavailable(path, failure)
        with source:
            try:
                # Old timestamps of Spark and Hive (INT96): as nanoseconds, the default, years beyond 2262 wrap around.
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            except _BROKEN as failure:
                source.require_store()
                # One row for the whole file, whatever it is split into.
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
    """Picklable; see `Decoder`. Values are cast as far as nothing but digits beyond microseconds is lost.

    Attributes:
        schema: the columns.
        on_unknown_field: what happens where a file has a column that the schema does not have.
        lineage: whether offsets are wanted.
        timestamp_formats: of columns that a file may have as texts, numbers or local times.
    """

    schema: pa.Schema
    on_unknown_field: UnknownField
    lineage: bool
    timestamp_formats: Mapping[str, TimeFormat | None] = attribute(default_factory=dict)

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            reason, text = str(block.detail["reason"]), block.detail.get(_TEXT)
            raw = None if text is None else str(text).encode()
            return unreadable(block.shard, block.start, reason, self.schema, lineage=self.lineage, raw=raw)
        batch = block.data
        assert isinstance(batch, pa.RecordBatch)
        columns, bad = self._columns(block, batch)
        offsets = pa.arange(block.start, block.start + batch.num_rows)
        raw = pa.nulls(batch.num_rows, pa.binary())
        if bad:
            shown = {index: _row_text(batch, index) for index in bad}
            raw = pa.array([shown.get(index) for index in range(batch.num_rows)], pa.binary())
        return select(TextRecords(block.shard, raw, offsets), self.schema, columns, bad, lineage=self.lineage)

    def _columns(self, block: Block, batch: pa.RecordBatch) -> tuple[list[pa.Array], dict[int, str]]:
        """The job's columns, and the rows that do not fit."""
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
            # Nothing of these rows is cast: what Arrow makes of texts that are none is anything.
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
        raw = pa.array([_row_text(block.data, index) for index in range(block.rows)], pa.binary())
        records = TextRecords(block.shard, raw, pa.arange(block.start, block.start + block.rows))
        return refuse_all(records, self.schema, reason, lineage=self.lineage)


def _not_utf8(batch: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """Rows with a text that is not UTF-8, which a Parquet file can hold and nobody could read again."""
    bad: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in schema.names and not are_texts(column):
            for index in range(batch.num_rows):
                if not are_texts(column.take(pa.array([index]))):
                    bad.setdefault(index, f"{name}: a text is not UTF-8")
    return bad


def _cast(values: pa.Array, field: pa.Field, written: TimeFormat | None = None) -> Converted:
    """The column in the job's type; a value that the type does not hold is named."""
    converted = converted_times(values, field, written)
    if converted is not None:
        return converted
    values = shaped(values, field.type)
    found, never = values, None
    is_local = written is not None and written.timezone is not None
    if has_local_times(values.type, field.type) and (is_local or pa.types.is_nested(field.type)):
        values, never = with_instants(values, field.type, written)
    cast = _cast_together(values, field.type, written)
    wrong = pc.and_(pc.is_null(cast), pc.is_valid(found))
    if pa.types.is_timestamp(field.type):
        wrong = pc.or_(wrong, pc.fill_null(outside(cast), False))
    elif pa.types.is_date(field.type):
        in_range = pc.and_(pc.greater_equal(cast, datetime.date.min), pc.less_equal(cast, datetime.date.max))
        wrong = pc.or_(wrong, pc.invert(pc.fill_null(in_range, True)))
    elif pa.types.is_float32(field.type) and pa.types.is_float64(values.type):
        wrong = pc.or_(wrong, pc.fill_null(pc.and_(pc.is_inf(cast), pc.is_finite(values)), False))
    if never is not None:
        wrong = pc.or_(wrong, pa.array(never))
    expected = None if written is None else written.expected(field.type)
    bad = {at: mismatch(field.name, str(plain(found[at])), field.type, expected) for at in positions_of(wrong)}
    return Converted(pc.if_else(wrong, pa.scalar(None, field.type), cast) if bad else cast, bad)


def _cast_together(values: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    """The values as of this type; null where one cannot be."""
    if values.type == kind and not may_hold_others(kind):
        return values
    try:
        return cast_exactly(values, kind, written)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.concat_arrays([_cast_alone(values.take(pa.array([at])), kind, written) for at in range(len(values))])


def _cast_alone(value: pa.Array, kind: pa.DataType, written: TimeFormat | None) -> pa.Array:
    try:
        return cast_exactly(value, kind, written)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


def rows_again(shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
    """See `ingest.sources.base.Requeue`: each row from its JSON, alone, since the decoder numbers rows by itself."""
    for offset, raw in zip(*(rejected.column(name).to_pylist() for name in ("offset", "raw")), strict=True):
        row = json.loads(raw, object_pairs_hook=_from_json)
        columns = row if isinstance(row, _Twice) else row.items()
        if (name := next(filter(None, (_named_twice(value) for _, value in columns)), None)) is not None:
            reason = f"{name}: two fields of one struct have this name"
            yield Block(shard, offset, 1, None, {"reason": reason, _TEXT: raw.decode()})
            continue
        try:
            values = [pa.array([value]) for _, value in columns]
        except (pa.ArrowException, OverflowError, TypeError) as error:
            # Types that JSON does not tell apart, or numbers that are larger than any of Arrow's.
            reason = f"the row cannot be made of its JSON again: {type(error).__name__}"
            yield Block(shard, offset, 1, None, {"reason": reason, _TEXT: raw.decode()})
            continue
        yield Block(shard, offset, 1, pa.RecordBatch.from_arrays(values, [name for name, _ in columns]))


def _row_text(batch: pa.RecordBatch, index: int) -> bytes:
    """A rejected row as JSON: Parquet has no bytes of one row. A name that is there twice is there twice."""
    return _object(zip(batch.schema.names, (column[index] for column in batch.columns), strict=True)).encode()


def _object(fields: Iterable[tuple[str, pa.Scalar]]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {_text(value)}' for name, value in fields)}}}"


def _text(value: pa.Scalar) -> str:
    if value.is_valid and isinstance(value, pa.MapScalar):
        return f"[{', '.join(_object(zip(ENTRY, entry.values(), strict=True)) for entry in value.values)}]"
    if value.is_valid and isinstance(value, pa.StructScalar):
        return _object(value.items())
    if value.is_valid and isinstance(value, pa.ListScalar):
        return f"[{', '.join(map(_text, value.values))}]"
    return _json(plain(value))


def _json(value: object) -> str:
    return json.dumps(value, default=_as_json, ensure_ascii=False)


_BINARY = "$binary"
_TEXT = "text"
"""Key of a block's detail: the row as JSON, where it is rejected without being read."""


def _as_json(value: object) -> object:
    """What JSON has no word for: bytes in a form that is no text by chance, all else as text that Arrow can cast."""
    return {_BINARY: base64.b64encode(value).decode()} if isinstance(value, bytes) else str(value)


class _Twice(list[tuple[str, object]]):
    """Fields of a JSON object of which two have one name."""


def _from_json(fields: list[tuple[str, object]]) -> object:
    content = dict(fields)
    if len(content) < len(fields):
        return _Twice(fields)
    try:
        return base64.b64decode(str(content[_BINARY]), validate=True) if content.keys() == {_BINARY} else content
    except ValueError:  # a field of the file's own that has this name
        return content


def _named_twice(value: object) -> str | None:
    """The name that an object in this value has twice."""
    if isinstance(value, _Twice):
        names = [name for name, _ in value]
        return next(name for name in names if names.count(name) > 1)
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return next(filter(None, map(_named_twice, inner)), None)
    return None
