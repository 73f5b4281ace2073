"""A small target with transactions on any store; tests make it lose a transaction, or be busy.

::

    txn/<instant>-<start>/begun        a transaction that has begun; `start` is drawn anew each time
    txn/<instant>-<start>/rows-<n>     rows of one task
    txn/<instant>-<start>/rolled-back  a reader rolled it back: it can never be committed
    epoch/<epoch>                      put-if-absent; the rows of the transaction that was committed
    told/<what>                        remaining times of an injected fault, `LOSE` or `BUSY`
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Self, cast

import pyarrow as pa

from ingest.config.registry import SINK_GROUP
from sinks.base import Lookup, ParallelRunner, PartitionWriter, SinkContext, TargetOptions, TaskAttempt, sequential
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import AlreadyExistsError, ReplayNeededError, TargetBusyError
from timeline.failpoints import reach
from timeline.stores.base import ObjectStore, Retry, read_or_none, size_of
from timeline.stores.opening import open_store

_WITH_THIS = EntryPoints(
    [
        *entry_points(group=SINK_GROUP),
        EntryPoint("transactions", "tests.transaction_sink:TransactionSink", SINK_GROUP),
    ]
)


def installed() -> EntryPoints:
    """Replacement of `ingest.config.registry.installed_sinks` for job files that name this target."""
    return _WITH_THIS


LOSE, BUSY = "lose", "busy"
"""Faults: roll back a transaction before its commit; refuse to begin one, as if another writer held the rows."""


class TransactionOptions(TargetOptions):
    """``{type: transactions, place: memory://name}``: a target without a path."""

    place: str
    whole: bool = False

    @property
    def takes_whole_source(self) -> bool:
        return self.whole


def tell(store: ObjectStore, what: str, times: int) -> None:
    """Inject a fault that many times."""
    store.put(f"told/{what}", str(times).encode())


def still_told(store: ObjectStore, what: str) -> int:
    """Remaining times of an injected fault."""
    return int(read_or_none(store, f"told/{what}", Retry()) or b"0")


def committed(store: ObjectStore, column: str = "number") -> list[int]:
    """Visible values of a column, sorted."""
    rows = [row for info in store.list("epoch") for row in json.loads(store.get(info.path))]
    return sorted(row[column] for row in rows)


class TransactionSink:
    """See the module, and `sinks.base.Sink`."""

    Options = cast(type[TargetOptions], TransactionOptions)

    def __init__(self, target: str, store: ObjectStore, *, drops: int = 0) -> None:
        """A target at the root of a store that drops the first `drops` rows of each task."""
        self._target = target
        self._store = store
        self._drops = drops
        self._begun: dict[str, str] = {}

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        assert isinstance(options, TransactionOptions)
        return cls(options.name or "transactions", open_store(options.place, context.storage))

    @property
    def target(self) -> str:
        return self._target

    def ensure(self) -> None: ...

    def begin(self, plan: Plan) -> PartitionWriter:
        if self._is_told(BUSY):
            raise TargetBusyError(f"{self.target}: {plan.ref}: someone else writes these rows")
        folder = self._begun.get(plan.ref.instant)
        if folder is None:
            folder = self._begun[plan.ref.instant] = f"txn/{plan.ref.instant}-{uuid.uuid4().hex}"
            self._store.put(f"{folder}/begun", b"")
            reach("transaction-begun")
        return _Writer(self._store, folder, self._drops)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        return Part(
            self.target,
            epoch,
            sum(report.rows for report in reports),
            sum(report.bytes for report in reports),
            dropped=sum(report.dropped for report in reports),
            detail={
                "folder": self._begun[epoch.instant],
                "rows": [report.detail["path"] for report in reports if report.rows],
            },
        )

    def verify(self, part: Part) -> Sequence[str]:
        return [f"transaction {part.detail['folder']} was rolled back"] if self._is_lost(part) else []

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        if part.rows == 0 or self.lookup(part.epoch) is Lookup.COMMITTED:
            return
        if not self._is_lost(part) and self._is_told(LOSE):
            self._store.put(f"{part.detail['folder']}/rolled-back", b"")
        if self._is_lost(part):
            self._begun.pop(part.epoch.instant, None)
            raise ReplayNeededError(f"{self.target}: {part.epoch}: transaction {part.detail['folder']} was rolled back")
        paths = cast(list[str], part.detail["rows"])
        rows = [row for path in paths for row in json.loads(self._store.get(path))]
        try:
            self._store.put_if_absent(_record(part.epoch.epoch), json.dumps(rows).encode())
        except AlreadyExistsError:
            return
        reach("primary-committed")

    def lookup(self, epoch: EpochRef) -> Lookup:
        is_there = any(info.path >= _record(epoch.epoch) for info in self._store.list("epoch"))
        return Lookup.COMMITTED if is_there else Lookup.NOT_COMMITTED

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        gone = sorted(self.transactions(epoch.instant))
        for path in gone:
            self._store.delete([path])
        return gone

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        self.abort(epoch, part)

    def unreleased(self) -> Sequence[str]:
        return sorted({path.split("/")[1].partition("-")[0] for path in self.transactions("")})

    def transactions(self, instant: str) -> list[str]:
        """Paths of an instant's transactions, none of which is visible; of all instants for ``""``."""
        listed = self._store.list("txn", recursive=True)
        return [info.path for info in listed if info.path.startswith(f"txn/{instant}")]

    def _is_lost(self, part: Part) -> bool:
        return size_of(self._store, f"{part.detail['folder']}/rolled-back") is not None

    def _is_told(self, what: str) -> bool:
        left = still_told(self._store, what)
        if left:
            tell(self._store, what, left - 1)
        return left > 0


def _record(epoch: int) -> str:
    return f"epoch/{epoch:020d}"


@dataclass(frozen=True)
class _Writer:
    store: ObjectStore
    folder: str
    drops: int

    def open(self, attempt: TaskAttempt) -> _BatchWriter:
        return _BatchWriter(self, attempt)


class _BatchWriter:
    def __init__(self, writer: _Writer, attempt: TaskAttempt) -> None:
        self._writer = writer
        self._path = f"{writer.folder}/rows-{attempt.task}-{attempt.attempt}"
        self._rows: list[Mapping[str, object]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.to_pylist()

    def close(self) -> WriteReport:
        dropped = min(self._writer.drops, len(self._rows))
        body = json.dumps(self._rows[dropped:]).encode()
        self._writer.store.put(self._path, body)
        return WriteReport(len(self._rows) - dropped, len(body), dropped=dropped, detail={"path": self._path})

    def abort(self) -> None:
        self._writer.store.delete([self._path])
