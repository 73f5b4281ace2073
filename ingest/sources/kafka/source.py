"""Kafka topics as a source: shards are partitions, offsets are Kafka's; see `ingest.sources.base`."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ingest.sources.base import Block, Decoder, QuarantineDecoder, RangeReader, ShardEnd, SourcePlan, SplitSize, Unit
from ingest.sources.decode.decoder import record_decoder, with_formatted_timestamps
from ingest.sources.decode.infer import infer_groups, infer_json
from ingest.sources.decode.options import RecordFormat, UnknownField
from ingest.sources.decode.raw_records import RAW_SCHEMA
from ingest.sources.kafka.brokers import Brokers
from ingest.sources.kafka.message_decoder import MessageDecoder, restore_records
from ingest.sources.kafka.options import FromTime, KafkaOptions
from ingest.sources.kafka.plan import begin, doubtful, go_on, loss_error, plan_ranges
from ingest.sources.kafka.reader import KafkaReader
from ingest.sources.kafka.shards import KafkaPosition, Log, Partition, Shard, Stretch, current_shards
from timeline.epoch import OffsetRange, Position
from timeline.errors import ConfigError, RangeGoneError, SourceError
from timeline.holes import first_there

log = logging.getLogger(__name__)

SAMPLE_BYTES = 1_000_000
"""Bytes of a plan from which a schema is inferred."""

_SAMPLE_RECORDS = 100
_SAMPLED_PARTITIONS = 4
_LARGEST_RECORD_BYTES = 1_000_000
"""The default limit of brokers; assumed for topics of unknown record size."""

_USUAL_RECORD_BYTES = 500


class KafkaSource:
    """The topics of a job; see `Source`. Offsets come from the timeline alone, no consumer group is joined.

    Args:
        options: the job file's ``source`` block.
        on_unknown_field: treatment of a record with a field that the schema does not have.
        accept_loss: continue behind lost records, with a hole in the plan.
    """

    def __init__(
        self,
        options: KafkaOptions,
        *,
        on_unknown_field: UnknownField = UnknownField.DROP,
        accept_loss: bool = False,
    ) -> None:
        self.options = options
        self._on_unknown_field = on_unknown_field
        self._accept_loss = accept_loss
        self._logs: Mapping[Partition, Log] = {}
        self._record_bytes: dict[str, int] = {}
        self._uncut: dict[Partition, tuple[int, int | None]] = {}

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """See Source.

        Raises:
            ConfigError: librdkafka refuses the job's options.
            RangeGoneError: retention ran past a committed position, and loss is not accepted.
            SourceChangedError: a topic was deleted or recreated, or a log truncated, and loss is not accepted.
            SourceError: the brokers refuse the job or do not answer, a named topic is missing that the timeline does
                not know, or a start offset is not in its log.
        """
        stretches = self._stretches(after)
        lost = loss_error(stretches)
        if lost is not None and not self._accept_loss:
            raise lost
        for stretch in stretches:
            if stretch.hole is not None:
                log.warning("shard %s goes on behind a loss: %s", stretch.shard, stretch.hole)
        self._estimate(stretches)
        usual = _mean(self._record_bytes.values())
        sizes = {at.topic: self._record_bytes.get(at.topic, usual) for at in self._logs}
        return plan_ranges(stretches, self.options, sizes)

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """See Source; a log's end is behind its last settled record, as readers of committed transactions see it.

        Raises:
            ConfigError: librdkafka refuses the job's options.
            SourceError: see `plan`.
        """
        stretches = self._stretches(after)
        held_back = self._brokers.held_back(self._logs)
        found = {str(one.shard): _end_of(one, held_back.get(one.shard.partition, 0)) for one in stretches}
        return found | {shard: _without_log(position) for shard, position in after.items() if shard not in found}

    def _stretches(self, after: Mapping[str, Position]) -> list[Stretch]:
        """The current stretch of each shard, with or without lost records."""
        self._logs = self._brokers.logs(self._expected_topics(after))
        self._require_named_topics(after)
        if after:
            return go_on(self.options, self._logs, after, self._cuts(after))
        start = self.options.start
        at_time = self._brokers.offsets_at(self._logs, start.time_ms) if isinstance(start, FromTime) else {}
        return begin(self.options, self._logs, at_time)

    @property
    def unit(self) -> Unit:
        """See Source."""
        return Unit.RECORDS

    @property
    def split_size(self) -> SplitSize:
        """See Source; the unit is a record, of the mean size in the latest plans."""
        size = _mean(self._record_bytes.values()) or _USUAL_RECORD_BYTES
        return SplitSize(
            smallest=max(1, (4 << 20) // size), largest=max(1, (128 << 20) // size), overhead=max(1, 4096 // size)
        )

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        """See Source; Kafka reads from any offset on."""
        first = first_there(offsets)
        size = offsets.until - first
        pieces = max(1, -(-size // most))
        cuts = [first + size * number // pieces for number in range(1, pieces)]
        return [
            replace(offsets, start=start, until=until)
            for start, until in itertools.pairwise([offsets.start, *cuts, offsets.until])
        ]

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """See Source; reads about a megabyte, of earlier records where the plan is empty."""
        schema = with_formatted_timestamps(self._infer(plan), self.options)
        taken = set(map(str.lower, schema.names)) & set(map(str.lower, self.options.added_columns.names))
        if taken:
            raise SourceError(
                f"no schema can be inferred: records have {', '.join(sorted(taken))}, and so does source.columns; give "
                "the columns there other names"
            )
        return pa.schema([*schema, *self.options.added_columns])

    def reader(self, schema: pa.Schema | None = None) -> RangeReader:
        """See Source; reading does not depend on the columns."""
        return KafkaReader(self.options)

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> Decoder:
        """See Source.

        Raises:
            ConfigError: the columns of `source.columns` are not the last ones of the timeline; or see `record_decoder`.
        """
        added = self.options.added_columns
        ours = len(schema) - len(added)
        if ours < 0 or not pa.schema(list(schema)[ours:]).equals(added):
            raise ConfigError(
                f"source.columns: the timeline's columns are {', '.join(schema.names)}, and {', '.join(added.names)} "
                "are not the last of them; a timeline keeps its columns, so start another one"
            )
        values = record_decoder(self.options, pa.schema(list(schema)[:ours]), self._on_unknown_field, lineage=True)
        return MessageDecoder(values, schema, self.options, lineage)

    def quarantine_decoder(self) -> QuarantineDecoder:
        """See Source."""
        return partial(restore_records, options=self.options)

    def completed(self, positions: Mapping[str, Position]) -> None:
        """See Source; publishes the offsets to the group that the job file names."""
        group = self.options.publish_offsets_to
        offsets = {
            partition: positions[str(shard)].offset
            for partition, shard in current_shards(positions).items()
            if not KafkaPosition.of(positions[str(shard)].detail).is_ended
        }
        if group is None or not offsets:
            return
        try:
            self._brokers.publish(group, offsets)
        except SourceError as error:
            log.warning("offsets are not published to group %s: %s", group, error)

    @functools.cached_property
    def _brokers(self) -> Brokers:
        """One connection for the whole run, made by the first plan."""
        return Brokers(self.options)

    def _expected_topics(self, after: Mapping[str, Position]) -> set[str]:
        """Topics that must exist: topics being read, and topics that the job names and the timeline does not know."""
        shards = current_shards(after)
        live = {at.topic for at, shard in shards.items() if not KafkaPosition.of(after[str(shard)].detail).is_ended}
        seen = {at.topic for at in shards}
        return {topic for topic in live if self.options.wants(topic)} | set(self.options.topics) - seen

    def _require_named_topics(self, after: Mapping[str, Position]) -> None:
        """Refuse a missing topic that the timeline does not know; a deleted topic is a loss and reported as one."""
        there = {at.topic for at in (*self._logs, *current_shards(after))}
        missing = [topic for topic in self.options.topics if topic not in there]
        if missing:
            raise SourceError(
                f"brokers {self.options.bootstrap_servers} have no topic {', '.join(missing)}; create it, or correct "
                "source.topics"
            )

    def _cuts(self, after: Mapping[str, Position]) -> dict[Partition, int]:
        """See `Brokers.cuts`; an intact log is not checked again until its position or leader epoch changes."""
        asked = {
            at: position
            for at, position in doubtful(self._logs, after).items()
            if self._uncut.get(at) != (position[0], self._logs[at].leader_epoch)
        }
        cuts = self._brokers.cuts(asked)
        self._uncut |= {at: (asked[at][0], self._logs[at].leader_epoch) for at in asked.keys() - cuts.keys()}
        return cuts

    def _estimate(self, stretches: Sequence[Stretch]) -> None:
        """Sample some records' sizes where the limit in bytes may bind; offsets do not show sizes."""
        expected = sum(
            stretch.records * self._record_bytes.get(stretch.shard.partition.topic, _LARGEST_RECORD_BYTES)
            for stretch in stretches
        )
        if 2 * expected < self.options.max_bytes_per_epoch:
            return
        unknown_first = sorted(
            stretches, key=lambda stretch: (stretch.shard.partition.topic in self._record_bytes, -stretch.records)
        )
        found: dict[str, list[int]] = {}
        for stretch in unknown_first[:_SAMPLED_PARTITIONS]:
            size = self._sampled_record_bytes(stretch)
            if size is not None:
                found.setdefault(stretch.shard.partition.topic, []).append(size)
        self._record_bytes |= {topic: _mean(sizes) for topic, sizes in found.items()}

    def _sampled_record_bytes(self, stretch: Stretch) -> int | None:
        """Bytes for each offset at the beginning of a stretch; None where no record can be read there."""
        count = min(stretch.records, _SAMPLE_RECORDS)
        offsets = stretch.range_of(count, {})
        try:
            blocks = list(KafkaReader(self.options).read(offsets))
        except RangeGoneError:
            return None
        size = sum(_batch(block).nbytes for block in blocks)
        return max(1, size // count) if blocks else None

    def _infer(self, plan: SourcePlan) -> pa.Schema:
        match self.options.format:
            case RecordFormat.TEXT:
                return infer_groups(list(re.compile(self.options.pattern or "").groupindex))
            case RecordFormat.RAW:
                return RAW_SCHEMA
            case RecordFormat.JSON:
                values = (value for block in self._sample(plan) for value in _batch(block).column("value").to_pylist())
                return infer_json(value for value in values if value is not None)
            case _:
                raise SourceError("csv in messages does not name its columns; write schema in the job file")

    def _sample(self, plan: SourcePlan) -> Iterator[Block]:
        """Blocks from the beginning of the plan, or of the records before it where the plan is empty."""
        reader = KafkaReader(self.options)
        left = SAMPLE_BYTES
        ranges = [offsets for offsets in plan.ranges if offsets.until > offsets.start]
        for offsets in ranges or map(self._before, plan.ranges):
            for block in reader.read(offsets):
                yield block
                left -= _batch(block).nbytes
                if left <= 0:
                    return

    def _before(self, offsets: OffsetRange) -> OffsetRange:
        """The last records before an empty range."""
        begins = self._logs[Shard.parse(offsets.shard).partition].start
        return replace(offsets, start=max(begins, offsets.start - _SAMPLE_RECORDS))


def _end_of(stretch: Stretch, held_back: int) -> ShardEnd:
    if stretch.place.is_ended:
        return ShardEnd(stretch.start, None, 0, stretch.hole, "its log is not continued")
    note = f"an open transaction holds back what was written from {stretch.end} on ({held_back})" if held_back else ""
    return ShardEnd(stretch.start, stretch.end, stretch.records, stretch.hole, note)


def _without_log(position: Position) -> ShardEnd:
    """The end of a shard that no plan reads any more."""
    is_ended = KafkaPosition.of(position.detail).is_ended
    return ShardEnd(position.offset, None, 0, note="ended" if is_ended else "not read by this job file")


def _mean(sizes: Collection[int]) -> int:
    """The mean, at least 1; 0 without sizes."""
    return max(1, sum(sizes) // len(sizes)) if sizes else 0


def _batch(block: Block) -> pa.RecordBatch:
    assert isinstance(block.data, pa.RecordBatch)
    return block.data
