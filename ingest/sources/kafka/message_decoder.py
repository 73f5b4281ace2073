"""Decodes messages: their values in the job's format, and Kafka's metadata as further columns.

Records that can be judged without decoding their value are set aside first (no value, a key that is no
text, a time that no column holds); the others go through the decoder that all sources share, together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Block, Decoded, halves_of_batch
from ingest.sources.decode.lines import as_text, positions_of
from ingest.sources.decode.options import RecordFormat, YearOf
from ingest.sources.decode.records import RecordDecoder, TextRecords
from ingest.sources.decode.rows import refuse_all, rejects
from ingest.sources.decode.timestamps import FIRST_MICROS, LAST_MICROS
from ingest.sources.kafka.messages import UNREADABLE, contexts_of, restore_messages
from ingest.sources.kafka.options import KafkaColumns, KafkaOptions, Tombstones
from ingest.sources.kafka.shards import Shard

_MICROS_PER_MS = 1000


@dataclass(frozen=True)
class MessageDecoder:
    """Picklable; see `Decoder`. Decodes blocks of `KafkaReader`.

    Attributes:
        values: the decoder of values, with lineage.
        schema: the job's columns: columns of the values, then metadata columns.
        options: the job file's ``source`` block.
        lineage: whether offsets are wanted.
    """

    values: RecordDecoder
    schema: pa.Schema
    options: KafkaOptions
    lineage: bool

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        batch = block.data
        assert isinstance(batch, pa.RecordBatch)
        values, offsets = batch.column("value"), batch.column("offset")
        added = add_columns(batch, self.options.columns, Shard.parse(block.shard))
        bad, blank = dict(added.bad), pa.nulls(0, pa.int64())
        if values.null_count and self.options.tombstones is Tombstones.ROW:
            blank = _without(pc.indices_nonzero(pc.is_null(values)).cast(pa.int64()), bad)
        elif values.null_count:
            bad |= dict.fromkeys(positions_of(pc.is_null(values)), "no value: a tombstone")
        if self.options.format is RecordFormat.CSV:
            bad |= dict.fromkeys(positions_of(pc.equal(pc.binary_length(values), 0)), "an empty value")

        texts = values if self.options.format is RecordFormat.RAW else without_line_end(values)
        times = batch.column("time_ms") if self.options.year is YearOf.MESSAGE else None
        records = TextRecords(block.shard, texts, offsets, times_ms=times)
        if bad or len(blank):
            there = _without(pc.indices_nonzero(pc.is_valid(values)).cast(pa.int64()), bad)
            times = None if times is None else times.take(there)
            records = TextRecords(block.shard, texts.take(there), offsets.take(there), times_ms=times)
        found = self.values.decode(records)
        accepted = self._accepted(found, blank, added.columns, offsets)
        rejected = _rejected(found, bad, block.shard, batch)
        return Decoded(accepted[0], accepted[1] if self.lineage else None, rejected)

    def halves(self, block: Block) -> Sequence[Block]:
        """See Decoder."""
        assert isinstance(block.data, pa.RecordBatch)
        return halves_of_batch(block, int(block.data.column("offset")[block.rows // 2].as_py()))

    def refuse(self, block: Block, reason: str) -> Decoded:
        """See Decoder."""
        batch = block.data
        assert isinstance(batch, pa.RecordBatch)
        values, offsets = batch.column("value"), batch.column("offset")
        records = TextRecords(block.shard, values, offsets)
        nothing = refuse_all(records, self.schema, reason, lineage=self.lineage)
        rejected = rejects(block.shard, offsets, [reason] * block.rows, values, contexts_of(batch))
        return replace(nothing, rejected=rejected)

    def _accepted(
        self, found: Decoded, blank: pa.Array, added: list[pa.Array], offsets: pa.Array
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """Accepted rows with their offsets, in the order of the records.

        Args:
            found: the decoded values.
            blank: indices of tombstones that become rows.
            added: the metadata columns, one value for each record.
            offsets: offset of each record.
        """
        columns = found.accepted.columns
        if len(blank) == 0 and found.accepted.num_rows == len(offsets):
            return pa.RecordBatch.from_arrays([*columns, *added], schema=self.schema), offsets
        at = pc.index_in(found.offsets, value_set=offsets).cast(pa.int64())
        if len(blank):
            at = pa.concat_arrays([at, blank])
            order = pc.sort_indices(at)
            at = at.take(order)
            columns = [pa.concat_arrays([each, pa.nulls(len(blank), each.type)]).take(order) for each in columns]
        rows = pa.RecordBatch.from_arrays([*columns, *(each.take(at) for each in added)], schema=self.schema)
        return rows, offsets.take(at)


def restore_records(shard: str, rejected: pa.RecordBatch, options: KafkaOptions) -> Iterator[Block]:
    """See `ingest.sources.base.QuarantineDecoder`; `options` are the job's current options."""
    messages = restore_messages(rejected, options.columns, times=options.needs_times)
    yield Block(shard, int(messages.column("offset")[0].as_py()), messages.num_rows, messages)


@dataclass(frozen=True)
class AddedColumns:
    """Metadata columns, one value for each record.

    Attributes:
        columns: in the order of the job's columns.
        bad: index and reason of records with metadata that no column holds.
    """

    columns: list[pa.Array]
    bad: dict[int, str] = field(default_factory=dict)


def add_columns(batch: pa.RecordBatch, wanted: KafkaColumns, shard: Shard) -> AddedColumns:
    """The metadata columns of a job.

    Args:
        batch: see `message_batch`.
        wanted: the columns.
        shard: the records' shard.
    """
    columns: list[pa.Array] = []
    bad: dict[int, str] = {}
    for name in wanted.names:
        match name:
            case "key":
                keys = batch.column("key")
                texts = as_text(pc.fill_null(keys, b""))
                bad |= {index: f"key: {reason}" for index, reason in texts.bad.items()}
                columns.append(pc.if_else(pc.is_valid(keys), texts.texts, pa.scalar(None, pa.string())))
            case "key_bytes":
                columns.append(batch.column("key"))
            case "timestamp":
                times, outside = _timestamps(batch.column("time_ms"))
                bad |= outside
                columns.append(times)
            case "headers":
                columns.append(batch.column("headers"))
                unreadable = positions_of(batch.column(UNREADABLE))
                bad |= dict.fromkeys(unreadable, "headers: the name of one is not UTF-8")
            case "topic":
                columns.append(pa.repeat(pa.scalar(shard.partition.topic), batch.num_rows))
            case "partition":
                columns.append(pa.repeat(pa.scalar(shard.partition.number, pa.int32()), batch.num_rows))
            case _:
                columns.append(batch.column("offset"))
    return AddedColumns(columns, bad)


def without_line_end(values: pa.Array) -> pa.Array:
    """Values without the one line end that some producers append to each."""
    ended = pc.ends_with(values, pattern="\n")
    if not pc.any(ended).as_py():
        return values
    longer = pc.ends_with(values, pattern="\r\n")
    return pc.if_else(longer, pc.binary_slice(values, 0, -2), pc.if_else(ended, pc.binary_slice(values, 0, -1), values))


def _timestamps(times_ms: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    first, last = FIRST_MICROS // _MICROS_PER_MS, LAST_MICROS // _MICROS_PER_MS
    outside = pc.or_(pc.less(times_ms, first), pc.greater(times_ms, last))
    bad = {
        index: f"timestamp: {times_ms[index].as_py()} ms since 1970 is not in the years 1 to 9999"
        for index in positions_of(outside)
    }
    inside = pc.if_else(outside, pa.scalar(None, pa.int64()), times_ms) if bad else times_ms
    return pc.multiply(inside, _MICROS_PER_MS).cast(KafkaColumns.TYPES["timestamp"]), bad


def _rejected(found: Decoded, bad: dict[int, str], shard: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rejected rows in the order of the records, with their original values."""
    refused = found.rejected
    if not bad and not refused.num_rows:
        return refused
    offsets = batch.column("offset")
    at = pa.concat_arrays(
        [pc.index_in(refused.column("offset"), value_set=offsets).cast(pa.int64()), pa.array(list(bad), pa.int64())]
    )
    reasons = pa.concat_arrays([refused.column("reason"), pa.array(list(bad.values()), pa.string())])
    order = pc.sort_indices(at)
    at = at.take(order)
    refused_batch = batch.take(at)
    values = refused_batch.column("value")
    return rejects(
        shard, refused_batch.column("offset"), reasons.take(order).to_pylist(), values, contexts_of(refused_batch)
    )


def _without(indices: pa.Array, bad: dict[int, str]) -> pa.Array:
    return indices.filter(pc.invert(pc.is_in(indices, value_set=pa.array(list(bad), pa.int64())))) if bad else indices
