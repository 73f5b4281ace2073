"""Job file options of a `kafka` source: topics, start, limits of an epoch."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from ingest.sources.decode.options import CsvOptions, RecordFormat, SourceOptions, YearOf
from ingest.sources.decode.timestamps import iso_micros
from ingest.sources.options import UNLIMITED, OptionText
from timeline.units import ByteSize, Duration

OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "source.bootstrap_servers says it",
    "metadata.broker.list": "source.bootstrap_servers says it",
    "group.id": "offsets come from the timeline alone; source.publish_offsets_to names a group for lag tools",
    "group.instance.id": "no consumer group is joined",
    "group.protocol": "no consumer group is joined",
    "partition.assignment.strategy": "no consumer group is joined",
    "enable.auto.commit": "offsets come from the timeline alone",
    "auto.commit.enable": "offsets come from the timeline alone",
    "auto.commit.interval.ms": "offsets come from the timeline alone",
    "enable.auto.offset.store": "offsets come from the timeline alone",
    "auto.offset.reset": "a range that is gone must stop the job; source.start says where a new timeline begins",
    "isolation.level": "records of aborted transactions are never read",
    "enable.partition.eof": "it tells where a range ends",
    "allow.auto.create.topics": "reading must not create a topic",
    "log.queue": "librdkafka's log goes to Tideline's",
    "logger": "librdkafka's log goes to Tideline's",
    "error_cb": "librdkafka's errors go to Tideline",
}
"""librdkafka's options that a job file must not set, and why."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACES = "earliest, latest, {timestamp: ISO 8601} or {offsets: {topic: {partition: offset}}}"


class Edge(enum.Enum):
    """An end of a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class FromTime:
    """Start at the first record of each partition whose timestamp is at or after a time.

    Attributes:
        time_ms: milliseconds since 1970.
    """

    time_ms: int


@dataclass(frozen=True)
class FromOffsets:
    """Start offsets by topic and partition; unnamed partitions start at their earliest offset."""

    offsets: Mapping[str, Mapping[int, int]]


Start: TypeAlias = Edge | FromTime | FromOffsets


class Tombstones(enum.Enum):
    """Treatment of a record without a value."""

    QUARANTINE = "quarantine"
    ROW = "row"
    SKIP = "skip"


class MessageCsvOptions(CsvOptions):
    """The dialect of CSV in messages, which have no header; columns are the schema's, in order."""

    header: bool = False

    @field_validator("header")
    @classmethod
    def _no_header(cls, value: bool) -> bool:
        if value:
            raise ValueError("a message has no header; leave it out, columns are the schema's, in order")
        return value


class KafkaColumns(BaseModel):
    """Names of the metadata columns, which hold a record's key, headers and position; only named columns exist.

    Attributes:
        key: the key as text; a record whose key is not UTF-8 is rejected.
        key_bytes: the key as it is.
        timestamp: time of creation or append, by the topic's setting; null where the broker has none.
        headers: names and values, in order; null for a record without headers.
        topic: the topic.
        partition: the partition.
        offset: the offset.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    TYPES: ClassVar[Mapping[str, pa.DataType]] = {
        "key": pa.string(),
        "key_bytes": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }

    key: str | None = Field(default=None, min_length=1)
    key_bytes: str | None = Field(default=None, min_length=1)
    timestamp: str | None = Field(default=None, min_length=1)
    headers: str | None = Field(default=None, min_length=1)
    topic: str | None = Field(default=None, min_length=1)
    partition: str | None = Field(default=None, min_length=1)
    offset: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        lowered = [name.lower() for name in self.names.values()]
        if len(set(lowered)) != len(lowered):
            raise ValueError(f"two of {', '.join(self.names.values())} are one name, letters' case aside")
        return self

    @property
    def names(self) -> Mapping[str, str]:
        """Column name by Kafka's field, in the order of the columns."""
        named = {field: getattr(self, field) for field in self.TYPES}
        return {field: name for field, name in named.items() if name is not None}

    @property
    def schema(self) -> pa.Schema:
        """The named columns."""
        return pa.schema([(name, self.TYPES[field]) for field, name in self.names.items()])


def _start(value: object) -> object:
    match value:
        case "earliest" | "latest":
            return Edge(value)
        case {"timestamp": str(text), **rest} if not rest:
            micros = iso_micros(text, zoned=True)
            if micros is None:
                raise ValueError("timestamp: ISO 8601 is allowed, for example 2026-03-01T00:00:00Z; no zone means UTC")
            return FromTime(micros // 1000)
        case {"offsets": dict(topics), **rest} if not rest:
            return FromOffsets({str(topic): _start_offsets(partitions) for topic, partitions in topics.items()})
        case Edge() | FromTime() | FromOffsets():
            return value
    raise ValueError(f"{_PLACES} is allowed")


def _start_offsets(partitions: object) -> dict[int, int]:
    if not isinstance(partitions, dict):
        raise ValueError(f"{_PLACES} is allowed")
    found: dict[int, int] = {}
    for partition, offset in partitions.items():
        if isinstance(offset, str) and re.fullmatch("[0-9]{1,19}", offset):
            offset = int(offset)  # a reference's value is text
        if not str(partition).isdecimal() or isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError("offsets: partition numbers with offsets of 0 or more are allowed, for example {0: 42}")
        found[int(partition)] = offset
    return found


class KafkaOptions(SourceOptions):
    """The ``source`` block of a job file for ``type: kafka``; a record is a message's value.

    Attributes:
        bootstrap_servers: ``host:port`` of one or more brokers, with commas between.
        topics: the topics.
        topic_pattern: instead, a regular expression that matches whole names of topics; new topics join.
        start: start of a new timeline. Partitions and topics created later start at their earliest offset.
        options: librdkafka's own options, for example of security; may hold secrets, so they are not shown.
        max_records_per_epoch: most records of one epoch, shared fairly over partitions.
        max_bytes_per_epoch: most bytes of one epoch, by an estimate of the records' size.
        columns: the metadata columns.
        tombstones: treatment of a record without a value.
        publish_offsets_to: a consumer group that receives the committed offsets, for lag tools; never read back.
        broker_timeout: seconds without an answer of the brokers until the job gives up.
    """

    formats: ClassVar[tuple[RecordFormat, ...]] = (
        RecordFormat.JSON,
        RecordFormat.CSV,
        RecordFormat.TEXT,
        RecordFormat.RAW,
    )

    year_words: ClassVar[tuple[YearOf, ...]] = (YearOf.MESSAGE,)

    type: Literal["kafka"] = "kafka"
    bootstrap_servers: str = Field(min_length=1)
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    start: Annotated[Start, BeforeValidator(_start)] = Edge.EARLIEST
    options: Mapping[str, OptionText] = Field(default_factory=dict, repr=False)
    max_records_per_epoch: int | None = Field(default=None, gt=0)
    max_bytes_per_epoch: ByteSize = Field(default=256_000_000, gt=0)
    columns: KafkaColumns = KafkaColumns()
    tombstones: Tombstones = Tombstones.QUARANTINE
    publish_offsets_to: str | None = Field(default=None, min_length=1)
    broker_timeout: Duration = Field(default=60.0, gt=0)
    csv: MessageCsvOptions = MessageCsvOptions()

    @field_validator("topics")
    @classmethod
    def _names_of_topics(cls, value: Sequence[str]) -> Sequence[str]:
        for name in value:
            if not _TOPIC.fullmatch(name):
                raise ValueError(f"{name!r}: letters, digits, '.', '_' and '-' are allowed, at most 249")
        if len(set(value)) != len(value):
            raise ValueError("a topic is named twice")
        return value

    @field_validator("topic_pattern")
    @classmethod
    def _expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as failure:
            raise ValueError(f"not a regular expression: {failure}") from failure
        except (RecursionError, OverflowError) as failure:
            raise ValueError("not a regular expression that can be compiled: it is nested too deep") from failure
        return value

    @field_validator("options")
    @classmethod
    def _left_to_the_user(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if name in OWN_OPTIONS:
                raise ValueError(f"{name} cannot be set: {OWN_OPTIONS[name]}")
        return value

    @model_validator(mode="after")
    def _topics_one_way(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError('either topics: [a, b] or topic_pattern: "regular expression" is needed, one of the two')
        return self

    @property
    def place(self) -> str:
        """See SourceBlock."""
        topics = ", ".join(self.topics) or f"matching {self.topic_pattern}"
        return f"topics {topics} on {self.bootstrap_servers}"

    @property
    def added_columns(self) -> pa.Schema:
        """See SourceBlock."""
        return self.columns.schema

    @property
    def needs_times(self) -> bool:
        """Whether rows depend on the timestamps of their messages."""
        return self.columns.timestamp is not None or self.year is YearOf.MESSAGE

    def unlimited(self) -> Self:
        """See SourceBlock."""
        return self.model_copy(update={"max_bytes_per_epoch": UNLIMITED, "max_records_per_epoch": None})

    def wants(self, topic: str) -> bool:
        """Whether the job reads a topic of this name; Kafka's internal topics only where they are named."""
        if self.topic_pattern is None:
            return topic in self.topics
        return not topic.startswith("__") and re.fullmatch(self.topic_pattern, topic) is not None
