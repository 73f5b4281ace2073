"""A Delta table as a target: executors write Parquet, one log entry makes an epoch visible.

::

    load the log ─→ marker (app id) ≥ epoch? ── yes ─→ done
         ▲                  │ no
         │                  ▼
         │          can the table take the files? ── no ─→ TargetRefusedError
         │                  │ yes
         └── any error ── put version + 1: files + marker, on the log just read

No other program compares markers, so comparison and put must refer to one state of the log: the put is
for the next version and fails when another writer was faster. An error is never taken for an answer: the
log is read again, and either has the marker or does not.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal, Self, cast

import pyarrow as pa
from pydantic import ByteSize, Field

from sinks.base import DeletedFiles, Lookup, ParallelRunner, PartitionWriter, SinkContext, TargetOptions, sequential
from sinks.delta import spark_files
from sinks.delta.bounds import indexed_columns, with_all_bounds_or_none
from sinks.delta.contents import DeltaContents, naming_target
from sinks.delta.copies import DeltaCopies
from sinks.delta.entry import INSTANT, MISSING, DeltaLogEntry, JobMarker
from sinks.delta.lake_audit import LakeAuditor
from sinks.delta.location import delta_location, delta_storage_options, trusted_authorities
from sinks.delta.log import DeltaLog
from sinks.delta.reader import DeltaRows
from sinks.delta.rules import TableState, delta_schema, differences
from sinks.delta.snapshot import TableSnapshot
from sinks.held import REPLAY, RESTORE_TIMELINE, Base, Held, base_of, lost_since, with_base
from sinks.options import LakeOptions, QueryRows
from sinks.parquet.markers import Markers
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.parquet.table_files import ParquetSettings
from sinks.partition import EmptyPartition, PartitionField, partitioned_schema
from timeline.concurrency import map_concurrently
from timeline.epoch import EpochRef, Part, Plan, WriteReport, WrittenFile
from timeline.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvariantError,
    StoreError,
    StoreUnavailableError,
    TargetRefusedError,
)
from timeline.failpoints import reach
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.opening import open_store
from timeline.units import count

_LOG = logging.getLogger(__name__)


class DeltaOptions(LakeOptions):
    """``{type: delta, path: lake/events}``: a Delta table, created by the first rows.

    Attributes:
        path: the table's folder: a local path or an ``s3://`` URL.
        target_file_bytes: size at which a data file is closed.
        compression: codec of the data files.
    """

    query_rows: ClassVar[QueryRows] = QueryRows.FILES

    target_file_bytes: ByteSize = Field(default=ByteSize(128 * 1024 * 1024), gt=0)
    compression: Literal["zstd", "snappy", "none"] = "zstd"


@dataclass
class DeltaSink:
    """One Delta table of a job. See `sinks.base.Sink` for the protocol; not for use by several threads.

    Attributes:
        target: the target's name in the job.
        app_id: key of this job's marker in the table.
        schema: columns of the rows.
        partition_by: partition fields of the table.
        store: the table's folder.
        log: the table's log.
        settings: size and compression of data files.
        on_empty_partition: treatment of rows with an empty text in a partition column.
        retry: retry bounds of single reads and deletes.
        commit_retry: retry bounds of a commit that other writers are faster than.
        job: identifies the job's timeline in the table; None where that is not needed.
        wall_clock: seconds since 1970, for the log's commit information.
        on_deleted: see `sinks.base.SinkContext`.
    """

    target: str
    app_id: str
    schema: pa.Schema
    partition_by: tuple[PartitionField, ...]
    store: ObjectStore
    log: DeltaLog
    settings: ParquetSettings = field(default_factory=ParquetSettings)
    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE
    retry: Retry = field(default_factory=Retry)
    commit_retry: Retry = field(default_factory=lambda: Retry(attempts=20, deadline_s=60.0))
    job: JobMarker | None = None
    wall_clock: Callable[[], float] = time.time
    on_deleted: Callable[[DeletedFiles], None] | None = None
    _already_cleaned: set[str] = field(default_factory=set, init=False, repr=False)
    _fit: TableState | None = field(default=None, init=False, repr=False)
    _contents: DeltaContents = field(init=False, repr=False)

    Options = cast(type[TargetOptions], DeltaOptions)

    def __post_init__(self) -> None:
        self._contents = DeltaContents(self.target, self.store, self.log, self.retry)

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """See Sink.

        Raises:
            ConfigError: delta-rs cannot write to such a path, or the schema cannot be partitioned so.
        """
        assert isinstance(options, DeltaOptions)
        location = delta_location(options.path)
        store = open_store(location, context.storage)
        sink = cls(
            target=options.name or f"delta:{options.path}",
            app_id=context.app_id,
            schema=context.schema,
            partition_by=context.partition_by,
            store=store,
            log=DeltaLog(
                location,
                store,
                context.app_id,
                delta_storage_options(location, context.storage),
                trusted_authorities(location, context.storage),
            ),
            settings=ParquetSettings(target_file_bytes=options.target_file_bytes, compression=options.compression),
            on_empty_partition=context.on_empty_partition,
            job=JobMarker.of(context.job, context.app_id) if context.job else None,
            on_deleted=context.on_deleted,
        )
        partitioned_schema(sink.schema, sink.partition_by)
        return sink

    def ensure(self) -> None:
        """See Sink. Also removes unfinished puts of killed processes."""
        self.retry.call(self.store.remove_stale_uploads)
        table = self.retry.call(self._contents.load)
        if table is not None:
            self._refuse_unless_fit(table)
            return
        listed = self.retry.call(lambda: self.store.list("", recursive=True))
        if listed and not any(info.path.startswith(".hoodie/") for info in listed):
            raise TargetRefusedError(
                f"{self.target}: {self.store.url} holds {count(len(listed), 'object')} (first: {listed[0].path}), but "
                f"neither a Delta table nor a timeline. Write to an empty folder, or convert the files to Delta first"
            )

    def begin(self, plan: Plan) -> PartitionWriter:
        """See Sink."""
        return ParquetPartitionWriter(
            # Tasks delete no files that the driver counts, and the callback cannot be pickled.
            replace(self._markers, on_deleted=None),
            plan.ref.instant,
            self.schema,
            self.partition_by,
            self.settings,
            self.on_empty_partition,
        )

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        files = tuple(sorted((file for report in reports for file in report.files), key=lambda file: file.path))
        if len({file.path for file in files}) != len(files):
            raise InvariantError(f"{self.target}: {epoch}: two task reports name the same file; nothing was committed")
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        contents = self._contents
        return Part(
            target=self.target,
            epoch=epoch,
            rows=rows,
            bytes=size,
            files=files,
            dropped=sum(report.dropped for report in reports),
            rejected=sum(report.rejected for report in reports),
            detail=with_base(
                {key: value for report in reports for key, value in report.detail.items()},
                replace(contents.base or contents.held().base, place=contents.place),
            ),
        )

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink."""
        return self._markers.damaged(part.files)

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink."""
        if part.rows == 0:
            return
        put = _Put()
        try:
            looks: Sequence[Callable[[], TableSnapshot | None]] = (
                partial(self._delete_unreported, part),
                self._cached_snapshot,
            )
            _, known = map_concurrently(lambda look: look(), looks, self.store.traits.requests_at_once)
            self.commit_retry.call(partial(self._commit_once, part, put, known))
        except StoreUnavailableError as error:
            self._give_up(part, put, error)

    def lookup(self, epoch: EpochRef) -> Lookup:
        """See Sink."""
        try:
            table = self.retry.call(self._contents.load)
        except (StoreError, TargetRefusedError) as error:
            _LOG.warning("%s: %s cannot be looked up: %s", self.target, epoch, error)
            return Lookup.UNKNOWN
        return Lookup.COMMITTED if self._has(table, epoch) else Lookup.NOT_COMMITTED

    def contents(self) -> DeltaContents:
        """See HoldingSink."""
        return self._contents

    def copies(self) -> DeltaCopies:
        """See CopyingSink."""
        return DeltaCopies(self.target, self.app_id, self._table_schema, self.store, self._markers, self.retry)

    def auditor(self) -> LakeAuditor:
        """See AuditedSink."""
        return LakeAuditor(self.app_id, self._contents, self._markers)

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink."""
        return spark_files.abort(self._markers, epoch, part)

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink."""
        spark_files.release(self._markers, epoch, part, final=final)

    def unreleased(self) -> Sequence[str]:
        """See Sink."""
        return self._markers.instants()

    def snapshots(self) -> DeltaRows:
        """See SnapshotSink; snapshots of this job's data files, or of all where the job has no key yet."""
        log = self.log
        return DeltaRows(log.location, log.storage_options, log.authorities, self.app_id or None)

    def other_timeline(self) -> str | None:
        """See RememberingSink."""
        if self.job is None:
            return None
        job = self.job
        with naming_target(self.target):
            found = self.retry.call(lambda: self.log.version_of(job.key))
        return None if found in (None, job.version) else f"{self.target} (the Delta table at {self.log.location})"

    @property
    def _table_schema(self) -> pa.Schema:
        """The table's columns: those of the rows, and those that the partitioning adds."""
        return partitioned_schema(self.schema, self.partition_by)

    @property
    def _partition_columns(self) -> list[str]:
        """The table's partition columns, in the order of the folders."""
        return [by.column for by in self.partition_by]

    @property
    def _markers(self) -> Markers:
        on_deleted = None if self.on_deleted is None else self._count_deleted
        return Markers(self.store, self.app_id, self.retry, on_deleted, self._already_cleaned)

    def _count_deleted(self, files: int, size: int) -> None:
        assert self.on_deleted is not None
        self.on_deleted(DeletedFiles(self.target, files, size))

    def _cached_snapshot(self) -> TableSnapshot | None:
        return self.retry.call(self.log.cached_snapshot)

    def _delete_unreported(self, part: Part) -> None:
        """Delete files of an epoch's lost task attempts, so that readers that list files never read their rows."""
        lost = spark_files.without_folders(
            self._markers.delete_unreported(part.epoch.instant, [file.path for file in part.files])
        )
        if lost:
            _LOG.info("%s: %s: deleted %s of lost task attempts", self.target, part.epoch, count(len(lost), "file"))

    def _commit_once(self, part: Part, put: _Put, known: TableSnapshot | None) -> None:
        # The first attempt relies on the cached snapshot: a later version of another writer makes the put fail.
        table = (known if put.version is None else None) or self._contents.load()
        put.settled_by(table)
        if self._has(table, part.epoch):
            self._refuse_other_instant(table, part)
            return
        if table is not None:
            self._refuse_unless_fit(table)
        base = base_of(part)
        self._refuse_unless_whole(table, base, part)
        missing = base.missing if base is not None else ()
        entry = DeltaLogEntry(
            epoch=part.epoch.epoch,
            files=self._with_bounds(part.files, table),
            metadata={
                "tideline.epoch": str(part.epoch.epoch),
                INSTANT: part.epoch.instant,
                "tideline.generation": str(part.epoch.generation),
                **({MISSING: json.dumps(missing)} if missing else {}),
            },
            written_ms=int(self.wall_clock() * 1000),
            job=self.job,
        )
        reach("part-committing")
        if table is None:
            put.version = 0
            self.log.create(self._table_schema, self._partition_columns, entry)
            self._contents.base = Base(None, 0, part.epoch.epoch)  # the id is known once the table is opened
        else:
            put.version = table.version + 1
            with naming_target(self.target, f"{part.epoch} is not committed: ", f". {REPLAY}"):
                self.log.append(table, entry)
            self._contents.base = Base(table.state.table_id, put.version, part.epoch.epoch)
        _LOG.info("%s: %s: version %d, %s", self.target, part.epoch, put.version, count(part.rows, "row"))

    def _with_bounds(self, files: Sequence[WrittenFile], table: TableSnapshot | None) -> list[WrittenFile]:
        """The files, with statistics that never make a reader skip a matching row."""
        made = delta_schema(self._table_schema).to_json() if table is None else table.state.schema_json
        properties = table.state.configuration if table is not None else {}
        indexed = indexed_columns(made, self._partition_columns, properties)
        written = self._table_schema.names
        return [replace(file, stats=with_all_bounds_or_none(file.stats, indexed, written)) for file in files]

    def _give_up(self, part: Part, put: _Put, error: StoreUnavailableError) -> None:
        """After the last attempt: return if the commit landed after all, else raise one of the two errors."""
        try:
            table = self._contents.load()
        except StoreUnavailableError:
            table = None
        put.settled_by(table)
        if self._has(table, part.epoch):
            return
        if put.version is None:
            raise CommitRejectedError(
                f"{self.target}: {part.epoch} did not get into {self.log.location}: {error}. Trying again is safe"
            ) from error
        raise CommitUnknownError(
            f"{self.target}: {part.epoch} may be version {put.version} of {self.log.location}, the store does not "
            f"tell: {error}. Delete nothing; recover when the store answers"
        ) from error

    def _has(self, table: TableSnapshot | None, epoch: EpochRef) -> bool:
        return table is not None and table.applied is not None and table.applied >= epoch.epoch

    def _refuse_other_instant(self, table: TableSnapshot | None, part: Part) -> None:
        """Refuse the same epoch of another instant, where the entry of the marker, which names it, is at hand."""
        if table is None or table.applied != part.epoch.epoch or table.newest is None:
            return
        there = self.log.held(table, None).instant
        if there is not None and there != part.epoch.instant:
            raise TargetRefusedError(
                f"{self.target}: {part.epoch} is decided, but {self.log.location} has epoch {part.epoch.epoch} of "
                f"instant {there}: the timeline is older than its table. {RESTORE_TIMELINE}"
            )

    def _refuse_unless_whole(self, table: TableSnapshot | None, base: Base | None, part: Part) -> None:
        """Refuse a table that lost epochs since the part was prepared."""
        if base is None or base.newest is None:
            return
        held = Held(None) if table is None else self.log.held(table, base)
        gone = lost_since(base, held)
        if gone is not None:
            raise TargetRefusedError(
                f"{self.target}: {part.epoch} is not committed: {self.log.location} {gone.how}: {gone.words} from "
                f"it. {REPLAY}"
            )

    def _refuse_unless_fit(self, table: TableSnapshot) -> None:
        if table.state is self._fit:
            return
        found = differences(table.state, self._table_schema, self._partition_columns)
        if found:
            lines = "\n".join(f"  {line}" for line in found)
            raise TargetRefusedError(
                f"{self.target}: the Delta table at {self.log.location} cannot take this job's rows:\n{lines}\n"
                f"Change the job's schema or partition_by, change the table, or write to another path"
            )
        self._fit = table.state


@dataclass
class _Put:
    """The version last put, as long as the outcome is unknown."""

    version: int | None = None

    def settled_by(self, table: TableSnapshot | None) -> None:
        """Forget the version once the log has reached it: it is ours, with the marker, or another writer's."""
        if table is not None and self.version is not None and table.version >= self.version:
            self.version = None
