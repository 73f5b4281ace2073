"""Decoder of a line reader's blocks, one record per line, and of quarantined lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Block, Decoded, halves_of_batch
from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.records import LineRecords, RawRecords, RecordDecoder, TextRecords
from ingest.sources.decode.rows import HEADER, HEADER_FAULT, refuse_all, unreadable
from ingest.sources.files.read import MTIME


@dataclass(frozen=True)
class LineDecoder:
    """Picklable decoder of lines; see `Decoder`. A block's data is text, or the lines of `quarantined_lines`.

    Attributes:
        records: decodes the lines.
        schema: the columns.
        lineage: whether offsets are wanted.
    """

    records: RecordDecoder
    schema: pa.Schema
    lineage: bool

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            reason = str(block.detail["reason"])
            return unreadable(block.shard, block.start, reason, self.schema, lineage=self.lineage)
        if (fault := block.detail.get(HEADER_FAULT)) is not None:
            return self.refuse(block, str(fault))
        return _with_context(self.records.decode(_records_of(block)), block)

    def halves(self, block: Block) -> Sequence[Block]:
        """See Decoder."""
        middle = block.rows // 2
        if isinstance(block.data, pa.RecordBatch):
            return halves_of_batch(block, int(block.data.column("offset")[middle].as_py()))
        assert isinstance(block.data, TextBlock)
        bounds = block.data.bounds
        cut = int(bounds.starts[bounds.starts < bounds.ends][middle])
        texts = TextBlock.of(block.data.data[:cut]), TextBlock.of(block.data.data[cut:])
        starts = block.start, block.start + cut
        return [
            replace(block, start=start, rows=text.bounds.rows, data=text)
            for start, text in zip(starts, texts, strict=True)
        ]

    def refuse(self, block: Block, reason: str) -> Decoded:
        """See Decoder."""
        return _with_context(refuse_all(_records_of(block), self.schema, reason, lineage=self.lineage), block)


def _records_of(block: Block) -> RawRecords:
    header, times_ms = _header_of(block), _time_of(block)
    if isinstance(block.data, pa.RecordBatch):
        texts, offsets = block.data.column("raw"), block.data.column("offset")
        return TextRecords(block.shard, texts, offsets, header, times_ms)
    assert isinstance(block.data, TextBlock)
    return LineRecords(block.shard, block.start, block.rows, block.data, header, times_ms)


def _header_of(block: Block) -> str | None:
    header = block.detail.get(HEADER)
    return None if header is None else str(header)


def _time_of(block: Block) -> int | None:
    """Modification time of the block's file when the range was planned, milliseconds since 1970."""
    mtime_s = block.detail.get(MTIME)
    return int(mtime_s * 1000) if isinstance(mtime_s, int | float) else None


def _with_context(found: Decoded, block: Block) -> Decoded:
    """Add the block's detail to its rejected lines, so that they can be decoded again."""
    if not found.rejected.num_rows or not block.detail:
        return found
    context = pa.repeat(json.dumps(dict(block.detail), ensure_ascii=False), found.rejected.num_rows)
    at = found.rejected.schema.get_field_index("context")
    return replace(found, rejected=found.rejected.set_column(at, found.rejected.schema.field(at), context))


def quarantined_lines(shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
    """See `ingest.sources.base.QuarantineDecoder`; lines of one file and epoch are one block."""
    headers = pc.fill_null(rejected.column("context"), "{}")
    for context in pc.unique(headers).to_pylist():
        lines = rejected.filter(pc.equal(headers, context)).select(["offset", "raw"])
        yield Block(shard, int(lines.column("offset")[0].as_py()), lines.num_rows, lines, json.loads(context))
