"""Raw records, the input of all decoders: consecutive records of one shard, from any source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.lines import Lines, TextBlock, split_lines


class RawRecords(Protocol):
    """Consecutive records of one shard, each a text that is not decoded yet."""

    @property
    def shard(self) -> str:
        """The shard of the records."""

    @property
    def start(self) -> int:
        """Offset of the first record, or an offset before it."""

    @property
    def rows(self) -> int:
        """Number of records."""

    @property
    def header(self) -> str | None:
        """The header line of CSV records; None without one."""

    @property
    def times_ms(self) -> pa.Array | int | None:
        """Write times in milliseconds since 1970: int64 for each record, or one for all; None where unknown.

        One time for all is not before the last record's write time.
        """

    @property
    def joined(self) -> TextBlock | None:
        r"""The records as lines, each ended by ``\n`` or ``\r\n``, the last one optionally.

        None where a record spans several lines or is empty; then only `texts` separates records.
        """

    @property
    def texts(self) -> pa.Array:
        """Binary, one value a record."""

    @property
    def offsets(self) -> pa.Array:
        """Int64, the offset of each record."""


@dataclass(frozen=True)
class TextRecords:
    """Records that a source reads one by one; see RawRecords.

    Attributes:
        shard: the shard of the records.
        texts: binary, one value a record, none null.
        offsets: int64, the offset of each record.
        times_ms: see RawRecords.
    """

    shard: str
    texts: pa.Array
    offsets: pa.Array
    header: str | None = None
    times_ms: pa.Array | int | None = None

    @property
    def start(self) -> int:
        """See RawRecords."""
        return int(self.offsets[0].as_py()) if len(self.offsets) else 0

    @property
    def rows(self) -> int:
        """See RawRecords."""
        return len(self.texts)

    @cached_property
    def joined(self) -> TextBlock | None:
        """See RawRecords."""
        data = join_lines(self.texts)
        lines = TextBlock.of(data)
        # An empty last record is no line; a line end inside another record would compensate for it in the count.
        is_whole = lines.bounds.rows == len(lines.bounds.starts) == self.rows and not data.endswith(b"\n")
        return lines if is_whole else None


@dataclass(frozen=True)
class LineRecords:
    """Records that are the lines of a block; lines are split when `texts` or `offsets` is read. See RawRecords.

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
        """See RawRecords."""
        return self._lines.texts

    @property
    def offsets(self) -> pa.Array:
        """See RawRecords."""
        return self._lines.offsets

    @cached_property
    def _lines(self) -> Lines:
        return split_lines(self.joined, self.start)


def join_lines(texts: pa.Array) -> bytes:
    """Binary values as lines, the last without a line end."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(lists, b"\n")[0].as_buffer().to_pybytes()  # as_py takes ten times as long
    return joined


class RecordDecoder(Protocol):
    """Picklable decoder of records; `ingest.sources.base.Decoder` is its counterpart for blocks."""

    def decode(self, records: RawRecords) -> Decoded:
        """The rows of records; a record that cannot be decoded is rejected alone, with the reason.

        Raises:
            DataError: a record stops the job because the job file says so.
        """
