"""Messages of one partition as columns: what a reader hands to the decoder."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ingest.sources.kafka.options import KafkaColumns

HEADERS = KafkaColumns.TYPES["headers"]


def message_batch(messages: Sequence[Message], columns: KafkaColumns) -> pa.RecordBatch:
    """Columns ``offset`` and ``value``; ``key``, ``time_ms`` and ``headers`` only where the job has a column for them.

    Args:
        messages: of one partition, in order, none of them an error.
        columns: what the job wants of them.
    """
    found: dict[str, pa.Array] = {
        "offset": _offsets(messages),
        "value": pa.array(list(map(Message.value, messages)), pa.binary()),
    }
    if columns.key or columns.key_bytes:
        found["key"] = pa.array(list(map(Message.key, messages)), pa.binary())
    if columns.timestamp:
        times = (message.timestamp() for message in messages)
        found["time_ms"] = pa.array(
            [time_ms if kind != TIMESTAMP_NOT_AVAILABLE else None for kind, time_ms in times], pa.int64()
        )
    if columns.headers:
        found["headers"] = pa.array(list(map(Message.headers, messages)), HEADERS)
    return pa.RecordBatch.from_pydict(found)


def with_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without tombstones."""
    values = batch.column("value")
    return batch.filter(pc.is_valid(values)) if values.null_count else batch


def _offsets(messages: Sequence[Message]) -> pa.Array:
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None and last is not None
    if last - first == len(messages) - 1:  # no gap: not asked one by one
        return pa.arange(first, last + 1)
    return pa.array(list(map(Message.offset, messages)), pa.int64())
