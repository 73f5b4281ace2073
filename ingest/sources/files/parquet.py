"""Parquet files: row groups of a range into record batches, and those into the job's columns.

A row group belongs to the range in which its first page starts; the offset of a row is its index
in the file. A row group that cannot be read further is one rejected row; the others are read.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from ingest.sources.decode.timestamp_columns import outside
from ingest.sources.decode.values import mismatch
from ingest.sources.files.exact_casts import cast_exactly, may_hold_others
from ingest.sources.files.locate import locate, range_gone
from ingest.sources.files.raw import RawFile, unavailable
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
        if offsets.start == offsets.until:
            return
        path = locate(self.fs, offsets).path
        try:
            source = RawFile(self.fs, path)
        except FileNotFoundError as failure:
            raise range_gone(offsets, f"file {path} does not exist any more") from failure
        except OSError as failure:
            unavailable(path, failure)
        with source:
            try:
                file = pq.ParquetFile(source)
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
    """Picklable; see `Decoder`. Values are cast as far as nothing but digits beyond microseconds is lost."""

    schema: pa.Schema
    on_unknown_field: UnknownField
    lineage: bool

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            return unreadable(block.shard, block.start, str(block.detail["reason"]), self.schema, lineage=self.lineage)
        batch = block.data
        assert isinstance(batch, pa.RecordBatch)
        bad: dict[int, str] = {}
        unknown = [name for name in batch.schema.names if name not in self.schema.names]
        if unknown and self.on_unknown_field is UnknownField.FAIL:
            raise unknown_field_error(block.shard, block.start, unknown[0])
        if unknown and self.on_unknown_field is UnknownField.QUARANTINE:
            bad = dict.fromkeys(range(batch.num_rows), f"{unknown[0]}: the schema has no such field")
        columns = []
        for field in self.schema:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            converted = _cast(batch.column(at), field)
            columns.append(converted.values)
            for index, reason in converted.bad.items():
                bad.setdefault(index, reason)
        offsets = pa.arange(block.start, block.start + batch.num_rows)
        raw = pa.nulls(batch.num_rows, pa.binary())
        if bad:
            shown = {index: _row_text(batch, index) for index in bad}
            raw = pa.array([shown.get(index) for index in range(batch.num_rows)], pa.binary())
        return select(TextRecords(block.shard, raw, offsets), self.schema, columns, bad, lineage=self.lineage)

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


def _cast(values: pa.Array, field: pa.Field) -> Converted:
    """The column in the job's type; a value that the type does not hold is named."""
    values = _with_maps(values, field.type) if _has_map(field.type) else values
    cast = _cast_together(values, field.type)
    wrong = pc.and_(pc.is_null(cast), pc.is_valid(values))
    if pa.types.is_timestamp(field.type):
        wrong = pc.or_(wrong, pc.fill_null(outside(cast), False))
    elif pa.types.is_date(field.type):
        in_range = pc.and_(pc.greater_equal(cast, datetime.date.min), pc.less_equal(cast, datetime.date.max))
        wrong = pc.or_(wrong, pc.invert(pc.fill_null(in_range, True)))
    elif pa.types.is_float32(field.type) and pa.types.is_float64(values.type):
        wrong = pc.or_(wrong, pc.fill_null(pc.and_(pc.is_inf(cast), pc.is_finite(values)), False))
    bad = {at: mismatch(field.name, str(_plain(values[at])), field.type) for at in positions_of(wrong)}
    return Converted(pc.if_else(wrong, pa.scalar(None, field.type), cast) if bad else cast, bad)


def _cast_together(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as of this type; null where one cannot be."""
    if values.type == kind and not may_hold_others(kind):
        return values
    options = pc.CastOptions(kind, allow_time_truncate=True)
    try:
        return cast_exactly(values, kind, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.concat_arrays([_cast_alone(values.take(pa.array([at])), kind, options) for at in range(len(values))])


def _cast_alone(value: pa.Array, kind: pa.DataType, options: pc.CastOptions) -> pa.Array:
    try:
        return cast_exactly(value, kind, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


def _has_map(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(_has_map(kind.field(place).type) for place in range(kind.num_fields))


def _with_maps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of keys and values as maps, wherever the type has a map: so maps come back from the quarantine."""
    if not pa.types.is_nested(values.type) or values.type == kind:
        return values
    values = values.take(pa.arange(0, len(values)))  # a slice's offsets make no list
    missing = values.is_null()
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        kinds = {field.name: field.type for field in kind}
        names = values.type.names
        fields = [
            _with_maps(part, kinds.get(name, part.type)) for name, part in zip(names, values.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(fields, names, mask=missing)
    if not pa.types.is_list(values.type):
        return values
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _with_maps(values.values, kind.value_type), mask=missing)
    if pa.types.is_map(kind):
        entries = values.values
        if not len(entries):
            none = pa.array([], kind.key_type), pa.array([], kind.item_type)
            return pa.MapArray.from_arrays(values.offsets, *none, mask=missing)
        if pa.types.is_struct(entries.type) and entries.type.names == _ENTRY:
            keys, items = entries.flatten()
            if not keys.null_count:
                return pa.MapArray.from_arrays(values.offsets, keys, _with_maps(items, kind.item_type), mask=missing)
    return values


def _plain(value: pa.Scalar) -> object:
    """A value for people; as text where Python has no such value (nanoseconds, years beyond 9999)."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        return [dict(zip(_ENTRY, map(_plain, entry.values()), strict=True)) for entry in value.values]
    if isinstance(value, pa.StructScalar):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, pa.ListScalar):
        return [_plain(each) for each in value.values]
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.string()).as_py()


def rows_again(shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
    """See `ingest.sources.base.Requeue`: each row from its JSON, alone, since the decoder numbers rows by itself."""
    for offset, raw in zip(*(rejected.column(name).to_pylist() for name in ("offset", "raw")), strict=True):
        row = json.loads(raw, object_hook=_from_json)
        yield Block(shard, offset, 1, pa.RecordBatch.from_pylist([row]))


def _row_text(batch: pa.RecordBatch, index: int) -> bytes:
    """A rejected row as JSON: Parquet has no bytes of one row."""
    row = {name: _plain(column[index]) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    return json.dumps(row, default=_as_json, ensure_ascii=False).encode()


_ENTRY = ["key", "value"]
_BINARY = "$binary"


def _as_json(value: object) -> object:
    """What JSON has no word for: bytes in a form that is no text by chance, all else as text that Arrow can cast."""
    return {_BINARY: base64.b64encode(value).decode()} if isinstance(value, bytes) else str(value)


def _from_json(content: dict[str, object]) -> object:
    return base64.b64decode(str(content[_BINARY])) if content.keys() == {_BINARY} else content
