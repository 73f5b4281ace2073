"""What a source must do so that an epoch can be planned once and read any number of times.

::

    driver      plan(after) → offset ranges ── split → tasks
    executors   reader().read(range) → blocks ── decoder().decode(block) → accepted + rejected rows

A plan is replayable: the same range gives the same rows, in the same order, or RangeGoneError. No
consumer group and no engine checkpoint decides who reads what: positions live in the timeline.
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
    """What a source's offsets count."""

    BYTES = "bytes"
    RECORDS = "records"


@dataclass(frozen=True)
class SourcePlan:
    """What the source has beyond the committed positions, within the limits.

    Attributes:
        ranges: at most one for each shard, in the order in which they should be read.
        behind: units (bytes, records) that are there beyond these ranges and wait for later epochs.
        behind_shards: shards (files, partitions) that those belong to.
        settles_in_s: seconds until something that is there but not settled (an unterminated last
            line) will count; None when nothing waits for that.
        unit: what offsets count, for people.
    """

    ranges: tuple[OffsetRange, ...]
    behind: int = 0
    behind_shards: int = 0
    settles_in_s: float | None = None
    unit: Unit = Unit.BYTES


@dataclass(frozen=True)
class ShardEnd:
    """How far one shard goes now, and how much of it is left to read.

    Attributes:
        start: the committed offset; of a shard that no epoch has read yet, where it will begin.
        newest: the offset behind the last record that is there; None where the shard is there no more.
        lag: units (bytes, records) behind `start` that can still be read.
        lost: records behind `start` that are gone before they were read.
        note: what a person should know of it; "" where there is nothing to say.
    """

    start: int
    newest: int | None
    lag: int
    lost: Hole | None = None
    note: str = ""


@dataclass(frozen=True)
class SplitSize:
    """How a source's ranges are cut into tasks, in its own units (bytes, records).

    Attributes:
        smallest: below this a piece is not worth a task of its own.
        largest: above this a task is cut, so that a retry repeats little.
        overhead: what a piece costs even if it is empty; without it a thousand tiny ones would end in one task.
    """

    smallest: int
    largest: int
    overhead: int


@dataclass(frozen=True)
class Block:
    """Consecutive records of one shard, as read.

    Attributes:
        shard: whose records.
        start: offset of the first record.
        rows: records in it, counted by the reader without decoding them.
        data: the raw records in the form that this source's decoder takes; None where they cannot be read.
        detail: what the decoder needs to know besides.
    """

    shard: str
    start: int
    rows: int
    data: object
    detail: Mapping[str, Json] = field(default_factory=dict)


def halves_of_batch(block: Block, second: int) -> Sequence[Block]:
    """A block of rows in a record batch as two, each with its own rows only: a slice is pickled with all of them.

    Args:
        block: its data is a record batch with a row for each record.
        second: offset of the record in the middle, with which the second half begins.
    """
    assert isinstance(block.data, pa.RecordBatch)
    middle = block.rows // 2
    first, last = (_copied(part) for part in (block.data.slice(0, middle), block.data.slice(middle)))
    return [replace(block, rows=middle, data=first), replace(block, start=second, rows=block.rows - middle, data=last)]


def _copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """These rows in buffers of their own, without the dictionaries of others."""
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
    """Picklable: reads ranges on an executor."""

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """The range's records in order, in blocks of bounded size.

        Raises:
            RangeGoneError: the range, or part of it, is no longer there.
        """


class Decoder(Protocol):
    """Picklable: turns blocks into rows on an executor."""

    def decode(self, block: Block) -> Decoded:
        """The block's rows; a record that cannot be decoded is rejected alone, with the reason.

        Raises:
            DataError: a record stops the job because the job file says so.
        """

    def halves(self, block: Block) -> Sequence[Block]:
        """The block as two that follow one another; it has at least two rows. Looks into no record."""

    def refuse(self, block: Block, reason: str) -> Decoded:
        """The block's rows, all of them rejected for this reason. Looks into no record."""


class QuarantineDecoder(Protocol):
    """Picklable: brings records that were rejected before back into the blocks that the source's decoder takes."""

    def __call__(self, shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
        """Blocks of these records, in any order.

        Args:
            shard: whose records.
            rejected: ``offset``, ``raw`` and ``context`` of at least one, see `sinks.base.REJECTED_SCHEMA`.
        """


class Source(Protocol):
    """One source of a job, seen from the driver."""

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """What is there beyond the committed positions; reads as little of the data as it can.

        Args:
            after: committed position of every shard seen so far.

        Raises:
            SourceChangedError: a shard shrank or changed below its committed offset.
            SourceError: the source cannot be listed.
        """

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """How far every shard goes now, known ones and new ones; reads no records. For people: nothing is planned.

        What would stop a plan because one shard lost records, or shrank, is told of that shard and raises nothing.

        Args:
            after: committed position of every shard seen so far; each has its entry in the answer.

        Raises:
            SourceChangedError: a shard changed so that it cannot be recognised.
            SourceError: the source cannot be listed.
        """

    @property
    def unit(self) -> Unit:
        """What offsets count, for people."""

    @property
    def split_size(self) -> SplitSize:
        """How large the pieces are that tasks read."""

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
        """What brings rejected records back to the decoder; to send to the executors."""

    def completed(self, positions: Mapping[str, Position]) -> None:
        """Told where the shards of an epoch stand once it is completed; for others to see, never read back.

        Does not raise: what fails here is logged.
        """
