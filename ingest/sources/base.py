"""Protocol of a source: an epoch is planned once and can be read any number of times.

::

    driver      plan(after) → offset ranges ── split → tasks
    executors   reader().read(range) → blocks ── decoder().decode(block) → accepted + rejected rows

A plan is replayable: the same range gives the same rows, in the same order, or RangeGoneError.
Neither a consumer group nor an engine checkpoint assigns ranges: positions live in the timeline.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from sinks.base import Json
from timeline.epoch import OffsetRange, Position
from timeline.holes import Hole


class Unit(enum.Enum):
    """Unit of a source's offsets."""

    BYTES = "bytes"
    RECORDS = "records"
    EPOCHS = "epochs"
    """Of a quarantine that is replayed."""


@dataclass(frozen=True)
class SourcePlan:
    """Ranges beyond the committed positions, within an epoch's limits.

    Attributes:
        ranges: at most one per shard, in the order in which they should be read.
        behind: units (bytes, records) beyond these ranges, left for later epochs.
        behind_shards: number of shards (files, partitions) that those units belong to.
        settles_in_s: seconds until unsettled data (an unterminated last line) counts; None where
            there is none.
        unit: unit of offsets, for messages.
    """

    ranges: tuple[OffsetRange, ...]
    behind: int = 0
    behind_shards: int = 0
    settles_in_s: float | None = None
    unit: Unit = Unit.BYTES


@dataclass(frozen=True)
class ShardEnd:
    """A shard's current end, and how much of it is left to read.

    Attributes:
        start: the committed offset; for a shard that no epoch has read yet, the offset to begin at.
        newest: the offset after the last record; None where the shard no longer exists.
        lag: units (bytes, records) after `start` that can still be read.
        lost: records after `start` that were lost before they were read.
        note: human-readable remark; "" where there is none.
    """

    start: int
    newest: int | None
    lag: int
    lost: Hole | None = None
    note: str = ""


@dataclass(frozen=True)
class SplitSize:
    """Limits for cutting ranges into tasks, in the source's units (bytes, records).

    Attributes:
        smallest: below this a piece is not worth a task of its own.
        largest: above this a task is cut, so that a retry repeats little.
        overhead: cost of an empty piece; without it a thousand tiny pieces would end up in one task.
    """

    smallest: int
    largest: int
    overhead: int


@dataclass(frozen=True)
class Block:
    """Consecutive records of one shard, as read.

    Attributes:
        shard: the records' shard.
        start: offset of the first record.
        rows: number of records, counted by the reader without decoding them.
        data: the raw records in the form that this source's decoder takes; None where they cannot be read.
        detail: further input of the decoder.
    """

    shard: str
    start: int
    rows: int
    data: object
    detail: Mapping[str, Json] = field(default_factory=dict)


def halves_of_batch(block: Block, second: int) -> Sequence[Block]:
    """Split a block of a record batch into two, each with copies of its rows: a pickled slice carries all rows.

    Args:
        block: its data is a record batch, one row per record.
        second: offset of the first record of the second half.
    """
    assert isinstance(block.data, pa.RecordBatch)
    middle = block.rows // 2
    first, last = (_copied(part) for part in (block.data.slice(0, middle), block.data.slice(middle)))
    return [replace(block, rows=middle, data=first), replace(block, start=second, rows=block.rows - middle, data=last)]


def _copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Copy rows into buffers of their own; dictionary columns are decoded."""
    whole = rows.take(pa.arange(0, rows.num_rows))
    is_coded = [pa.types.is_dictionary(column.type) for column in whole.columns]
    columns = [
        column.dictionary_decode() if coded else column for column, coded in zip(whole.columns, is_coded, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, whole.schema.names) if any(is_coded) else whole


@dataclass(frozen=True)
class Decoded:
    """A block's rows, each either accepted or rejected: ``accepted.num_rows + rejected.num_rows == block.rows``.

    Attributes:
        accepted: rows in the job's schema.
        offsets: int64, the offset of each accepted row; None unless the decoder was asked for lineage.
        rejected: rows in `sinks.base.REJECTED_SCHEMA`.
    """

    accepted: pa.RecordBatch
    offsets: pa.Array | None
    rejected: pa.RecordBatch


class RangeReader(Protocol):
    """Picklable reader of ranges, for executors."""

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """The range's records in order, in blocks of bounded size.

        Raises:
            RangeGoneError: the range, or part of it, no longer exists.
        """


class Decoder(Protocol):
    """Picklable decoder of blocks into rows, for executors."""

    def decode(self, block: Block) -> Decoded:
        """The block's rows; a record that cannot be decoded is rejected alone, with the reason.

        Raises:
            DataError: a record stops the job because the job file says so.
        """

    def halves(self, block: Block) -> Sequence[Block]:
        """Split a block of at least two rows into two consecutive blocks, without decoding records."""

    def refuse(self, block: Block, reason: str) -> Decoded:
        """Reject all rows of the block for one reason, without decoding records."""


class QuarantineDecoder(Protocol):
    """Picklable function that turns rejected records back into blocks for the source's decoder."""

    def __call__(self, shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
        """Blocks of these records, in any order.

        Args:
            shard: the records' shard.
            rejected: ``offset``, ``raw`` and ``context`` of at least one record, see `sinks.base.REJECTED_SCHEMA`.
        """


class Source(Protocol):
    """A job's source, as the driver uses it."""

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """Plan ranges beyond the committed positions; reads as little of the data as possible.

        Args:
            after: committed position of every shard seen so far.

        Raises:
            SourceChangedError: a shard shrank or changed below its committed offset.
            SourceError: the source cannot be listed.
        """

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """Current end of every shard, known or new, for reports; reads no records and plans nothing.

        A shard that lost records, or shrank, would stop a plan; here its `ShardEnd` reports it and raises nothing.

        Args:
            after: committed position of every shard seen so far; each has an entry in the result.

        Raises:
            SourceChangedError: a shard changed so that it cannot be recognised.
            SourceError: the source cannot be listed.
        """

    @property
    def unit(self) -> Unit:
        """Unit of offsets, for messages."""

    @property
    def split_size(self) -> SplitSize:
        """Size limits of the pieces that tasks read."""

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        """Cut a range into consecutive pieces of about `most` units, where its records allow that."""

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """A schema for the records at the beginning of the plan, from a bounded sample.

        Raises:
            SourceError: nothing in the sample can be decoded.
        """

    def reader(self, schema: pa.Schema | None = None) -> RangeReader:
        """A reader to send to the executors.

        Args:
            schema: the columns that its blocks are decoded to; None where they are not known yet.
        """

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> Decoder:
        """A decoder to send to the executors.

        Args:
            schema: the columns to decode, in order.
            lineage: whether accepted rows come with their offsets.
        """

    def quarantine_decoder(self) -> QuarantineDecoder:
        """A `QuarantineDecoder` to send to the executors."""

    def completed(self, positions: Mapping[str, Position]) -> None:
        """Publish the positions of a completed epoch's shards to external tools; they are never read back.

        Does not raise: failures are logged.
        """
