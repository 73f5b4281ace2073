"""A source without storage, for rehearsals of the protocol: the record at offset n is the number n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ingest.sources.base import Block, Decoded, QuarantineDecoder, ShardEnd, SourcePlan, SplitSize, Unit
from sinks.base import REJECTED_SCHEMA
from timeline.epoch import OffsetRange, Position
from timeline.hudi.layout import TableIdentity

NUMBER_SCHEMA = pa.schema([pa.field("number", pa.int64())])
"""Columns of the rows."""

IDENTITY = TableIdentity("0" * 32, "numbers", {"number": "bigint"}, '{"type":"record","name":"r","fields":[]}', ())
"""Identity of a timeline of numbers."""


@dataclass(frozen=True)
class NumberSource:
    """Shards of consecutive numbers. See `ingest.sources.base.Source` for the protocol.

    Attributes:
        shards: for each shard, its count of numbers.
        most: numbers that one epoch takes from a shard at most.
        bad_every: multiples of this number are malformed records; 0: none are.
    """

    shards: Mapping[str, int]
    most: int = 1
    bad_every: int = 0

    @property
    def accepted(self) -> list[int]:
        """Every number that belongs in the table, sorted."""
        return [number for number in self._numbers() if not is_bad(number, self.bad_every)]

    @property
    def rejected(self) -> list[int]:
        """Every number that belongs in the quarantine, sorted."""
        return [number for number in self._numbers() if is_bad(number, self.bad_every)]

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """See Source."""
        ranges = []
        for shard, end in self.shards.items():
            start = after[shard].offset if shard in after else 0
            if start < end:
                ranges.append(OffsetRange(shard, start, min(end, start + self.most)))
        return SourcePlan(tuple(ranges))

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """See Source."""
        starts = {shard: after[shard].offset if shard in after else 0 for shard in self.shards}
        return {shard: ShardEnd(starts[shard], end, end - starts[shard]) for shard, end in self.shards.items()}

    @property
    def unit(self) -> Unit:
        """See Source; a number is a record."""
        return Unit.RECORDS

    @property
    def split_size(self) -> SplitSize:
        """See Source."""
        return SplitSize(smallest=1 << 20, largest=1 << 20, overhead=0)

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        """See Source; ranges are never cut."""
        return [offsets]

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """See Source."""
        return NUMBER_SCHEMA

    def reader(self, schema: pa.Schema | None = None) -> NumberReader:
        """See Source."""
        return NumberReader()

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> NumberDecoder:
        """See Source."""
        return NumberDecoder(self.bad_every)

    def quarantine_decoder(self) -> QuarantineDecoder:
        """See Source."""
        return numbers_again

    def completed(self, positions: Mapping[str, Position]) -> None:
        """See Source."""

    def _numbers(self) -> list[int]:
        return sorted(number for end in self.shards.values() for number in range(end))


@dataclass(frozen=True)
class NumberReader:
    """See `ingest.sources.base.RangeReader`."""

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader; a range is one block."""
        data = [b"%d" % number for number in range(offsets.start, offsets.until)]
        yield Block(offsets.shard, offsets.start, len(data), data)


def numbers_again(shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
    """See `ingest.sources.base.QuarantineDecoder`."""
    for number in rejected.column("offset").to_pylist():
        yield Block(shard, number, 1, b"x")


@dataclass(frozen=True)
class NumberDecoder:
    """See `ingest.sources.base.Decoder`."""

    bad_every: int

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        numbers = range(block.start, block.start + block.rows)
        good = [number for number in numbers if not is_bad(number, self.bad_every)]
        bad = [number for number in numbers if is_bad(number, self.bad_every)]
        return _decoded(block.shard, good, bad, "a multiple")

    def halves(self, block: Block) -> Sequence[Block]:
        """See Decoder; `decode` does not read the data, so both halves keep all of it."""
        middle = block.rows // 2
        return [replace(block, rows=middle), replace(block, start=block.start + middle, rows=block.rows - middle)]

    def refuse(self, block: Block, reason: str) -> Decoded:
        """See Decoder."""
        return _decoded(block.shard, (), range(block.start, block.start + block.rows), reason)


def _decoded(shard: str, good: Sequence[int], bad: Sequence[int], reason: str) -> Decoded:
    accepted = pa.RecordBatch.from_arrays([pa.array(good, pa.int64())], schema=NUMBER_SCHEMA)
    rejected = [{"shard": shard, "offset": number, "reason": reason, "raw": b"%d" % number} for number in bad]
    return Decoded(accepted, pa.array(good, pa.int64()), pa.RecordBatch.from_pylist(rejected, REJECTED_SCHEMA))


def is_bad(number: int, bad_every: int) -> bool:
    """Whether a record is malformed."""
    return bad_every > 0 and number % bad_every == 0
