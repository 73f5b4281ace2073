"""The ranges of one epoch from the logs as they are now: pure decisions on the brokers' answers.

::

    logs + committed positions ── match ──▶ stretches, with the holes among them ── limits ──▶ ranges
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingest.sources.base import SourcePlan, Unit
from ingest.sources.kafka.options import Edge, FromOffsets, KafkaOptions
from ingest.sources.kafka.shards import (
    KafkaPosition,
    Log,
    Partition,
    RecordLoss,
    Stretch,
    continue_shard,
    current_shards,
    new_shard,
    rejoin,
)
from ingest.sources.kafka.share import share
from timeline.epoch import Json, OffsetRange, Position
from timeline.errors import RangeGoneError, SourceChangedError, SourceError

_MOST_NAMED = 5


def begin(options: KafkaOptions, logs: Mapping[Partition, Log], at_time: Mapping[Partition, int]) -> list[Stretch]:
    """The stretches of a timeline's first epoch.

    Every partition is pinned, also an empty one, so that its start never moves; none is pinned where the start is the
    earliest and no partition has a record.

    Args:
        options: the job's options.
        logs: the logs of all its topics.
        at_time: for a start at a time, the offset of each partition; a partition without one has no record that late.

    Raises:
        SourceError: an offset to start at is not in its partition's log.
    """
    starts: dict[Partition, int] = {}
    match options.start:
        case Edge.EARLIEST:
            starts = {partition: log.start for partition, log in logs.items()}
        case Edge.LATEST:
            starts = {partition: log.end for partition, log in logs.items()}
        case FromOffsets():
            starts = {partition: log.start for partition, log in logs.items()} | _named_starts(options.start, logs)
        case _:
            starts = {partition: at_time.get(partition, log.end) for partition, log in logs.items()}
    stretches = [new_shard(partition, log, starts[partition]) for partition, log in sorted(logs.items())]
    is_pinned = options.start is not Edge.EARLIEST or any(stretch.records for stretch in stretches)
    return [replace(stretch, is_pinned=is_pinned) for stretch in stretches]


def go_on(
    options: KafkaOptions,
    logs: Mapping[Partition, Log],
    after: Mapping[str, Position],
    cuts: Mapping[Partition, int],
) -> list[Stretch]:
    """The stretches of a later epoch; new partitions start at their earliest offset.

    Args:
        options: the job's options.
        logs: the logs of all its topics.
        after: committed positions.
        cuts: see `Brokers.cuts`.
    """
    known = {partition: shard for partition, shard in current_shards(after).items() if options.wants(partition.topic)}
    stretches: list[Stretch] = []
    for partition in sorted({*logs, *known}):
        log, shard = logs.get(partition), known.get(partition)
        if shard is None and log is not None:
            stretches.append(new_shard(partition, log, log.start))
        elif shard is not None and not KafkaPosition.of(after[str(shard)].detail).is_ended:
            stretches += continue_shard(shard, after[str(shard)], log, cuts.get(partition))
        elif shard is not None and log is not None:
            stretches.append(rejoin(shard, after[str(shard)], log))
    return stretches


def doubtful(logs: Mapping[Partition, Log], after: Mapping[str, Position]) -> dict[Partition, tuple[int, int]]:
    """Offset and leader epoch of shards whose log may be truncated: it has another leader epoch, or ends too early."""
    found: dict[Partition, tuple[int, int]] = {}
    for partition, shard in current_shards(after).items():
        position, log = after[str(shard)], logs.get(partition)
        place = KafkaPosition.of(position.detail)
        if log is None or place.is_ended or place.leader_epoch is None or place.topic_id != log.topic_id:
            continue
        if log.start <= position.offset and (place.leader_epoch != log.leader_epoch or log.end < position.offset):
            found[partition] = (position.offset, place.leader_epoch)
    return found


def loss_error(stretches: Sequence[Stretch]) -> SourceError | None:
    """The error that stops a job without accepted loss; None where no record is lost."""
    lost = [f"{stretch.shard} {stretch.hole}" for stretch in stretches if stretch.hole is not None]
    if not lost:
        return None
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    only_expired = all(
        stretch.hole.reason == RecordLoss.EXPIRED.value for stretch in stretches if stretch.hole is not None
    )
    kind = RangeGoneError if only_expired else SourceChangedError
    return kind(
        f"records are gone that were not ingested yet: {'; '.join(lost[:_MOST_NAMED])}{more}. Bring them back, or go "
        "on behind them with `tideline run CONF --accept-loss`, which records the holes on the timeline"
    )


def plan_ranges(stretches: Sequence[Stretch], options: KafkaOptions, record_bytes: Mapping[str, int]) -> SourcePlan:
    """The ranges of one epoch within the job's limits, which partitions share fairly.

    Args:
        stretches: the stretches of all shards.
        options: the job's options.
        record_bytes: estimated bytes of a record by topic; without an estimate, bytes do not limit a topic's share.
    """
    needs = [stretch.records for stretch in stretches]
    given = needs if options.max_records_per_epoch is None else share(needs, options.max_records_per_epoch)
    sizes = [record_bytes.get(stretch.shard.partition.topic, 0) for stretch in stretches]
    given_bytes = share([count * size for count, size in zip(given, sizes, strict=True)], options.max_bytes_per_epoch)
    given = [
        min(count, max(1, fits // size)) if count and size else count
        for count, size, fits in zip(given, sizes, given_bytes, strict=True)
    ]
    ranges: list[OffsetRange] = []
    for stretch, count, size in zip(stretches, given, sizes, strict=True):
        if count or stretch.is_pinned:
            detail: dict[str, Json] = {"record_bytes": size} if size else {}
            ranges.append(stretch.range_of(count, detail))
    behind = [need - count for need, count in zip(needs, given, strict=True)]
    return SourcePlan(tuple(ranges), sum(behind), sum(left > 0 for left in behind), unit=Unit.RECORDS)


def _named_starts(start: FromOffsets, logs: Mapping[Partition, Log]) -> dict[Partition, int]:
    named = {
        Partition(topic, number): offset
        for topic, partitions in start.offsets.items()
        for number, offset in partitions.items()
    }
    for partition, offset in named.items():
        log = logs.get(partition)
        if log is None:
            raise SourceError(f"source.start: there is no partition {partition} among the job's topics")
        if not log.start <= offset <= log.end:
            raise SourceError(
                f"source.start: offset {offset} is not in the log of {partition}; [{log.start}, {log.end}] is allowed"
            )
    return named
