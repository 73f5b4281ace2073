"""Rows as Arrow batches in one SQLite file; an epoch becomes visible in one transaction.

::

    attempts (attempt, job, instant)               a task attempt, noted before it writes anything
    chunks   (attempt, job, instant, body, epoch)  its rows; nobody sees them as long as epoch is null
    epochs   (job, epoch, instant)                 the job's marker: epochs that were committed
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

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
from timeline.epoch import EpochRef, Json, Part, Plan, WriteReport
from timeline.errors import CommitRejectedError, CommitUnknownError, StoreUnavailableError, TargetRefusedError

TABLES = """
CREATE TABLE IF NOT EXISTS attempts (attempt TEXT PRIMARY KEY, job TEXT, instant TEXT);
CREATE TABLE IF NOT EXISTS chunks (attempt TEXT, job TEXT, instant TEXT, body BLOB, epoch INT);
CREATE TABLE IF NOT EXISTS epochs (job TEXT, epoch INT, instant TEXT, PRIMARY KEY (job, epoch));
"""


class SqliteOptions(TargetOptions):
    """``{type: sqlite, file: rows.db}``: the target's block in a job file.

    Attributes:
        file: the SQLite file; the first rows make it.
    """

    takes_rejected: ClassVar[bool] = True

    file: str


@contextmanager
def transaction(file: str) -> Iterator[sqlite3.Connection]:
    """A transaction that writes: all of it lands, or nothing."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as db:
            db.executescript(TABLES)
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailableError(f"{file}: {error}") from error


def body_of(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes, its schema included."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(buffer.getvalue())


def batches_of(bodies: Sequence[tuple[bytes]]) -> Iterator[pa.RecordBatch]:
    """The batches that `body_of` made bytes of."""
    for (body,) in bodies:
        with pa.ipc.open_stream(body) as stream:
            yield from stream


@dataclass(frozen=True)
class SqliteSink:
    """A SQLite file as a target. See `sinks.base.Sink`."""

    target: str
    file: str
    job: str
    row_schema: pa.Schema

    Options = cast(type[TargetOptions], SqliteOptions)

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """See Sink."""
        assert isinstance(options, SqliteOptions)
        return cls(options.name or f"sqlite:{options.file}", options.file, context.app_id, context.schema)

    def ensure(self) -> None:
        """See Sink: rows of other columns must not be there."""
        for batch in self.read_rows(1):
            if batch.schema != self.row_schema:
                raise TargetRefusedError(
                    f"{self.target}: rows there have columns {batch.schema.names}; choose a new file"
                )

    def begin(self, plan: Plan) -> PartitionWriter:
        """See Sink."""
        return SqliteWriter(self.file, self.job, plan.ref.instant)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink: the part names the attempts that count."""
        attempts: list[Json] = [report.detail["attempt"] for report in reports if report.rows]
        rows, size = sum(report.rows for report in reports), sum(report.bytes for report in reports)
        dropped = sum(report.dropped for report in reports)
        return Part(self.target, epoch, rows, size, dropped=dropped, detail={"attempts": attempts})

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink."""
        with transaction(self.file) as db:
            there = {attempt for (attempt,) in db.execute("SELECT DISTINCT attempt FROM chunks")}
        return [f"rows of attempt {attempt} are missing" for attempt in attempts_of(part) if attempt not in there]

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink: an error is no answer, so the marker is looked up behind it."""
        if part.rows == 0:
            return
        try:
            self._commit(part)
        except StoreUnavailableError as error:
            match self.lookup(part.epoch):
                case Lookup.COMMITTED:
                    return
                case Lookup.NOT_COMMITTED:
                    raise CommitRejectedError(f"{self.target}: {part.epoch} is not committed: {error}") from error
                case Lookup.UNKNOWN:
                    raise CommitUnknownError(f"{self.target}: {part.epoch} may be committed: {error}") from error

    def _commit(self, part: Part) -> None:
        number, instant = part.epoch.epoch, part.epoch.instant
        with transaction(self.file) as db:
            newest = db.execute("SELECT max(epoch) FROM epochs WHERE job = ?", (self.job,)).fetchone()[0]
            if newest is not None and newest >= number:
                known = db.execute(
                    "SELECT instant FROM epochs WHERE job = ? AND epoch = ?", (self.job, number)
                ).fetchone()
                if known is not None and known[0] != instant:
                    raise TargetRefusedError(f"{self.target}: has epoch {number} of instant {known[0]}, not {instant}")
                return
            for attempt in attempts_of(part):
                db.execute("UPDATE chunks SET epoch = ? WHERE attempt = ?", (number, attempt))
            db.execute("INSERT INTO epochs VALUES (?, ?, ?)", (self.job, number, instant))

    def lookup(self, epoch: EpochRef) -> Lookup:
        """See Sink: no answer is UNKNOWN, and never no."""
        try:
            newest = self.snapshots().newest()
        except StoreUnavailableError:
            return Lookup.UNKNOWN
        return Lookup.COMMITTED if newest is not None and newest >= epoch.epoch else Lookup.NOT_COMMITTED

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink: the rows go, the notes of the attempts stay until `release`."""
        with transaction(self.file) as db:
            self._delete_invisible(db, epoch)
            return [attempt for (attempt,) in self._attempts(db, epoch)]

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink: late rows go; so do the notes of attempts that counted, and of all where none can be alive."""
        over = attempts_of(part) if part is not None else []
        with transaction(self.file) as db:
            self._delete_invisible(db, epoch)
            for (attempt,) in self._attempts(db, epoch):
                if final or attempt in over:
                    db.execute("DELETE FROM attempts WHERE attempt = ?", (attempt,))

    def unreleased(self) -> Sequence[str]:
        """See Sink."""
        with transaction(self.file) as db:
            found = db.execute("SELECT DISTINCT instant FROM attempts WHERE job = ? ORDER BY instant", (self.job,))
            return [instant for (instant,) in found]

    def read_rows(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """See ReadableSink, by which `tideline read` prints rows."""
        with transaction(self.file) as db:
            bodies = db.execute("SELECT body FROM chunks WHERE epoch IS NOT NULL ORDER BY epoch, rowid").fetchall()
        left = limit
        for batch in batches_of(bodies):
            if left == 0:
                return
            yield batch.slice(0, left)
            left = None if left is None else max(0, left - batch.num_rows)

    def snapshots(self) -> SqliteRows:
        """See SnapshotSink, by which records of a quarantine are replayed."""
        return SqliteRows(self.file, self.job)

    def _attempts(self, db: sqlite3.Connection, epoch: EpochRef) -> Sequence[tuple[str]]:
        of_epoch = "SELECT attempt FROM attempts WHERE job = ? AND instant = ? ORDER BY attempt"
        return db.execute(of_epoch, (self.job, epoch.instant)).fetchall()

    def _delete_invisible(self, db: sqlite3.Connection, epoch: EpochRef) -> None:
        of_epoch = "DELETE FROM chunks WHERE job = ? AND instant = ? AND epoch IS NULL"
        db.execute(of_epoch, (self.job, epoch.instant))


def attempts_of(part: Part) -> list[str]:
    """The task attempts whose rows are a part's."""
    attempts = part.detail["attempts"]
    assert isinstance(attempts, list)
    return [str(attempt) for attempt in attempts]


@dataclass(frozen=True)
class SqliteWriter:
    """See PartitionWriter; picklable, for it travels to the tasks."""

    file: str
    job: str
    instant: str

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """See PartitionWriter."""
        return SqliteBatchWriter(self)


class SqliteBatchWriter:
    """See BatchWriter: each batch is written at once, so no rows wait in memory."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._attempt = uuid.uuid4().hex
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See BatchWriter: the note of the attempt is put with its first rows."""
        if not batch.num_rows:
            return
        body, of_attempt = body_of(batch), (self._attempt, self._writer.job, self._writer.instant)
        with transaction(self._writer.file) as db:
            db.execute("INSERT OR IGNORE INTO attempts VALUES (?, ?, ?)", of_attempt)
            db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, NULL)", (*of_attempt, body))
        self._rows += batch.num_rows
        self._bytes += len(body)

    def close(self) -> WriteReport:
        """See BatchWriter: everything is durable already."""
        return WriteReport(self._rows, self._bytes, detail={"attempt": self._attempt})

    def abort(self) -> None:
        """See BatchWriter: what stays is found by its note."""


@dataclass(frozen=True)
class SqliteRows:
    """See SnapshotRows: a version is the number of a committed epoch."""

    file: str
    job: str

    def newest(self) -> int | None:
        """See SnapshotRows."""
        with transaction(self.file) as db:
            found: int | None = db.execute("SELECT max(epoch) FROM epochs WHERE job = ?", (self.job,)).fetchone()[0]
            return found

    def read(self, version: int, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        """See SnapshotRows."""
        with transaction(self.file) as db:
            known = "SELECT body FROM chunks WHERE job = ? AND epoch <= ?"
            bodies = db.execute(known, (self.job, version)).fetchall()
        for batch in batches_of(bodies):
            yield from pa.Table.from_batches([batch]).filter(where).select(list(columns)).to_batches()
