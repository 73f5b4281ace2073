"""What the decoders of all sources take: consecutive raw records of one shard, wherever they were read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.lines import Lines, TextBlock, split_lines


class Records(Protocol):
    """Consecutive records of one shard, each a text that is not decoded yet."""

    @property
    def shard(self) -> str:
        """Whose records."""

    @property
    def start(self) -> int:
        """Offset of the first record, or one before it."""

    @property
    def rows(self) -> int:
        """How many records."""

    @property
    def header(self) -> str | None:
        """The line that names the columns, where CSV records have one."""

    @property
    def times_ms(self) -> pa.Array | int | None:
        """When they were written, milliseconds since 1970: int64 of each, or one for all; None where that is not known.

        For all it is when the last one was written, or later.
        """

    @property
    def joined(self) -> TextBlock | None:
        r"""The records as lines, each ended by ``\n`` or ``\r\n`` but perhaps the last.

        None where a record runs over several lines, or is none; then only `texts` tells records apart.
        """

    @property
    def texts(self) -> pa.Array:
        """Binary, one value a record."""

    @property
    def offsets(self) -> pa.Array:
        """Int64, the offset of each record."""


@dataclass(frozen=True)
class TextRecords:
    """Records that are apart already; see Records.

    Attributes:
        shard: whose records.
        texts: binary, one value a record, none null.
        offsets: int64, the offset of each record.
        times_ms: see Records.
    """

    shard: str
    texts: pa.Array
    offsets: pa.Array
    header: str | None = None
    times_ms: pa.Array | int | None = None

    @property
    def start(self) -> int:
        """See Records."""
        return int(self.offsets[0].as_py()) if len(self.offsets) else 0

    @property
    def rows(self) -> int:
        """See Records."""
        return len(self.texts)

    @cached_property
    def joined(self) -> TextBlock | None:
        """See Records."""
        data = join_lines(self.texts)
        lines = TextBlock.of(data)
        # An empty line at the end would not be counted, and one that a record has inside would make up for it.
        is_whole = lines.bounds.rows == len(lines.bounds.starts) == self.rows and not data.endswith(b"\n")
        return lines if is_whole else None


@dataclass(frozen=True)
class LineRecords:
    """Records that are the lines of a block; lines are split when `texts` or `offsets` is read. See Records.

    Attributes:
        shard: the shard of the block.
        start: offset of the block's first byte.
        rows: number of lines that are not blank.
        joined: the lines.
    """

    shard: str
    start: int
    rows: int
    joined: TextBlock
    header: str | None = None
    times_ms: pa.Array | int | None = None

    @property
    def texts(self) -> pa.Array:
        """See Records."""
        return self._lines.texts

    @property
    def offsets(self) -> pa.Array:
        """See Records."""
        return self._lines.offsets

    @cached_property
    def _lines(self) -> Lines:
        return split_lines(self.joined, self.start)


def join_lines(texts: pa.Array) -> bytes:
    """Binary values as lines, without an end after the last."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(lists, b"\n")[0].as_buffer().to_pybytes()  # as_py takes ten times as long
    return joined


class RecordDecoder(Protocol):
    """Picklable: turns records into rows; what `ingest.sources.base.Decoder` is for blocks."""

    def decode(self, records: Records) -> Decoded:
        """Their rows; a record that cannot be decoded is rejected alone, with the reason.

        Raises:
            DataError: a record stops the job because the job file says so.
        """
