"""Source = target + quarantine, record by record, without orphans; read from the topic and from S3 directly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.real.kafka_server import KafkaServer
from tests.real.raw_s3 import RawS3
from tests.soak.world import PARTITIONS, QUARANTINE, TABLES, TOPIC, World
from timeline.active import ActiveTimeline

Place: TypeAlias = tuple[str, int]
"""Shard and offset of a record."""

_MARKERS = "/.hoodie/.temp/"
_SHOWN = 5


@dataclass
class Verdict:
    """Result of a soak.

    Attributes:
        rows: committed records of the topic.
        lost: missing rows, summed over the tables.
        duplicate: surplus copies of rows, summed over the tables.
        wrong: messages about rows that differ from the topic's record.
        orphans: see `orphans`.
    """

    rows: int
    lost: int = 0
    duplicate: int = 0
    wrong: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All problems as messages."""
        counts = {"records lost": self.lost, "records too many": self.duplicate, "rows wrong": len(self.wrong)}
        found = [f"{count} {what}" for what, count in counts.items() if count]
        return [*found, *self.wrong[:_SHOWN], *(f"left over: {path}" for path in self.orphans)]


def judge(world: World) -> Verdict:
    """Compare the topic with the tables, and list orphans; no command may run any more."""
    records = committed_records(world.kafka)
    accepted = {place: row for place, value in records.items() if (row := decoded(value)) is not None}
    rejected = {place: value for place, value in records.items() if place not in accepted}
    verdict = Verdict(len(records))
    for name in TABLES:
        columns = _columns(world, name, "_shard", "_offset", "id", "text")
        found = [((shard, offset), (id, text)) for shard, offset, id, text in zip(*columns, strict=True)]
        compare(name, accepted, found, verdict)
    columns = _columns(world, QUARANTINE, "shard", "offset", "raw")
    found = [((shard, offset), raw) for shard, offset, raw in zip(*columns, strict=True)]
    compare(QUARANTINE, rejected, found, verdict)
    verdict.orphans += orphans(world)
    return verdict


def compare(
    name: str, expected: Mapping[Place, object], found: Sequence[tuple[Place, object]], verdict: Verdict
) -> None:
    """Check one table, and add the result to a verdict.

    Args:
        name: the table's name.
        expected: rows that it has to hold.
        found: rows that it holds.
        verdict: takes the result.
    """
    times = Counter(place for place, _ in found)
    verdict.lost += len(expected.keys() - times.keys())
    verdict.duplicate += len(found) - len(times)
    for place, row in found:
        if place not in expected:
            verdict.wrong.append(f"{name}: no committed record that belongs here is at {place}")
        elif row != expected[place]:
            verdict.wrong.append(f"{name}: {place} holds {row!r}, and the record is {expected[place]!r}")


def committed_records(kafka: KafkaServer) -> dict[Place, bytes]:
    """Every committed record of the topic, read by a consumer without any code of Tideline."""
    options = {
        **kafka.client_options(),
        "group.id": "verdict",
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
    }
    consumer = Consumer(options)
    records: dict[Place, bytes] = {}
    left = set(range(PARTITIONS))
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in left])
        while left:
            for message in consumer.consume(10_000, timeout=1.0):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(-1 if partition is None else partition)
                elif error is None and offset is not None:
                    records[f"{TOPIC}/{partition}", offset] = message.value() or b""
    finally:
        consumer.close()
    return records


def decoded(value: bytes) -> tuple[int, str] | None:
    """The row that a record has to become; None if the record belongs in the quarantine."""
    try:
        record: dict[str, Any] = json.loads(value)
    except json.JSONDecodeError:
        return None
    return record["id"], record["text"]


def orphans(world: World) -> list[str]:
    """Orphans: files that are never read and never removed, unfinished uploads, and pending instants."""
    tables = [table for name in (*TABLES, QUARANTINE) if (table := world.table(name)) is not None]
    visible = {uri.rpartition("/")[2] for table in tables for uri in table.file_uris()}
    left = [info.path for info in world.bucket.list("", recursive=True) if is_left_over(info.path, visible)]
    pending = [f"pending: {instant}" for instant in ActiveTimeline.load(world.timeline).pending().instants]
    return [*left, *(f"upload: {key}" for key in RawS3(world.s3).uploads("")), *pending]


def is_left_over(path: str, visible: Collection[str]) -> bool:
    """Whether an object should have been deleted.

    Args:
        path: key in the bucket.
        visible: names of the data files that tables list.
    """
    name = path.rpartition("/")[2]
    if _MARKERS in path:
        # Markers of unreported files stay for a day, in case a frozen task still writes those files.
        return name.removesuffix(".marker.CREATE") in visible
    return name.endswith(".parquet") and "/_delta_log/" not in path and name not in visible


def _columns(world: World, table: str, *names: str) -> list[list[Any]]:
    opened = world.table(table)
    if opened is None:
        return [[] for _ in names]
    found = opened.to_pyarrow_table(columns=list(names))
    return [found[name].to_pylist() for name in names]
