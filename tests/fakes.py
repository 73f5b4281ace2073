"""Fakes that keep the real contracts: a source of numbered records, a sink that takes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ingest.sources.base import REJECTED_SCHEMA, Block, Decoded, Grain, SourcePlan
from sinks.base import Lookup, SinkContext, TargetOptions, TaskAttempt
from timeline.epoch import EpochRef, OffsetRange, Part, Position, WriteReport
from timeline.hudi import TableIdentity

NUMBER_SCHEMA = pa.schema([pa.field("number", pa.int64())])

IDENTITY = TableIdentity("0" * 32, "numbers", {"number": "bigint"}, '{"type":"record","name":"r","fields":[]}', ())


@dataclass(frozen=True)
class NumberSource:
    """Shards of consecutive numbers; a record's value is its offset, multiples of `bad_every` are malformed."""

    shards: Mapping[str, int]
    most: int = 1
    bad_every: int = 0

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        ranges = []
        for shard, end in self.shards.items():
            start = after[shard].offset if shard in after else 0
            if start < end:
                ranges.append(OffsetRange(shard, start, min(end, start + self.most)))
        return SourcePlan(tuple(ranges))

    @property
    def grain(self) -> Grain:
        return Grain(smallest=1 << 20, largest=1 << 20, overhead=0)

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        return [offsets]

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        return NUMBER_SCHEMA

    def reader(self) -> NumberReader:
        return NumberReader()

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> NumberDecoder:
        return NumberDecoder(self.bad_every)

    def completed(self, positions: Mapping[str, Position]) -> None: ...


@dataclass(frozen=True)
class NumberReader:
    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        data = [b"%d" % number for number in range(offsets.start, offsets.until)]
        yield Block(offsets.shard, offsets.start, len(data), data)


@dataclass(frozen=True)
class NumberDecoder:
    bad_every: int

    def decode(self, block: Block) -> Decoded:
        numbers = range(block.start, block.start + block.rows)
        bad = [number for number in numbers if self.bad_every and number % self.bad_every == 0]
        good = [number for number in numbers if number not in bad]
        accepted = pa.RecordBatch.from_arrays([pa.array(good, pa.int64())], schema=NUMBER_SCHEMA)
        rejected = [
            {"shard": block.shard, "offset": number, "reason": "a multiple", "raw": b"%d" % number} for number in bad
        ]
        return Decoded(accepted, pa.array(good, pa.int64()), pa.RecordBatch.from_pylist(rejected, REJECTED_SCHEMA))


@dataclass(frozen=True)
class EmptySink:
    """A quarantine for runs without bad rows; it never touches a store."""

    target: str = "quarantine"

    Options = TargetOptions

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> EmptySink:
        return cls()

    def ensure(self) -> None: ...

    def begin(self, epoch: EpochRef) -> EmptyWriter:
        return EmptyWriter()

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        return Part(self.target, epoch, 0, 0)

    def verify(self, part: Part) -> Sequence[str]:
        return ()

    def commit(self, part: Part) -> None:
        assert part.rows == 0

    def lookup(self, epoch: EpochRef) -> Lookup:
        return Lookup.NOT_COMMITTED

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        return ()

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None: ...

    def leftovers(self) -> Sequence[str]:
        return ()


@dataclass(frozen=True)
class EmptyWriter:
    """Writer of an `EmptySink`: rows are an error."""

    def open(self, attempt: TaskAttempt) -> EmptyWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError(f"{batch.num_rows} rows for a sink that takes none")

    def close(self) -> WriteReport:
        return WriteReport(0, 0)

    def abort(self) -> None: ...
