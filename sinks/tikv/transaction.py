"""Percolator's two phases, spread over processes: start timestamp and primary are enough to do any step.

::

    begin      primary prewritten ─► the transaction exists, its TTL kept up by heartbeats
    prewrite   rows, by any number of tasks, each any number of times
    commit     primary committed: the one point at which all of it becomes visible
    settle     rows' locks resolved, region by region: committed with the primary, or rolled back with it
    roll back  primary rolled back: the one point from which nothing of it can become visible

Prewriting the same key twice for one transaction is idempotent, so a task may be retried. A prewrite
after the primary is decided has no effect: a committed key refuses it, and a late lock leads every
reader to the primary, whose outcome decides.

Source: Percolator (OSDI 2010), sections 2.2 and 2.3; TiKV's KvPrewrite, KvCommit, KvResolveLock.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.channels import PendingCall
from sinks.tikv.client import RequestTarget, TikvClient, is_oversized
from sinks.tikv.locks import CommittedTxn, OpenTxn, RolledBackTxn, TxnStatus, UnknownTxn, look_up, resolve
from sinks.tikv.mutations import Mutations
from sinks.tikv.settling import Span, settle
from sinks.tikv.tso import physical_ms
from timeline.errors import InvariantError, ReplayNeededError, TargetBusyError, TargetRefusedError

_MOST_ROWS = 4096
_MOST_BYTES = 1 << 20
"""Largest prewrite request: well below the 8 MiB of a raft entry."""

_MOST_SPANS = 256
"""Most ranges that a task reports: its report has to stay small."""

_IN_FLIGHT = 4
"""Prewrites in flight per task, so that it encodes the next while the store writes the previous ones."""

_MOST_LOOKED_UP = 256
"""Keys of one batch get; fewer where the values are too large for one answer."""

_FEW_LOCKS = 8
"""Locks of one transaction that are resolved one by one; after these, all of its locks in a region at once."""

_CONFLICTS = 10
"""Attempts of a blind write, one that is right for any previous value, where other writers are faster."""

_LOCK_WAIT_S = 30.0
"""Longest wait for another writer's lock: longer than the TTL of a dead writer's locks."""


@dataclass(frozen=True)
class Transaction:
    """Identity of a transaction, enough for any process to take part; picklable.

    Attributes:
        start_ts: start timestamp; identifies the transaction.
        primary: the key that decides for all keys.
        ttl_ms: TTL of locks without a heartbeat.
    """

    start_ts: int
    primary: bytes
    ttl_ms: int


@dataclass(frozen=True)
class Prewritten:
    """Result of a prewrite.

    Attributes:
        existing: keys of inserts that exist already, ascending; they are not locked.
        spans: ranges that hold every locked key, about one for each region.
    """

    existing: tuple[bytes, ...]
    spans: tuple[Span, ...]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge ranges that overlap, and all of them into one where more than `_MOST_SPANS` are left."""
    few: list[Span] = []
    for start, end in sorted(spans):
        if few and start < few[-1][1]:
            few[-1] = few[-1][0], max(few[-1][1], end)
        else:
            few.append((start, end))
    return few if len(few) <= _MOST_SPANS else [(few[0][0], few[-1][1])]


def prewrite(
    client: TikvClient,
    transaction: Transaction,
    mutations: Mutations,
    *,
    lock_wait_s: float = _LOCK_WAIT_S,
) -> Prewritten:
    """Lock keys with their new values; the first phase.

    Args:
        client: the cluster.
        transaction: an open transaction.
        mutations: the changes.
        lock_wait_s: longest wait in seconds for a lock of a live writer.

    Raises:
        TargetBusyError: another writer has changed or locked a key, or the transaction is over.
        StoreUnavailableError: the deadline has passed.
    """
    work = _Prewrite(client, transaction, lock_wait_s, len(mutations))
    try:
        return work.run(mutations)
    finally:
        work.cancel()


def commit(client: TikvClient, transaction: Transaction) -> int:
    """Commit the primary, or find it committed; return the effective commit timestamp.

    Raises:
        ReplayNeededError: the transaction was rolled back; none of its changes can become visible.
        StoreUnavailableError: the transaction may be committed.
    """
    backoff = client.backoff()
    while True:
        commit_ts = client.pd.timestamp()
        answer = client.ask(
            transaction.primary, "KvCommit", _commit_request(transaction, commit_ts), pb.CommitResponse, backoff
        )
        if answer.HasField("error") and answer.error.HasField("commit_ts_expired"):
            backoff.wait(RetryReason.REGION_MOVED, "a reader was given a later timestamp")
            continue
        # Even a successful answer does not prove this timestamp: another process may have committed first.
        match look_up(client, transaction.primary, transaction.start_ts):
            case CommittedTxn(at):
                return at
            case RolledBackTxn() | UnknownTxn():
                raise ReplayNeededError(f"transaction {transaction.start_ts} was rolled back: {answer.error}")
            case OpenTxn():
                backoff.wait(RetryReason.LOCKED, f"transaction {transaction.start_ts} is not committed: {answer.error}")


def _commit_request(transaction: Transaction, commit_ts: int) -> Callable[[pb.Context], pb.CommitRequest]:
    return lambda context: pb.CommitRequest(
        context=context,
        start_version=transaction.start_ts,
        keys=[transaction.primary],
        commit_version=commit_ts,
    )


def roll_back(client: TikvClient, transaction: Transaction) -> TxnStatus:
    """Roll the primary back, so that no process can commit the transaction; return the transaction's outcome.

    Raises:
        StoreUnavailableError: the transaction may be rolled back.
    """
    answer = client.ask(
        transaction.primary,
        "KvBatchRollback",
        lambda context: pb.BatchRollbackRequest(
            context=context, start_version=transaction.start_ts, keys=[transaction.primary]
        ),
        pb.BatchRollbackResponse,
        client.backoff(),
    )
    if not answer.HasField("error"):
        return RolledBackTxn()
    status = look_up(client, transaction.primary, transaction.start_ts)
    if isinstance(status, OpenTxn):
        raise InvariantError(f"TiKV does not roll transaction {transaction.start_ts} back: {answer.error}")
    return status


def send_heartbeat(client: TikvClient, transaction: Transaction, ttl_ms: int, backoff: Backoff) -> bool:
    """Extend the TTL of the primary's lock; return whether the lock still exists.

    Args:
        client: the cluster.
        transaction: an open transaction.
        ttl_ms: the new TTL, counted from the transaction's start.
        backoff: waits between retries, and the deadline.

    Raises:
        StoreUnavailableError: the TTL may or may not be extended.
    """
    answer = client.ask(
        transaction.primary,
        "KvTxnHeartBeat",
        lambda context: pb.TxnHeartBeatRequest(
            context=context,
            primary_lock=transaction.primary,
            start_version=transaction.start_ts,
            advise_lock_ttl=ttl_ms,
        ),
        pb.TxnHeartBeatResponse,
        backoff,
    )
    return not answer.HasField("error")


def write_mutations(client: TikvClient, mutations: Mutations, ttl_ms: int) -> None:
    """Write keys in a transaction of their own, begun and committed here; the last writer wins.

    Args:
        client: the cluster.
        mutations: the changes, independent of previous values.
        ttl_ms: TTL of the locks.

    Raises:
        TargetBusyError: other writers were faster at each attempt, or the transaction outlived its TTL.
        StoreUnavailableError: the keys may be written.
    """
    backoff = client.backoff()
    for left in reversed(range(_CONFLICTS)):
        try:
            return _write_once(client, mutations, ttl_ms)
        except TargetBusyError:
            if not left or not backoff.left_s:
                raise
            # Jitter: get out of step with the faster writer.
            time.sleep(random.uniform(0.0, 0.05))


def _write_once(client: TikvClient, mutations: Mutations, ttl_ms: int) -> None:
    first, end = mutations.first_key, mutations.last_key + b"\0"
    transaction = Transaction(client.pd.timestamp(), first, ttl_ms)
    try:
        # The primary first: a client that meets another lock must not take the transaction for one never begun.
        done = [prewrite(client, transaction, part) for part in (mutations[:1], mutations[1:])]
    except BaseException:
        # Locks that are left by a failure here expire by their TTL.
        roll_back(client, transaction)
        settle(client, transaction.start_ts, 0, first, end)
        raise
    try:
        commit_ts = commit(client, transaction)
    except ReplayNeededError as error:
        raise TargetBusyError(f"a transaction took longer than its TTL of {ttl_ms} ms: {error}") from error
    for prewritten in done:
        for start, until in prewritten.spans:
            settle(client, transaction.start_ts, commit_ts, start, until)


class _Prewrite:
    """The requests of one `prewrite`: some in flight, the rest queued in order."""

    def __init__(self, client: TikvClient, transaction: Transaction, lock_wait_s: float, rows: int) -> None:
        self._client = client
        self._transaction = transaction
        self._backoff = client.backoff()
        # A TTL counts from the transaction's start, and heartbeats extend the primary's alone: clients that go by a
        # row's own lock would take a late lock for one of a dead writer.
        age_ms = physical_ms(client.pd.timestamp()) - physical_ms(transaction.start_ts)
        self._ttl_ms = transaction.ttl_ms + max(0, age_ms)
        self._lock_backoff = Backoff(lock_wait_s)
        self._rows = rows
        self._met: Counter[int] = Counter()
        self._waiting: deque[Mutations] = deque()
        self._under_way: deque[tuple[Mutations, RequestTarget, PendingCall[pb.PrewriteResponse]]] = deque()
        self._existing: list[bytes] = []
        self._locked: list[tuple[bytes, bytes, int]] = []

    def run(self, mutations: Mutations) -> Prewritten:
        if len(mutations):
            self._waiting.append(mutations)
        while self._waiting or self._under_way:
            while self._waiting and len(self._under_way) < _IN_FLIGHT:
                self._send(self._waiting.popleft())
            batch, target, call = self._under_way.popleft()
            answer = self._client.settled(target, call, self._backoff)
            if answer is None:
                self._waiting.appendleft(batch)
                continue
            self._backoff.renew()
            if answer.errors:
                self._judge(batch, answer.errors)
            else:
                self._lock_backoff.renew()
                self._locked.append((batch.first_key, batch.last_key, target.region.id))
        return Prewritten(tuple(sorted(self._existing)), tuple(self._spans()))

    def cancel(self) -> None:
        for _, _, call in self._under_way:
            call.cancel()

    def _spans(self) -> list[Span]:
        """Ranges of locked keys; neighbours in one region are merged."""
        spans: list[Span] = []
        region: int | None = None
        for first, last, of in sorted(self._locked):
            if of == region:
                spans[-1] = (spans[-1][0], last + b"\0")
            else:
                spans.append((first, last + b"\0"))
            region = of
        return spans

    def _send(self, run: Mutations) -> None:
        transaction = self._transaction
        target = self._client.target(run.first_key, self._backoff)
        count = run.head(target.region.end, _MOST_ROWS, _MOST_BYTES)
        if count < len(run):
            self._waiting.appendleft(run[count:])
        batch = run[:count]
        head = pb.PrewriteRequest(
            context=target.context,
            primary_lock=transaction.primary,
            start_version=transaction.start_ts,
            lock_ttl=self._ttl_ms,
            # Readers that meet a lock of a large transaction resolve it by regions, not key by key.
            txn_size=self._rows,
            # Readers may then push the commit behind their own timestamp, and need not wait for it.
            min_commit_ts=transaction.start_ts + 1,
        ).SerializeToString()
        call = self._client.start(target, "KvPrewrite", b"".join((head, batch.body)), pb.PrewriteResponse)
        self._under_way.append((batch, target, call))

    def _judge(self, batch: Mutations, errors: Sequence[pb.KeyError]) -> None:
        """Handle the key errors of a batch, whose keys may all be unlocked, and queue the batch again."""
        start_ts = self._transaction.start_ts
        self._clear([error.locked for error in errors if error.HasField("locked")])
        for error in errors:
            if error.HasField("locked"):
                continue
            if error.HasField("already_exist"):
                existing = self._find_existing(batch)
                self._existing += existing
                batch = batch.without(pa.array(existing, pa.binary()))
                break
            elif error.HasField("conflict"):
                self._raise_if_over()
                conflict = error.conflict
                raise TargetBusyError(
                    f"key {conflict.key!r:.80} was changed by another writer meanwhile (transaction "
                    f"{conflict.conflict_ts}, this one is {start_ts}): does anybody else write below this prefix?"
                )
            elif "KeyTooLarge" in error.abort:
                raise TargetRefusedError(f"{error.abort}: raise TiKV's storage.max-key-size to its default of 8 KiB")
            elif error.retryable:
                self._backoff.wait(RetryReason.LOCKED, error.retryable)
            else:
                self._raise_if_over()
                raise InvariantError(f"TiKV refuses a prewrite of transaction {start_ts}: {error}")
        if len(batch):
            self._waiting.appendleft(batch)

    def _clear(self, locks: Sequence[pb.LockInfo]) -> None:
        """Resolve blocking locks: the first of each transaction; those of a frequent one for a whole region."""
        for version, lock in {lock.lock_version: lock for lock in reversed(locks)}.items():
            self._met[version] += 1
            resolve(self._client, lock, self._lock_backoff, whole_region=self._met[version] > _FEW_LOCKS)

    def _raise_if_over(self) -> None:
        transaction = self._transaction
        status = look_up(self._client, transaction.primary, transaction.start_ts)
        # UnknownTxn: the conflict is about the primary itself, which another writer wrote first.
        if isinstance(status, CommittedTxn | RolledBackTxn):
            raise TargetBusyError(f"transaction {transaction.start_ts} is over meanwhile: {status}")

    def _find_existing(self, batch: Mutations) -> list[bytes]:
        """Keys with a value in a batch of inserts, which was of one region when it was sent."""
        found: list[bytes] = []
        left, most = batch, _MOST_LOOKED_UP
        while len(left):
            target = self._client.target(left.first_key, self._backoff)
            count = left.head(target.region.end, most, _MOST_BYTES)
            # Just before the transaction's start, so that its own locks do not block the read.
            request = pb.BatchGetRequest(
                context=target.context, keys=left[:count].keys.to_pylist(), version=self._transaction.start_ts - 1
            )
            call = self._client.start(target, "KvBatchGet", request.SerializeToString(), pb.BatchGetResponse)
            if count > 1 and is_oversized(call):
                most = count // 2
                continue
            answer = self._client.settled(target, call, self._backoff)
            if answer is None:
                continue
            locks = [pair.error.locked for pair in answer.pairs if pair.error.HasField("locked")]
            if answer.HasField("error") and answer.error.HasField("locked"):
                locks.append(answer.error.locked)
            if locks:
                self._clear(locks)
                continue
            found += [pair.key for pair in answer.pairs if not pair.HasField("error")]
            left = left[count:]
        if not found:
            raise TargetBusyError(f"transaction {self._transaction.start_ts}: a key was inserted by another writer")
        return found
