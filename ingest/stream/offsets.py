"""Position of a streaming query between two micro-batches, as its checkpoint and the timeline record it.

::

    <checkpoint>/metadata         {"id": …}                    the query
    <checkpoint>/offsets/<n>      v1                           how far each source is read once batch n is done
                                  {"batchTimestampMs": …}      when it was planned, the watermark, settings
                                  {"events":{"0":17}}          a line for each source, "-" where it has none yet
    <checkpoint>/sources/<i>/0    v1                           where source i began (Kafka and others that
                                  {"events":{"0":0}}           begin anywhere); other sources keep other things there

Source: Spark 4.1, ``OffsetSeqLog.serialize``, ``KafkaSourceInitialOffsetWriter`` (a zero byte before its version).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from timeline.epoch import Json
from timeline.errors import FormatError

LogOffsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Next offset of each partition of each topic: the format of Kafka's source, valid in any query."""

_VERSION = "v1"
_NOTHING_YET = "-"


@dataclass(frozen=True)
class StreamPosition:
    """How far a query has read its sources.

    Attributes:
        query: the query's id; a new checkpoint makes a new one.
        planned_ms: when the batch that ends here was planned, by Spark's clock; None at the query's beginning.
        sources: offsets of each source as Spark writes them, in its order; None: nothing read yet.
        is_stateful: whether rows also depend on state that is kept in the checkpoint.
    """

    query: str
    planned_ms: int | None
    sources: tuple[Json, ...]
    is_stateful: bool = False

    @property
    def logs(self) -> tuple[LogOffsets, ...] | None:
        """Offsets from which any query can continue; None where they are valid in this query's checkpoint only.

        Such offsets have the form ``{topic: {partition: number}}``, as Kafka's; a stateful query has none.
        """
        logs = tuple(log for log in map(log_offsets, self.sources) if log is not None)
        return logs if len(logs) == len(self.sources) > 0 and not self.is_stateful else None

    def after(self, committed: StreamPosition | None) -> StreamPosition:
        """Committed position after a batch that ends here; it keeps every partition that was read."""
        mine, theirs = self.logs, committed.logs if committed else None
        if mine is None or theirs is None:
            return self
        return replace(self, sources=tuple(_merged(old, new) for old, new in zip(theirs, mine, strict=True)))

    def detail(self) -> dict[str, Json]:
        """The position as the timeline stores it: a position's detail."""
        return {
            "query": self.query,
            "planned_ms": self.planned_ms,
            "sources": list(self.sources),
            "is_stateful": self.is_stateful,
        }

    @classmethod
    def of(cls, detail: Mapping[str, Json]) -> StreamPosition:
        """The position from its detail on the timeline.

        Raises:
            FormatError: the detail is of another source.
        """
        match detail:
            case {"query": str(query), "planned_ms": int() | None as planned, "sources": list(sources), **rest}:
                return cls(query, planned, tuple(sources), rest.get("is_stateful") is True)
        raise FormatError(f"a stream's position has query, planned_ms and sources, found {str(dict(detail))[:200]}")


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the checkpoint describes it: the records between two positions."""

    number: int
    start: StreamPosition
    end: StreamPosition


@dataclass(frozen=True)
class OffsetLogEntry:
    """One file of the offset log; see StreamPosition."""

    planned_ms: int
    sources: tuple[Json, ...]


def parse_entry(path: str, text: str) -> OffsetLogEntry:
    """Parse a file of the offset log.

    Raises:
        FormatError: another version of Spark has written it, or it is damaged.
    """
    match text.splitlines():
        case [version, metadata, *offsets] if version == _VERSION and offsets:
            sources = tuple(None if line == _NOTHING_YET else _json(path, line) for line in offsets)
        case _:
            raise FormatError(
                f"{path}: not an offset log of Spark 4.1, which is {_VERSION}, a line of metadata and a line for each "
                f"source; found {text[:80]!r}"
            )
    match _json(path, metadata):
        case {"batchTimestampMs": int(planned_ms)}:
            return OffsetLogEntry(planned_ms, sources)
        case other:
            raise FormatError(f"{path}: its metadata has no batchTimestampMs: {str(other)[:80]}")


def parse_beginning(text: str) -> Json:
    """Offsets at which a source of logs began; None where its file holds something else."""
    match text.lstrip("\0").splitlines():
        case [version, line] if version == _VERSION:
            with contextlib.suppress(ValueError):
                offsets: Json = json.loads(line)
                return offsets if log_offsets(offsets) is not None else None
    return None


def parse_query_id(path: str, text: str) -> str:
    """The query's id from the checkpoint's metadata.

    Raises:
        FormatError: the metadata has no id.
    """
    match _json(path, text):
        case {"id": str(query)}:
            return query
        case other:
            raise FormatError(f"{path}: no query id in {str(other)[:80]}")


def log_offsets(offsets: Json) -> LogOffsets | None:
    """Offsets by topic and partition; None for offsets of another form."""
    if not isinstance(offsets, dict) or not offsets:
        return None
    logs: dict[str, dict[str, int]] = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            return None
        logs[topic] = {
            partition: offset
            for partition, offset in partitions.items()
            if partition.isdecimal() and type(offset) is int and offset >= 0
        }
        if len(logs[topic]) < len(partitions):
            return None
    return logs


def _merged(old: LogOffsets, new: LogOffsets) -> Json:
    """The furthest offset of every partition that is in either."""
    topics = {
        topic: {
            partition: max(each.get(topic, {}).get(partition, 0) for each in (old, new))
            for partition in {**old.get(topic, {}), **new.get(topic, {})}
        }
        for topic in {**old, **new}
    }
    return json.loads(json.dumps(topics))  # type: ignore[no-any-return]


def _json(path: str, text: str) -> Json:
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except ValueError as error:
        raise FormatError(f"{path}: expected JSON, found {text[:80]!r}") from error
