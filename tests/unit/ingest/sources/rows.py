"""Shared by tests of the files source: options, whole reads, and the plain definition of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest.sources.base import Block, Decoded
from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from sinks.sql_types import parse_type
from timeline.epoch import OffsetRange, Position

NOW_S = 2_000_000_000.0
"""Long after any file of a test was written."""


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """A schema from Spark's names of types."""
    return pa.schema([(name, parse_type(kind)) for name, kind in columns.items()])


def source_of(
    path: Path | str, *, now_s: float = NOW_S, on_unknown_field: UnknownField = UnknownField.DROP, **options: Any
) -> FilesSource:
    """A source of JSON lines, unless the options have another format.

    Args:
        path: of the source.
        now_s: the source's clock, seconds since 1970.
        on_unknown_field: see `UnknownField`.
        **options: of the source.
    """
    return FilesSource(
        FilesOptions(**{"path": str(path), "format": "json", **options}),
        on_unknown_field=on_unknown_field,
        now=lambda: now_s,
    )


@dataclass
class Reading:
    """A source read epoch by epoch, as the loop does it.

    Attributes:
        after: committed positions.
        lines: offset and bytes of each line that was read, by shard.
    """

    source: FilesSource
    after: dict[str, Position] = field(default_factory=dict)
    lines: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)

    def epoch(self, split: int = 1 << 40) -> int:
        """Plan, read and commit one epoch; the number of its rows."""
        plan = self.source.plan(self.after)
        rows = 0
        for offsets in plan.ranges:
            found = read_lines(self.source, self.source.split(offsets, split))
            self.lines.setdefault(offsets.shard, []).extend(found)
            rows += len(found)
            before = self.after.get(offsets.shard)
            # A new shard begins at 0, or, for an unpacked file, behind the bytes that were read from the archive.
            assert before is None or offsets.start == before.offset
            self.after[offsets.shard] = offsets.end
        return rows

    def all(self) -> None:
        """Run epochs until nothing is left to read."""
        while self.source.plan(self.after).ranges:
            self.epoch()

    def texts(self, shard: str) -> list[bytes]:
        """The lines of one shard, in the order in which they were read."""
        return [line for _, line in self.lines.get(shard, [])]


def read_lines(source: FilesSource, pieces: Sequence[OffsetRange]) -> list[tuple[int, bytes]]:
    """Offset and bytes of every line in these ranges; blocks are checked on the way."""
    found: list[tuple[int, bytes]] = []
    for piece in pieces:
        for block in source.reader().read(piece):
            assert isinstance(block.data, TextBlock)
            lines = plain_lines(block.data.data, block.start)
            assert len(lines) == block.rows
            found += lines
    return found


def plain_lines(data: bytes, start: int = 0) -> list[tuple[int, bytes]]:
    """Lines by definition: without their ends, and without blank lines."""
    found = []
    for line in data.splitlines(keepends=True) if b"\r" not in data else _split_keeping(data):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if text:
            found.append((start, text))
        start += len(line)
    return found


def _split_keeping(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def block_of(data: bytes, start: int = 0, **detail: str) -> Block:
    """A block as the reader makes it."""
    return Block("shard", start, len(plain_lines(data, start)), TextBlock.of(data), detail)


def outcome(decoded: Decoded) -> tuple[list[tuple[int, Any]], list[tuple[int, str, bytes]]]:
    """Accepted rows and rejected rows, each with its offset."""
    assert decoded.offsets is not None
    accepted = list(zip(decoded.offsets.to_pylist(), decoded.accepted.to_pylist(), strict=True))
    rejected = [(row["offset"], row["reason"], row["raw"]) for row in decoded.rejected.to_pylist()]
    return accepted, rejected
