"""Builds the objects that the protocol works on from a job's configuration. Starts no engine, opens no session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ingest.config.load import JobConfig
from ingest.config.models import resolved_place, written_place
from ingest.config.registry import load_sink
from ingest.execution.task import QUARANTINE_SCHEMA
from ingest.protocol.job import JobContext
from ingest.sources.base import Source
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.options import StreamOptions
from sinks.avro_schema import avro_schema
from sinks.base import DeletedFiles, Sink, SinkContext, TargetOptions
from sinks.held import remembering
from sinks.partition import partitioned_schema
from sinks.reading import snapshots_of
from sinks.sql_types import parse_type, type_name
from timeline import wholeness
from timeline.active import ActiveTimeline
from timeline.errors import ConfigError, FormatError, TargetRefusedError, TidelineError
from timeline.hudi.layout import TableIdentity, create_identity, read_identity
from timeline.lease import LeaseObserver, WriterLease, take_lease
from timeline.owner import Owner, claim_timeline, move_timeline, read_owner
from timeline.process import this_process
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.opening import open_store

if TYPE_CHECKING:
    from ingest.sources.quarantine import WithQuarantine


@dataclass(frozen=True)
class TimelineHandle:
    """A job's timeline, created or not.

    Attributes:
        config: the job file.
        store: the timeline's base path.
        retry: bounds of every retry.
        identity: properties fixed at the timeline's creation; None before the first epoch.
        is_moved: whether the job deliberately has another name or source than the timeline's owner record.
        allows_new_timeline: whether a new timeline may be created though targets have rows of another one of this job.
    """

    config: JobConfig
    store: ObjectStore
    retry: Retry
    identity: TableIdentity | None
    is_moved: bool = False
    allows_new_timeline: bool = False

    def take_lease(
        self, observer: LeaseObserver, *, force: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> WriterLease:
        """Become the timeline's writer; see `timeline.lease.take_lease`.

        Args:
            observer: watches the current writer, in the timeline's store.
            force: do not wait for a writer that may be alive.
            sleep: waits a number of seconds between two reads of the lease.

        Raises:
            ConfigError: the timeline belongs to another job; nothing was touched.
            WriterBusyError: the current writer is alive.
        """
        self.require_owner()
        ttl_ms = round(self.config.writer.lease_ttl * 1000)
        lease = take_lease(observer, job=self.config.name, ttl_ms=ttl_ms, sleep=sleep, force=force)
        try:
            if self.is_moved:
                move_timeline(self.store, self._owner, self.retry)
            elif self.identity is not None:
                self.claim()
        except TidelineError:
            lease.release()
            raise
        return lease

    def require_owner(self) -> None:
        """Refuse another job's timeline. A timeline without an owner record belongs to no job.

        Raises:
            ConfigError: the timeline belongs to another job; the message shows both.
        """
        owner = read_owner(self.store, self.retry)
        if owner is not None and not self.is_moved:
            self._require(owner)

    def claim(self) -> None:
        """Become the owner of a timeline without one.

        Raises:
            ConfigError: another job owns the timeline.
        """
        self._require(claim_timeline(self.store, self._owner, self.retry))

    @property
    def _owner(self) -> Owner:
        return Owner(self.config.name, _source_of(self.config))

    def _require(self, owner: Owner) -> None:
        if not self._is_own(owner):
            raise ConfigError(
                f"{self.store.url} is the timeline of {owner}; this job file is {self._owner}. Give it a timeline.path "
                "of its own, or that name and source; where the job itself was renamed, or its source moved or was "
                "extended, tideline run CONF --new-source goes on. So it does where the other one got the timeline by "
                "a mistaken --new-source: tideline show tells which epochs it has added"
            )

    def _is_own(self, owner: Owner) -> bool:
        """Whether an owner is this job: its path may be spelled differently, as older versions followed links."""
        if owner == self._owner or owner.name != self.config.name or not isinstance(self.config.source, FilesOptions):
            return owner == self._owner
        return resolved_place(owner.source) == resolved_place(self.config.source.path)


def _source_of(config: JobConfig) -> str:
    """The place that a job reads from; a link is not followed."""
    match config.source:
        case FilesOptions(path=path):
            return written_place(path)
        case KafkaOptions(topics=topics, topic_pattern=pattern):
            return f"topics {', '.join(sorted(topics))}" if topics else f"topics matching {pattern}"
        case other:
            return other.type


def open_timeline(config: JobConfig, *, is_moved: bool = False, allows_new_timeline: bool = False) -> TimelineHandle:
    """Read the identity of a job's timeline; creates nothing.

    Args:
        config: the job file.
        is_moved: see `TimelineHandle`.
        allows_new_timeline: see `TimelineHandle`.

    Raises:
        FormatError: the path holds a Hudi table that Tideline did not create.
        StoreUnavailableError: the timeline could not be read.
    """
    store = open_store(config.timeline.path, config.storage)
    retry = Retry()
    try:
        identity = read_identity(store, retry)
    except FormatError as error:
        raise FormatError(f"{store.url}: {error}") from error
    return TimelineHandle(config, store, retry, identity, is_moved, allows_new_timeline)


def require_whole(opened: TimelineHandle, timeline: ActiveTimeline | None = None) -> None:
    """Refuse a timeline with missing objects; see `timeline.wholeness`.

    Args:
        opened: the job's timeline.
        timeline: its newest instants, where the caller has listed them.

    Raises:
        InvariantError: objects are missing, and the message names them; nothing was touched.
        TargetRefusedError: the whole timeline is missing, and a target has rows of it.
        StoreUnavailableError: the timeline or a target could not be read.
    """
    listed = timeline if timeline is not None else ActiveTimeline.recent(opened.store, opened.retry)
    wholeness.require_whole(opened.store, listed, opened.retry, is_moved=opened.is_moved)
    _require_first(opened)


def open_source(
    config: JobConfig, *, accept_loss: bool = False, identity: TableIdentity | None = None
) -> WithQuarantine:
    """The job's source together with its rejected records; touches nothing yet.

    The source's limits for an epoch are lifted where a target takes the whole source.

    Args:
        config: the job file.
        accept_loss: go on behind lost records, and record the hole.
        identity: of the timeline whose rejected records are read again; None before the timeline is created.

    Raises:
        ConfigError: this source cannot go on behind a loss, or a package for it is missing.
    """
    from ingest.sources.quarantine import WithQuarantine  # imports the decoders, which recovery does not need

    rejected = snapshots_of(_open_quarantine(config, identity))
    return WithQuarantine(_open_own_source(config, accept_loss=accept_loss), rejected)


def _open_own_source(config: JobConfig, *, accept_loss: bool) -> Source:
    source = config.source.unlimited() if config.takes_whole_source else config.source
    match source:
        case FilesOptions():
            if accept_loss:
                raise ConfigError(
                    "tideline run --accept-loss is for Kafka, which drops records by age. Of files: put back what was "
                    "truncated or replaced, or set source.on_truncate: restart, to go on behind what is lost and "
                    "record the hole"
                )
            from ingest.sources.files.source import FilesSource

            return FilesSource(source, on_unknown_field=config.on_unknown_field, storage=config.storage)
        case KafkaOptions():
            return _open_kafka(source, config.on_unknown_field, accept_loss=accept_loss)
        case StreamOptions():
            raise ConfigError(
                "source.type stream: a streaming query starts this job, not the command line: "
                'from ingest.stream import stream; stream(df, "job.yaml").start()'
            )
        case other:
            raise AssertionError(f"no source for {type(other).__name__}")


def _open_kafka(options: KafkaOptions, on_unknown_field: UnknownField, *, accept_loss: bool) -> Source:
    try:
        from ingest.sources.kafka.source import KafkaSource
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"source.type kafka needs a package that is not installed ({error.name}): pip install 'tideline[kafka]'"
        ) from error
    return KafkaSource(options, on_unknown_field=on_unknown_field, accept_loss=accept_loss)


def known_schema(opened: TimelineHandle) -> pa.Schema | None:
    """The columns to decode: declared in the job file, or stored with the first epoch; None before that."""
    if opened.config.arrow_schema is not None:
        return opened.config.arrow_schema
    if opened.identity is None:
        return None
    return _arrow(opened.identity.schema)


def table_rows(opened: TimelineHandle, decoded: pa.Schema) -> pa.Schema:
    """Columns of the rows that targets get.

    Args:
        opened: a timeline; the timeline of a job with a query must have been created.
        decoded: columns that are decoded.
    """
    if opened.config.transform is None:
        return opened.config.row_schema(decoded)
    assert opened.identity is not None
    result = opened.identity.result_schema
    # Tables of a timeline created without a query have the decoded rows.
    return opened.config.row_schema(decoded) if result is None else _arrow(result)


def check_result(opened: TimelineHandle, decoded: pa.Schema, result: pa.Schema) -> None:
    """Refuse a query whose columns differ from those at the timeline's creation.

    Args:
        opened: a timeline that has been created.
        decoded: columns that are decoded.
        result: columns of the query's result.

    Raises:
        ConfigError: columns differ; the message names them.
    """
    created, found = (
        {field.name: type_name(field.type) for field in each} for each in (table_rows(opened, decoded), result)
    )
    differences = [
        f"  {name}: the query gives {found.get(name, 'none')}, "
        f"the timeline was created with {created.get(name, 'none')}"
        for name in dict.fromkeys([*created, *found])
        if found.get(name) != created.get(name)
    ]
    if differences:
        listed = "\n".join(differences)
        raise ConfigError(
            f"transform: the query's columns are not those of {opened.store.url}:\n{listed}\n"
            "Change the query back, or start another table and timeline with it"
        )


def create_timeline(opened: TimelineHandle, schema: pa.Schema, result: pa.Schema | None = None) -> TimelineHandle:
    """Create the timeline with its fixed properties, or read those that another process has fixed.

    Args:
        opened: the timeline.
        schema: columns that are decoded.
        result: columns of the query's result, where the job has a query.

    Raises:
        TargetRefusedError: a target has rows of another timeline of this job.
        ConfigError: another job has created this timeline meanwhile.
    """
    config = opened.config
    _require_first(opened)
    rows = partitioned_schema(config.row_schema(schema) if result is None else result, config.partition_by)
    wanted = TableIdentity(
        timeline_id=uuid.uuid4().hex,
        name=config.name,
        schema={field.name: type_name(field.type) for field in schema},
        avro_schema=avro_schema(config.name, rows),
        partition_columns=tuple(field.column for field in config.partition_by),
        result_schema=None if result is None else {field.name: type_name(field.type) for field in result},
    )
    created = replace(opened, identity=create_identity(opened.store, wanted, opened.retry))
    created.claim()
    return created


def app_id_of(identity: TableIdentity) -> str:
    """Key of a timeline's markers in its targets."""
    return f"tideline-{identity.timeline_id}"


def lost_timeline(opened: TimelineHandle) -> str | None:
    """A message on a missing timeline of this job whose rows a target has; None where no target has any."""
    if opened.identity is not None or opened.allows_new_timeline:
        return None
    config = opened.config
    context = SinkContext("", pa.schema([]), storage=config.storage, job=config.name)
    for options in (*config.targets, config.quarantine):
        sink = remembering(_open_sink(options, context)) if options.lake_path is not None else None
        found = sink.other_timeline() if sink is not None else None
        if found is not None:
            return (
                f"{found} has rows of job {config.name!r} from another timeline than {opened.store.url}, which is new: "
                "was the timeline deleted or moved? A new one would read everything again, and every row would be "
                "there twice. Restore it, or let timeline.path lead to it; where that is meant, tideline run CONF "
                "--new-timeline"
            )
    return None


def _require_first(opened: TimelineHandle) -> None:
    """Refuse to create a timeline where one of this job is missing: everything would be read again."""
    lost = lost_timeline(opened)
    if lost is not None:
        raise TargetRefusedError(lost)


def build_job(opened: TimelineHandle, on_deleted: Callable[[DeletedFiles], None] | None = None) -> JobContext:
    """The job with its targets; the timeline must have been created.

    Args:
        opened: the job's timeline.
        on_deleted: see `sinks.base.SinkContext`.

    Raises:
        ConfigError: the job file omits columns that the timeline was created with, or changes their types.
    """
    assert opened.identity is not None
    _check_columns(opened, opened.identity)
    config, identity = opened.config, opened.identity
    schema = known_schema(opened)
    assert schema is not None
    context = SinkContext(
        app_id=app_id_of(identity),
        schema=table_rows(opened, schema),
        partition_by=config.partition_by,
        storage=config.storage,
        on_empty_partition=config.on_empty_partition,
        job=config.name,
        on_deleted=on_deleted,
    )
    sinks = [_open_sink(options, context) for options in config.targets]
    quarantine = _open_quarantine(config, identity, on_deleted)
    return JobContext(
        name=config.name,
        store=opened.store,
        identity=identity,
        sinks=(*sinks, quarantine),
        quarantine=quarantine.target,
        base_target=None if identity.result_schema is not None else _base_target(config, sinks),
        by=str(this_process()),
        retry=opened.retry,
        reading=_reading(config),
    )


def _reading(config: JobConfig) -> dict[str, str]:
    query = {} if config.transform is None else {"transform": config.transform}
    return config.source.reading | query


def _check_columns(opened: TimelineHandle, identity: TableIdentity) -> None:
    """Refuse a schema without a column of the timeline: its values would silently be null from now on."""
    declared = opened.config.arrow_schema
    if declared is None:
        return
    found = {field.name: type_name(field.type) for field in declared}
    differences = [
        f"  {name}: the timeline was created with {kind}, the job file has {found.get(name, 'no such column')}"
        for name, kind in identity.schema.items()
        if found.get(name) != kind
    ]
    if differences:
        listed = "\n".join(differences)
        raise ConfigError(
            f"schema: the columns are not those of {opened.store.url}:\n{listed}\n"
            "Put them back, or start another table and timeline with the new ones"
        )


def _base_target(config: JobConfig, sinks: Sequence[Sink]) -> str | None:
    """The target whose files Hudi's readers find by the timeline; they fail on files named by Spark."""
    if config.transform is not None:
        return None  # a query was added to a timeline created without one
    pairs = zip(sinks, config.targets, strict=True)
    return next((sink.target for sink, options in pairs if _is_at(options, config.timeline.path)), None)


def _is_at(options: TargetOptions, path: str) -> bool:
    place = options.lake_path
    return place is not None and resolved_place(place) == resolved_place(path)


def _open_quarantine(
    config: JobConfig, identity: TableIdentity | None, on_deleted: Callable[[DeletedFiles], None] | None = None
) -> Sink:
    """The sink of rejected rows; without an identity it has no app id, and is only read."""
    app_id = "" if identity is None else app_id_of(identity)
    context = SinkContext(app_id, QUARANTINE_SCHEMA, (), config.storage, job=config.name, on_deleted=on_deleted)
    return _open_sink(config.quarantine, context)


def _open_sink(options: TargetOptions, context: SinkContext) -> Sink:
    return load_sink(options.type).open(options, context)


def _arrow(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, parse_type(kind)) for name, kind in columns.items()])
