"""A small lake table on any object store: the reference for the sink protocol, and the tests' fake.

::

    <uuid>_<task>-<stage>-<attempt>_<t>.arrow    rows of one task, Arrow IPC
    _log/<version>.json                          put-if-absent; one entry for each applied epoch

The table keeps every rule of a real lake target (markers, an idempotent marker per job and epoch, atomic visibility)
and nothing else, so it shows the protocol without a table format. On a `MemoryStore` it lives as long as the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self, cast

import pyarrow as pa

from sinks.base import (
    BatchWriter,
    Lookup,
    ParallelRunner,
    PartitionWriter,
    SinkContext,
    TargetOptions,
    TaskAttempt,
    sequential,
)
from sinks.held import RESTORE_TIMELINE, Base, Held
from sinks.options import LakeOptions, QueryRows
from sinks.parquet.markers import Markers, draw_file_id, file_id
from timeline.body import BodyFormat
from timeline.epoch import EpochRef, Part, Plan, WriteReport, WrittenFile
from timeline.errors import CommitRejectedError, CommitUnknownError, StoreUnavailableError, TargetRefusedError
from timeline.failpoints import reach
from timeline.stores.base import ObjectStore, Retry, create_or_read
from timeline.stores.opening import open_store


class MemoryOptions(LakeOptions):
    """``{type: memory, path: memory://name}``: rows are kept in this process."""

    query_rows: ClassVar[QueryRows] = QueryRows.REFUSED


@dataclass(frozen=True)
class AppliedEpoch:
    """One applied epoch of one job."""

    app_id: str
    epoch: int
    instant: str
    files: tuple[str, ...]
    token: str


LOG_ENTRY = BodyFormat("table commit", AppliedEpoch)


@dataclass(frozen=True)
class MemorySink:
    """A target whose rows can be read back with `read`. See `sinks.base.Sink` for the protocol."""

    target: str
    app_id: str
    store: ObjectStore
    retry: Retry = field(default_factory=Retry)
    new_id: Callable[[], str] = draw_file_id

    Options = cast(type[TargetOptions], MemoryOptions)

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """See Sink."""
        assert isinstance(options, MemoryOptions)
        store = open_store(options.path, context.storage)
        return cls(options.name or f"memory:{options.path}", context.app_id, store)

    def ensure(self) -> None:
        """See Sink; takes any rows."""

    def begin(self, plan: Plan) -> PartitionWriter:
        """See Sink."""
        return _Writer(self._markers, plan.ref.instant, self.new_id)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        files = tuple(sorted((file for report in reports for file in report.files), key=lambda file: file.path))
        self._markers.delete_unreported(epoch.instant, [file.path for file in files])
        return Part(
            target=self.target,
            epoch=epoch,
            rows=sum(file.rows for file in files),
            bytes=sum(file.size for file in files),
            files=files,
        )

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink."""
        return self._markers.damaged(part.files)

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink."""
        if part.rows == 0:
            return
        entry = AppliedEpoch(
            self.app_id, part.epoch.epoch, part.epoch.instant, tuple(file.path for file in part.files), self.new_id()
        )
        while True:
            try:
                log = self._log()
            except StoreUnavailableError as error:
                # Nothing was put yet, or the entry that was put lost its version to another job for good.
                raise CommitRejectedError(f"{self.target}: {part.epoch} is not committed: {error}") from error
            if any(known.app_id == self.app_id and known.epoch >= entry.epoch for known in log):
                self._refuse_other_instant(log, part)
                return
            path = f"_log/{len(log):020d}.json"
            reach("part-committing")
            try:
                if create_or_read(self.store, path, LOG_ENTRY.dump(entry), self.retry) == LOG_ENTRY.dump(entry):
                    return
            except StoreUnavailableError as error:
                raise CommitUnknownError(f"{self.target}: {part.epoch} may be committed: {error}") from error

    def lookup(self, epoch: EpochRef) -> Lookup:
        """See Sink."""
        try:
            applied = any(entry.app_id == self.app_id and entry.epoch >= epoch.epoch for entry in self._log())
        except StoreUnavailableError:
            return Lookup.UNKNOWN
        return Lookup.COMMITTED if applied else Lookup.NOT_COMMITTED

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink."""
        return self._markers.abort(epoch, part)

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink."""
        self._markers.release(epoch, part, final=final)

    def unreleased(self) -> Sequence[str]:
        """See Sink."""
        return self._markers.instants()

    def contents(self) -> MemoryContents:
        """See HoldingSink."""
        return MemoryContents(self.app_id, self._log)

    def read(self) -> pa.Table:
        """All visible rows, in the order of the commits."""
        tables = [_load(self.store.get(path)) for entry in self._log() for path in entry.files]
        return pa.concat_tables(tables) if tables else pa.table({})

    def _refuse_other_instant(self, log: Sequence[AppliedEpoch], part: Part) -> None:
        for entry in log:
            same = (entry.app_id, entry.epoch) == (self.app_id, part.epoch.epoch)
            if same and entry.instant != part.epoch.instant:
                raise TargetRefusedError(
                    f"{self.target}: {part.epoch} is decided, but the table has epoch {entry.epoch} of instant "
                    f"{entry.instant}: the timeline is older than its table. {RESTORE_TIMELINE}"
                )

    @property
    def _markers(self) -> Markers:
        return Markers(self.store, self.app_id, self.retry)

    def _log(self) -> list[AppliedEpoch]:
        listed = self.retry.call(lambda: self.store.list("_log"))
        bodies = [(info.path, self.retry.call(partial(self.store.get, info.path))) for info in listed]
        return [LOG_ENTRY.load(path, body) for path, body in bodies]


@dataclass(frozen=True)
class MemoryContents:
    """Reads the log of one table; see `sinks.held.TargetContents`.

    Attributes:
        app_id: the job's key in the table.
        log: reads the table's log.
    """

    app_id: str
    log: Callable[[], Sequence[AppliedEpoch]]

    @property
    def place(self) -> str:
        """See TargetContents."""
        return ""

    def held(self, known: Base | None = None) -> Held:
        """See TargetContents; rows are never removed from this table, it can only be deleted as a whole."""
        log = self.log()
        newest = next((entry for entry in reversed(log) if entry.app_id == self.app_id), None)
        if not log:
            return Held(None)
        table = log[0].token
        if newest is None:
            return Held(table, len(log) - 1)
        return Held(table, len(log) - 1, newest.epoch, instant=newest.instant)

    def has_all(self, part: Part) -> bool:
        """See TargetContents."""
        seen = {path for entry in self.log() for path in entry.files}
        return all(file.path in seen for file in part.files)

    def missing_files(self) -> Sequence[str]:
        """See TargetContents."""
        return ()


@dataclass(frozen=True)
class _Writer:
    markers: Markers
    instant: str
    new_id: Callable[[], str]

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        return _MemoryBatchWriter(self, attempt)


class _MemoryBatchWriter:
    """Collects one task's rows and puts them as one object on close."""

    def __init__(self, writer: _Writer, attempt: TaskAttempt) -> None:
        self._writer = writer
        drawn = file_id(writer.markers.app_id, writer.new_id())
        self._path = f"{drawn}-0_{attempt.task}-{attempt.stage}-{attempt.attempt}_{writer.instant}.arrow"
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> WriteReport:
        table = pa.Table.from_batches(self._batches) if self._batches else pa.table({})
        if table.num_rows == 0:
            return WriteReport(0, 0)
        self._writer.markers.announce(self._writer.instant, self._path)
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table)
        body = buffer.getvalue().to_pybytes()
        self._writer.markers.store.put(self._path, body)
        return WriteReport(table.num_rows, len(body), (WrittenFile(self._path, len(body), table.num_rows),))

    def abort(self) -> None:
        self._batches.clear()
        # A file that cannot be deleted now is announced: rollback or release deletes it.
        with contextlib.suppress(StoreUnavailableError):
            self._writer.markers.store.delete([self._path])


def _load(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()
