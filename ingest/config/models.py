"""Models of a job file: a small one for each concern."""

from __future__ import annotations

import enum
import os.path
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from ingest.sources.decode.options import UnknownField
from ingest.sources.options import OptionText, SourceBlock
from sinks.base import LINEAGE_COLUMNS, TargetOptions
from sinks.partition import EmptyPartition, PartitionField, parse_partition
from sinks.sql_types import parse_type
from timeline.stores.opening import absolute
from timeline.units import Duration, VisiblePath


def _column_type(value: object) -> pa.DataType:
    if not isinstance(value, str):
        raise ValueError("a type's name is allowed, for example bigint, timestamp or struct<a:int,b:string>")
    return parse_type(value)


def _partition_field(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a column, date(column) or hour(column) is allowed")
    return parse_partition(value)


def _partition_list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError("a list is allowed, for example [date(ts), country]")
    return value


def _job_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError("letters, digits, '.', '_' and '-' are allowed, at most 100, first a letter or digit")
    return value


def _query(value: str) -> str:
    text = value.strip().removesuffix(";").rstrip()
    if not text:
        raise ValueError("a query is allowed, for example SELECT host, status FROM source")
    return text


def _lease_ttl(value: float) -> float:
    if not 1 <= value <= 86_400:
        raise ValueError("1s to 1d is allowed: it is renewed every third of it, and a store may answer slowly")
    return value


ColumnType = Annotated[pa.DataType, PlainValidator(_column_type)]


class Concern(BaseModel):
    """A block of a job file: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class TimelineConfig(Concern):
    """``timeline``: where the job's state lies.

    Attributes:
        path: base path of the timeline.
    """

    path: VisiblePath = Field(min_length=1)


class EpochConfig(Concern):
    """``epoch``: when the next epoch begins.

    Attributes:
        interval: seconds from the start of one epoch to the start of the next; 0: as soon as an epoch is done.
    """

    interval: Duration = Field(default=10.0, ge=0)


class WriterConfig(Concern):
    """``writer``: how a job holds its timeline.

    Attributes:
        lease_ttl: seconds without a renewal after which another process may take over. The lease is renewed every third
            of it, so it has to be well above the time of a slow response of a store.
    """

    lease_ttl: Annotated[Duration, AfterValidator(_lease_ttl)] = 60.0


class SmallEpochs(enum.Enum):
    """Where epochs are written that are too small for a task (4 MB)."""

    DRIVER = "driver"
    EXECUTORS = "executors"


class SparkConfig(Concern):
    """``spark``: the session.

    Attributes:
        master: Spark's master URL.
        conf: Spark's configuration; may hold secrets, so it is not shown.
        executor_wait: seconds that tasks on a cluster wait without any executor before the job fails.
        shared_folders: local folders that every machine of a cluster mounts at the same place.
        small_epochs: where small epochs are written. Spark is started by the first epoch that needs it.
    """

    master: str = Field(default="local[*]", min_length=1)
    conf: dict[str, OptionText] = Field(default_factory=dict, repr=False)
    executor_wait: Duration = Field(default=120.0, gt=0)
    shared_folders: tuple[str, ...] = ()
    small_epochs: SmallEpochs = SmallEpochs.DRIVER

    @property
    def is_cluster(self) -> bool:
        """Whether tasks run on other machines."""
        return is_cluster(self.master)


class MetricsConfig(Concern):
    """``metrics``: the endpoint that Prometheus scrapes while the job runs.

    Attributes:
        port: listening port; 0: a free port; None: no endpoint.
        host: listening address.
    """

    port: int | None = Field(default=None, ge=0, le=65535)
    host: str = Field(default="127.0.0.1", min_length=1)


class CallbackConfig(Concern):
    """One block of ``on_commit``: a callback for completed epochs.

    Attributes:
        url: address of the POST; may hold a secret, so it is not shown.
        command: the program that receives the epoch, and its arguments; may hold secrets.
        headers: sent with a POST; may hold secrets.
        timeout: seconds that one call may take.
        retries: number of retries of a failed call.
        drain: seconds that the end of the job waits for undelivered calls.
    """

    url: str | None = Field(default=None, repr=False)
    command: tuple[str, ...] | None = Field(default=None, repr=False, min_length=1)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    timeout: Duration = Field(default=10.0, gt=0, le=3600)
    retries: int = Field(default=5, ge=0, le=100)
    drain: Duration = Field(default=10.0, ge=0, le=3600)

    @property
    def place(self) -> str:
        """The host or program that is called, human-readable: neither path nor arguments."""
        if self.url is not None:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return os.path.basename((self.command or ("",))[0])

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("either url or command is allowed, and one of them is needed")
        if self.command is not None and (self.headers or not self.command[0]):
            raise ValueError("headers are for a url" if self.headers else "command: a program's name is needed first")
        if self.url is not None and not _is_http(self.url):
            raise ValueError("url: http://host[:port]/path or https://… is allowed, without user and password in it")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError("headers: names of letters, digits and '-' are allowed, and values of one line")
        return self


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and is_plain


def _callbacks(value: object) -> object:
    """One block or a list of them; messages omit the values, which may be secret."""
    if isinstance(value, tuple):
        return value
    blocks = value if isinstance(value, list) else [value]
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise ValueError("{url: …} or {command: [program, …]} is allowed, or a list of such blocks")
    callbacks: list[CallbackConfig] = []
    found: list[str] = []
    for number, block in enumerate(blocks):
        before = f"[{number}]" if isinstance(value, list) else ""
        try:
            callbacks.append(CallbackConfig.model_validate(block))
        except ValidationError as error:
            found += _callback_problems(error, before)
            known = {key: inner for key, inner in block.items() if key in CallbackConfig.model_fields}
            if len(known) < len(block):
                try:
                    CallbackConfig.model_validate(known)
                except ValidationError as left:
                    found += _callback_problems(left, before)
    if found:
        raise ValueError("; ".join(dict.fromkeys(found)))
    return tuple(callbacks)


def _callback_problems(error: ValidationError, before: str) -> Iterator[str]:
    """Each problem of one block, without its values."""
    for detail in error.errors(include_url=False, include_input=False):
        key = ".".join(map(str, detail["loc"][:2]))
        if detail["type"] == "extra_forbidden":
            yield f"{before}{key}: unknown key; allowed are {', '.join(CallbackConfig.model_fields)}"
        else:
            message = str(detail.get("ctx", {}).get("error", detail["msg"]))
            yield f"{before}{key}: {message}" if before or key else message


class JobConfig(Concern):
    """One job. Build it with `ingest.config.load.load_config`, which fills in defaults that depend on other keys.

    Attributes:
        name: the job's name, in messages and in names derived from it.
        source: where records come from.
        columns: ``schema`` in the file: the type of each column; None: inferred at the first epoch, then kept.
        on_unknown_field: treatment of a record with a field that the schema does not have.
        transform: a query of Spark SQL over the decoded rows, which are its table ``source``; None: the rows are
            written unchanged.
        partition_by: how lake targets lay their files out.
        on_empty_partition: treatment of a row with an empty text in a partition column.
        targets: where rows go, in the order in which an epoch is applied.
        quarantine: the target that takes rejected rows.
        timeline: where the job's state lies.
        epoch: when the next epoch begins.
        writer: how the job holds its timeline.
        storage: fsspec options for every path of the job; may hold secrets, so they are not shown.
        spark: the session.
        lineage: whether every row carries shard, offset and epoch.
        metrics: the endpoint for Prometheus.
        on_commit: callbacks for each completed epoch.
    """

    name: Annotated[str, AfterValidator(_job_name)]
    source: SerializeAsAny[SourceBlock]
    columns: Mapping[str, ColumnType] | None = Field(default=None, alias="schema", min_length=1)
    on_unknown_field: UnknownField = UnknownField.DROP
    transform: Annotated[str, AfterValidator(_query)] | None = None
    partition_by: Annotated[
        tuple[Annotated[PartitionField, BeforeValidator(_partition_field)], ...], BeforeValidator(_partition_list)
    ] = ()
    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE
    targets: tuple[SerializeAsAny[TargetOptions], ...] = Field(min_length=1)
    quarantine: SerializeAsAny[TargetOptions]
    timeline: TimelineConfig
    epoch: EpochConfig = EpochConfig()
    writer: WriterConfig = WriterConfig()
    storage: dict[str, Any] = Field(default_factory=dict, repr=False)
    spark: SparkConfig = SparkConfig()
    lineage: bool = False
    metrics: MetricsConfig = MetricsConfig()
    on_commit: Annotated[tuple[CallbackConfig, ...], BeforeValidator(_callbacks)] = Field(default=(), repr=False)

    @property
    def takes_whole_source(self) -> bool:
        """Whether one epoch has to hold everything that the source has."""
        return any(target.takes_whole_source for target in self.targets)

    @property
    def arrow_schema(self) -> pa.Schema | None:
        """The declared columns and those that the source adds; None if they are to be inferred."""
        return None if self.columns is None else pa.schema([*self.columns.items(), *self.source.added_columns])

    def row_schema(self, decoded: pa.Schema) -> pa.Schema:
        """Columns of the rows that tasks write: the decoded columns, then the lineage columns."""
        lineage = [pa.field(name, kind) for name, kind in LINEAGE_COLUMNS] if self.lineage else []
        return pa.schema([*decoded, *lineage])


def is_cluster(master: str) -> bool:
    """Whether a Spark master URL names a cluster."""
    return master == "yarn" or master.startswith(("spark://", "k8s://"))


def resolved_place(path: str) -> str:
    """The canonical spelling of a path's place, links followed: equal spellings are the same place."""
    place = written_place(path)
    return f"file://{os.path.realpath(place[7:])}" if place.startswith("file://") else place


def written_place(path: str) -> str:
    """The canonical spelling of a path as written: local paths absolute, links not followed."""
    protocol, rest = path.split("://", 1) if "://" in path else ("file", path)
    if protocol in ("file", "local"):
        return f"file://{absolute(rest)}"
    return f"{'s3' if protocol == 's3a' else protocol}://{rest.strip('/')}"
