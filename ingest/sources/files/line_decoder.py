"""Decodes the blocks that a line reader makes: their lines are the records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ingest.sources.base import Block, Decoded
from ingest.sources.decode.lines import Lines, split_lines
from ingest.sources.decode.records import RecordDecoder
from ingest.sources.decode.rows import unreadable


@dataclass(frozen=True)
class LineDecoder:
    """Picklable; see `Decoder`.

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
        return self.records.decode(_BlockOfLines(block))


@dataclass(frozen=True)
class _BlockOfLines:
    """A block's lines as `Records`; they are taken apart only where a decoder asks for that."""

    block: Block

    @property
    def shard(self) -> str:
        return self.block.shard

    @property
    def start(self) -> int:
        return self.block.start

    @property
    def rows(self) -> int:
        return self.block.rows

    @property
    def header(self) -> str | None:
        header = self.block.detail.get("header")
        return None if header is None else str(header)

    @property
    def joined(self) -> bytes:
        assert isinstance(self.block.data, bytes)
        return self.block.data

    @property
    def texts(self) -> pa.Array:
        return self._lines.texts

    @property
    def offsets(self) -> pa.Array:
        return self._lines.offsets

    @cached_property
    def _lines(self) -> Lines:
        return split_lines(self.joined, self.block.start)
