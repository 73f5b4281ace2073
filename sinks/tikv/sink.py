"""A TiKV cluster as a target: an epoch's rows and its marker become visible in one Percolator transaction.

::

    driver      begin ── attempt recorded, primary prewritten ─────── [decision] ── primary committed ── settled
    executors     └ stage ── rows of a key meet ── prewritten                          └ locks resolved by region ┘

    process dies                     state                       recovery
    before the primary               an attempt record           roll the transaction back
    before the decision              locks                       by the decision: commit, or roll back
    after the decision               locks, TTL running          commit the primary; readers may have rolled it
                                                                 back: ReplayNeededError, the epoch is written again
    after the primary                locks that lead to it       settle; readers see all of it already

The primary is the epoch record, one key for each epoch of a job, so two attempts of one epoch
conflict there and one loses. No state about the rows has to survive a process: locks are found by
the start timestamp, which the attempt record and the manifest hold.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from sinks.base import KeyedWriter, ParallelRunner, PartitionWriter, TargetOptions, sequential
from sinks.tikv.auditor import TikvAuditor
from sinks.tikv.heartbeat import Heartbeat, keep_versions, release_versions, safe_point_service
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.locks import CommittedTxn, RolledBackTxn, UnknownTxn, look_up
from sinks.tikv.mutations import mutation
from sinks.tikv.options import TikvOptions
from sinks.tikv.records import ATTEMPT, PREPARED, SPANS, Attempt, Prepared, epoch_record
from sinks.tikv.settling import Span, run_concurrently, settlings
from sinks.tikv.table import TikvTable
from sinks.tikv.transaction import Transaction, commit, prewrite, roll_back
from sinks.tikv.writer import TransactionWriter
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvariantError,
    ReplayNeededError,
    StoreUnavailableError,
    TargetBusyError,
)
from timeline.failpoints import reach
from timeline.units import count

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)

_FEW_ROWS = 200_000
"""The driver settles up to this many rows itself: a job on the engine would take longer to start."""


@dataclass
class _Open:
    """An open transaction of this process.

    Attributes:
        transaction: the transaction.
        heartbeat: keeps the transaction alive.
        stop: the sink's finalizer; stops the heartbeat, and releases the reference to it.
    """

    transaction: Transaction
    heartbeat: Heartbeat
    stop: Callable[[], object]


@dataclass
class TransactionSink(TikvTable):
    """One transaction for each epoch. See `sinks.base.Sink` for the protocol; not thread-safe."""

    _open: dict[str, _Open] = field(default_factory=dict, repr=False)
    _settled: set[int] = field(default_factory=set, repr=False)

    Options = cast(type[TargetOptions], TikvOptions)

    def begin(self, plan: Plan) -> PartitionWriter | KeyedWriter:
        """See Sink; the transaction's primary is locked on return."""
        if plan.ref.instant not in self._open:
            self._open[plan.ref.instant] = self._begin(plan)
            reach("transaction-begun")
        return TransactionWriter(self.endpoint, self._open[plan.ref.instant].transaction, self.rules)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        opened = self._open.get(epoch.instant)
        if opened is None:
            raise InvariantError(f"{self.target}: {epoch} was not begun by this process")
        if opened.heartbeat.is_lost:
            raise TargetBusyError(
                f"{self.target}: {epoch}: transaction {opened.transaction.start_ts} was rolled back by others: its "
                "heartbeats did not get through; raise lock_ttl above the time that an epoch takes: clients that go "
                "by a row's own lock alone (tikv-client) end a transaction that is older, though its writer lives"
            )
        rows = sum(report.rows for report in reports)
        transaction = opened.transaction
        return Part(
            target=self.target,
            epoch=epoch,
            rows=rows,
            bytes=sum(report.bytes for report in reports),
            dropped=sum(report.dropped for report in reports),
            rejected=sum(report.rejected for report in reports),
            detail=PREPARED.dump_python(
                Prepared(
                    str(self.client.pd.cluster_id),
                    transaction.start_ts,
                    transaction.primary.hex(),
                    transaction.ttl_ms,
                    tuple(SPANS.validate_python(report.detail["spans"]) for report in reports if report.rows),
                ),
                mode="json",
            ),
        )

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink."""
        if part.rows == 0:
            return []
        transaction = _prepared(part).transaction
        match look_up(self.client, transaction.primary, transaction.start_ts):
            case RolledBackTxn() | UnknownTxn():
                if self.is_applied(part.epoch):
                    return []
                return [f"transaction {transaction.start_ts} was rolled back, after its TTL, by whoever met its locks"]
            case _:
                return []

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink."""
        if part.rows == 0:
            return
        try:
            self.check_cluster(part, _prepared(part).cluster_id)
            if self.is_applied(part.epoch):
                for attempt in self.records.attempts(part.epoch.instant):
                    self._end(attempt)
                return
            reach("part-committing")
        except StoreUnavailableError as error:
            raise CommitRejectedError(f"{self.target}: {part.epoch} is not committed: {error}") from error
        transaction = _prepared(part).transaction
        try:
            commit_ts = commit(self.client, transaction)
        except StoreUnavailableError as error:
            raise CommitUnknownError(f"{self.target}: {part.epoch} may be committed: {error}") from error
        except ReplayNeededError as error:
            self._stop_heartbeat(part.epoch)
            if self.is_applied(part.epoch):
                return
            raise ReplayNeededError(
                f"{self.target}: {part.epoch} is decided, and its {error}. Nothing of it is visible; it has to be "
                "written again from its offsets: tideline run does that"
            ) from error
        self._stop_heartbeat(part.epoch)
        reach("primary-committed")
        try:
            calls = settlings(self.client, transaction.start_ts, commit_ts, _spans(_prepared(part)))
            (parallel if part.rows > _FEW_ROWS and parallel is not sequential else run_concurrently)(calls)
        except StoreUnavailableError as error:
            raise CommitUnknownError(
                f"{self.target}: {part.epoch} is committed, its locks are not all resolved: {error}"
            ) from error
        self._settled = {transaction.start_ts}
        _LOG.info("%s: %s: committed at %d, %s", self.target, part.epoch, commit_ts, count(part.rows, "row"))

    def read_rows(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """See ReadableSink; in key order, read by tikv-client."""
        from sinks.tikv.reader import read_rows  # loads tikv-client, which only readers need

        return read_rows(self, limit)

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink; rolls back all transactions of this instant, and resolves their locks."""
        self._stop_heartbeat(epoch)
        attempts = self.records.attempts(epoch.instant)
        for attempt in attempts:
            if not attempt.is_settled and self._end(attempt) is not None:
                raise InvariantError(
                    f"{self.target}: {epoch} is to be rolled back, but its transaction {attempt.start_ts} is committed"
                )
        self._write_attempts(replace(attempt, is_settled=True) for attempt in attempts if not attempt.is_settled)
        return [f"transaction {attempt.start_ts}" for attempt in attempts]

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink; settles late locks, then deletes records that are no longer needed."""
        self._stop_heartbeat(epoch)
        reported = _prepared(part).transaction.start_ts if part is not None else None
        gone: list[bytes] = []
        kept: list[Attempt] = []
        for attempt in self.records.attempts(epoch.instant):
            is_settled = attempt.is_settled or attempt.start_ts in self._settled
            # A late task of another attempt may still lock rows. The attempt record stays as long as that task may
            # live; the prefix is searched for locks once more at the end of that time, not at every start.
            if final or not is_settled:
                self._end(attempt)
            # Before the record is deleted: only the record leads to the name of the service.
            release_versions(self.client, self._service(attempt.start_ts))
            if final or attempt.start_ts == reported:
                gone.append(self.records.attempt_key(epoch.instant, attempt.start_ts))
            elif not is_settled:
                kept.append(replace(attempt, is_settled=True))
        if part is not None:
            gone += self.older_records(epoch)
        self._write_attempts(kept)
        if gone:
            self.records.write([(key, None) for key in gone], self.ttl_ms)

    def unreleased(self) -> Sequence[str]:
        """See Sink."""
        return sorted({attempt.instant for attempt in self.records.attempts()})

    def auditor(self) -> TikvAuditor:
        """See AuditedSink."""
        return TikvAuditor(self, self._end)

    def _service(self, start_ts: int) -> str:
        return safe_point_service(self.app_id, self.prefix, start_ts)

    def _begin(self, plan: Plan) -> _Open:
        """Record the attempt, then lock its primary: from now on every lock can be found."""
        client, ref = self.client, plan.ref
        for attempt in self.records.attempts(ref.instant):
            self._end(attempt)  # of a dead process that wrote the same instant
        primary = self.records.epoch_key(ref.epoch)
        began_s = time.monotonic()
        transaction = Transaction(client.pd.timestamp(), primary, self.ttl_ms)
        attempt = Attempt(
            ref.epoch, ref.instant, ref.generation, transaction.start_ts, primary.hex(), transaction.ttl_ms
        )
        self._write_attempts([attempt])
        service = self._service(transaction.start_ts)
        keep_versions(client, service, transaction)
        prewrite(client, transaction, mutation(primary, epoch_record(ref, self.layout, plan.ranges)))
        heartbeat = Heartbeat(client, transaction, service, began_s)
        # An error may drop the sink in a process that lives on: then the heartbeat stops, and the locks expire.
        return _Open(transaction, heartbeat, weakref.finalize(self, heartbeat.stop))

    def _end(self, attempt: Attempt) -> int | None:
        """End a transaction and resolve its locks; return its commit timestamp, None where it is rolled back.

        An open transaction is rolled back.
        """
        transaction = attempt.transaction
        status = roll_back(self.client, transaction)
        commit_ts = status.at if isinstance(status, CommittedTxn) else None
        everything = (own_range(self.prefix)[0], row_range(self.prefix)[1])
        run_concurrently(settlings(self.client, transaction.start_ts, commit_ts or 0, [everything]))
        return commit_ts

    def _write_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Write attempt records."""
        puts = [(self.records.attempt_key(each.instant, each.start_ts), ATTEMPT.dump(each)) for each in attempts]
        if puts:
            self.records.write(puts, self.ttl_ms)

    def _stop_heartbeat(self, epoch: EpochRef) -> None:
        """Stop the heartbeat of an epoch's transaction."""
        opened = self._open.pop(epoch.instant, None)
        if opened is not None:
            opened.stop()


def _prepared(part: Part) -> Prepared:
    return PREPARED.validate_python(part.detail)


def _spans(prepared: Prepared) -> list[Span]:
    """Key ranges of a part's rows."""
    return [(bytes.fromhex(start), bytes.fromhex(end)) for task in prepared.spans for start, end in task]
