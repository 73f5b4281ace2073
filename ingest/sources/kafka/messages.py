"""Messages of one partition as columns, the form between reader and decoder."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ingest.sources.kafka.options import KafkaColumns

HEADERS = KafkaColumns.TYPES["headers"]
UNREADABLE = "headers_unreadable"
_NOT_UTF8: Any = object()


def message_batch(messages: Sequence[Message], columns: KafkaColumns, *, times: bool = False) -> pa.RecordBatch:
    """Columns ``offset`` and ``value``; ``key``, ``time_ms`` and ``headers`` only where the job has a column for them.

    Unreadable headers are null; the column `UNREADABLE` marks their messages.

    Args:
        messages: messages of one partition, in order, none of them an error.
        columns: the job's metadata columns.
        times: whether ``time_ms`` is wanted in any case.
    """
    found: dict[str, pa.Array] = {
        "offset": _offsets(messages),
        "value": pa.array(list(map(Message.value, messages)), pa.binary()),
    }
    if columns.key or columns.key_bytes:
        found["key"] = pa.array(list(map(Message.key, messages)), pa.binary())
    if columns.timestamp or times:
        said = (message.timestamp() for message in messages)
        found["time_ms"] = pa.array(
            [time_ms if kind != TIMESTAMP_NOT_AVAILABLE else None for kind, time_ms in said], pa.int64()
        )
    if columns.headers:
        headers = list(map(_headers_of, messages))
        found["headers"] = pa.array([None if each is _NOT_UTF8 else each for each in headers], HEADERS)
        found[UNREADABLE] = pa.array([each is _NOT_UTF8 for each in headers], pa.bool_())
    return pa.RecordBatch.from_pydict(found)


def _headers_of(message: Message) -> Any:
    """A message's headers; `_NOT_UTF8` where one has a name that the client cannot decode."""
    try:
        return message.headers()
    except (SystemError, UnicodeDecodeError):
        return _NOT_UTF8


def with_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages without tombstones."""
    values = batch.column("value")
    return batch.filter(pc.is_valid(values)) if values.null_count else batch


def _offsets(messages: Sequence[Message]) -> pa.Array:
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None and last is not None
    if last - first == len(messages) - 1:  # no gap: no call for each message
        return pa.arange(first, last + 1)
    return pa.array(list(map(Message.offset, messages)), pa.int64())


def contexts_of(batch: pa.RecordBatch) -> pa.Array:
    """The ``context`` of each message for `sinks.base.REJECTED_SCHEMA`: its key, time and headers, as far as read.

    Args:
        batch: see `message_batch`.
    """
    besides = [name for name in batch.schema.names if name not in ("offset", "value", UNREADABLE)]
    known = batch.select(besides).to_pylist()
    # Without metadata there is still an object: it distinguishes a tombstone from bytes that could not be read.
    texts = [json.dumps(_as_text(message)) for message in known] if known else ["{}"] * batch.num_rows
    return pa.array(texts, pa.string())


def restore_messages(rejected: pa.RecordBatch, columns: KafkaColumns, *, times: bool = False) -> pa.RecordBatch:
    """Rejected messages in the form of `message_batch`.

    A column that the job did not have when the messages were rejected is null.

    Args:
        rejected: rows of one partition, with ``offset``, ``raw`` and ``context``.
        columns: the job's current metadata columns.
        times: see `message_batch`.
    """
    known = [json.loads(context or "{}") for context in rejected.column("context").to_pylist()]
    found = {"offset": rejected.column("offset"), "value": rejected.column("raw")}
    if columns.key or columns.key_bytes:
        found["key"] = pa.array([_bytes(message.get("key")) for message in known], pa.binary())
    if columns.timestamp or times:
        found["time_ms"] = pa.array([message.get("time_ms") for message in known], pa.int64())
    if columns.headers:
        found["headers"] = pa.array([_headers(message.get("headers")) for message in known], HEADERS)
        found[UNREADABLE] = pa.array([False] * len(known), pa.bool_())
    return pa.RecordBatch.from_pydict(found)


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in message.items():
        match name:
            case "key":
                shown[name] = _text(value)
            case "headers":
                shown[name] = None if value is None else [[each["key"], _text(each["value"])] for each in value]
            case _:
                shown[name] = value
    return shown


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _headers(shown: Sequence[tuple[str, str | None]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if shown is None else [(key, _bytes(value)) for key, value in shown]
