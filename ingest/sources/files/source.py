"""Files as a source: shards are files, offsets are bytes (of Parquet rows: row numbers); see `ingest.sources.base`."""

from __future__ import annotations

import contextlib
import csv
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Block, Decoder, QuarantineDecoder, RangeReader, ShardEnd, SourcePlan, SplitSize, Unit
from ingest.sources.decode.csv_header import header_names
from ingest.sources.decode.csv_records import parse_csv
from ingest.sources.decode.decoder import (
    check_timestamp_formats,
    record_decoder,
    time_formats,
    with_formatted_timestamps,
)
from ingest.sources.decode.infer import infer_groups, infer_json, infer_parquet, infer_texts
from ingest.sources.decode.lines import TextBlock, split_lines
from ingest.sources.decode.options import CsvOptions, RecordFormat, UnknownField
from ingest.sources.decode.rows import HEADER, HEADER_FAULT
from ingest.sources.files.contents import Archives, Contents
from ingest.sources.files.line_decoder import LineDecoder, quarantined_lines
from ingest.sources.files.listing import list_files, resolve
from ingest.sources.files.lookup_retry import retry_lookup
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.parquet import ParquetDecoder, ParquetReader
from ingest.sources.files.parquet_restore import quarantined_rows
from ingest.sources.files.plan import first_bytes, plan_files, split_range, waits_for
from ingest.sources.files.read import LineReader
from ingest.sources.files.shards import ReplacedFile, ShardFile, known_paths, match_shards
from ingest.sources.files.vanished import LoggedOnce, VanishedFile, unread
from timeline.epoch import OffsetRange, Position
from timeline.errors import ConfigError, SourceChangedError, SourceError
from timeline.redact import without_credentials, without_secrets
from timeline.units import count

SAMPLE_BYTES = 1_000_000
"""Bytes of a plan, or rows of Parquet, that a schema is inferred from."""


_GONE = "the file is no longer there"


class FilesSource:
    """Append-only files below one path of an fsspec store; see `Source`.

    Args:
        options: the job file's ``source`` block.
        on_unknown_field: action for a record with a field that the schema does not have.
        storage: fsspec options.
        now: the clock that files' times are compared with, seconds since 1970.
    """

    def __init__(
        self,
        options: FilesOptions,
        *,
        on_unknown_field: UnknownField = UnknownField.DROP,
        storage: Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._on_unknown_field = on_unknown_field
        self._storage = dict(storage or {})
        self._now = now
        self._archives = Archives()
        self._told = LoggedOnce()

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """See Source."""
        location = resolve(self._options.path, self._storage)
        return plan_files(location, self._options, after, self._now(), self._archives, self._told)

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """See Source; a file's end is its size, whether or not its last line or the whole file counts yet."""
        look = partial(self._ends, after)
        try:
            return retry_lookup(look, look, SourceChangedError, FileNotFoundError)
        except FileNotFoundError as failure:
            raise SourceError(f"a file vanished while it was looked for: {failure}; look again") from failure
        except (ConfigError, SourceError):
            raise
        except Exception as failure:
            # fsspec passes on any error of the storage's SDK when the storage does not answer.
            where, said = without_credentials(self._options.path), without_secrets(str(failure), self._storage)
            raise SourceError(f"{where} cannot be listed: {said}") from failure

    def _ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        location = resolve(self._options.path, self._storage)
        now_s, files = self._now(), list_files(location, known_paths(after), may_be_missing=True)
        contents = Contents(location.fs, self._archives, self._options.compression_of)
        matched = match_shards(location, files, after, contents, now_s)
        restarts = self._options.on_truncate == "restart"
        torn = {one.shard: _torn_end(one, restarts=restarts) for one in matched.torn}
        stops_at = set() if restarts else {one.file.path for one in matched.torn}
        still = [one for one in matched.shards if one.file.path not in stops_at]
        found = {one.shard: _end_of(one, self._options, now_s) for one in still} | torn
        gone = {shard: ShardEnd(after[shard].offset, None, 0, note=_GONE) for shard in after if shard not in found}
        for one in unread(location, matched.gone, after) if matched.settles_in_s is None else ():
            gone[one.shard] = ShardEnd(one.position.offset, None, 0, note=_unread_note(one, restarts=restarts))
        return found | gone

    @property
    def unit(self) -> Unit:
        """See Source; Parquet is read by row groups but counted in bytes too."""
        return Unit.BYTES

    @property
    def split_size(self) -> SplitSize:
        """See Source; the unit is a byte."""
        return SplitSize(smallest=4 << 20, largest=128 << 20, overhead=4096)

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        """See Source; a compressed file is one piece."""
        return split_range(offsets, most)

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """See Source; samples about a megabyte. A column with a timestamp format of its own is a timestamp."""
        return with_formatted_timestamps(self._infer(plan), self._options)

    def _infer(self, plan: SourcePlan) -> pa.Schema:
        match self._options.format:
            case RecordFormat.TEXT:
                return infer_groups(list(re.compile(self._options.pattern or "").groupindex))
            case RecordFormat.CSV:
                return self._infer_csv(plan)
            case RecordFormat.PARQUET:
                block = next(self._sample(plan), None)
                if block is None or not isinstance(block.data, pa.RecordBatch):
                    raise SourceError(
                        "no schema can be inferred: no Parquet file can be read; write schema in the job file"
                    )
                return infer_parquet(block.data.schema)
            case _:
                blocks = self._sample(plan)
                return infer_json(line for block in blocks for line in split_lines(_text(block), 0).texts.to_pylist())

    def reader(self, schema: pa.Schema | None = None) -> RangeReader:
        """See Source."""
        fs = resolve(self._options.path, self._storage).fs
        if self._options.format is RecordFormat.PARQUET:
            return ParquetReader(fs)
        columns = None if schema is None else frozenset(schema.names)
        return LineReader(fs, header=self._options.csv if self._options.has_header else None, columns=columns)

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> Decoder:
        """See Source.

        Raises:
            ConfigError: see `record_decoder`.
        """
        if self._options.format is RecordFormat.PARQUET:
            check_timestamp_formats(self._options, schema)
            return ParquetDecoder(schema, self._on_unknown_field, lineage, time_formats(self._options, schema))
        records = record_decoder(self._options, schema, self._on_unknown_field, lineage=lineage)
        return LineDecoder(records, schema, lineage)

    def quarantine_decoder(self) -> QuarantineDecoder:
        """See Source."""
        return quarantined_rows if self._options.format is RecordFormat.PARQUET else quarantined_lines

    def completed(self, positions: Mapping[str, Position]) -> None:
        """See Source; does nothing."""

    def _sample(self, plan: SourcePlan) -> Iterator[Block]:
        """Blocks with data from the beginning of the plan, about `SAMPLE_BYTES` of them."""
        reader = self.reader()
        left = SAMPLE_BYTES
        for offsets in first_bytes(plan.ranges, SAMPLE_BYTES):
            for block in reader.read(offsets):
                if block.data is not None:
                    yield block
                    left -= block.rows if isinstance(block.data, pa.RecordBatch) else len(_text(block).data)
                if left <= 0:
                    return

    def _infer_csv(self, plan: SourcePlan) -> pa.Schema:
        dialect = self._options.csv
        found: dict[str, list[pa.Array]] = {}
        faults: dict[str, str] = {}
        for block in self._sample(plan):
            if (fault := block.detail.get(HEADER_FAULT)) is not None:
                faults.setdefault(block.shard, str(fault))
                continue
            lines = split_lines(TextBlock.of(_text(block).data[:SAMPLE_BYTES]), 0).texts
            names = header_names(str(block.detail[HEADER]), dialect) if dialect.header else _numbered(lines, dialect)
            columns, bad = parse_csv(lines, len(names), dialect, self._options.nulls)
            good = pa.array([at not in bad for at in range(len(lines))], pa.bool_())
            for name, column in zip(names, columns, strict=True):
                if not name:
                    continue  # a delimiter that ends the header: no column can have an empty name
                found.setdefault(name, []).append(column.filter(good))
        if not found and faults:
            shard, fault = next(iter(faults.items()))
            raise SourceError(
                f"no schema can be inferred: {shard}: {fault}; correct the file, or write schema in the job file to "
                "have its lines rejected"
            )
        return infer_texts({name: pc.drop_null(pa.concat_arrays(pieces)) for name, pieces in found.items()})


def _numbered(lines: pa.Array, dialect: CsvOptions) -> list[str]:
    """Names for the columns of lines without a header, as many as the first line that is a record has fields."""
    for line in lines:
        with contextlib.suppress(csv.Error):
            return [f"_c{at}" for at in range(len(header_names(line.as_py().decode(errors="replace"), dialect)))]
    return []


def _end_of(one: ShardFile, options: FilesOptions, now_s: float) -> ShardEnd:
    return ShardEnd(one.offset, one.end, max(0, one.end - one.offset), note=waits_for(one, options, now_s))


def _unread_note(gone: VanishedFile, *, restarts: bool) -> str:
    return f"{gone.found}: {'the hole is recorded' if restarts else 'tideline run stops at this file'}"


def _torn_end(torn: ReplacedFile, *, restarts: bool) -> ShardEnd:
    offset, size = torn.position.offset, torn.file.size
    if restarts and not torn.still_begins:
        return ShardEnd(offset, None, 0, note=f"{torn.file.path} {torn.found}: read anew, and the hole is recorded")
    if size >= offset:
        raise torn.error
    return ShardEnd(
        offset,
        size,
        0,
        note=f"no more than {count(size, 'byte')} left of what was read: tideline run stops at this file",
    )


def _text(block: Block) -> TextBlock:
    assert isinstance(block.data, TextBlock)
    return block.data
