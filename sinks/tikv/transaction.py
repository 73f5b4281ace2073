"""Percolator's two phases, spread over processes: whoever knows start timestamp and primary can do any step.

::

    begin      primary prewritten ─► the transaction exists, its TTL kept up by heartbeats
    prewrite   rows, by any number of tasks, each any number of times
    commit     primary committed: the one point at which all of it becomes visible
    settle     rows' locks resolved, region by region: committed with the primary, or rolled back with it
    roll back  primary rolled back: the one point from which nothing of it can become visible

Prewriting the same key twice for one transaction changes nothing, so a task may run again. After
the primary is decided no late prewrite matters: a key that was committed refuses it, and a lock that
gets in leads every reader to the primary, which says what it is worth.

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
"""Of a prewrite: well below the 8 MiB that a raft entry may have."""

_MOST_SPANS = 256
"""Ranges that a task reports: its report has to stay small."""

_IN_FLIGHT = 4
"""Prewrites that a task has under way, so that it makes the next while the store writes the last."""

_MOST_LOOKED_UP = 256
"""Keys whose values are asked for at once; fewer where the values are too large for one answer."""

_FEW_LOCKS = 8
"""Of one transaction in the way: so many are resolved one by one, before a region is searched for all of them."""

_CONFLICTS = 10
"""How often a change that is right whatever was there before is begun again, where another writer was faster."""

_LOCK_WAIT_S = 30.0
"""How long a lock of another writer is waited for: longer than the TTL of those that have died."""


@dataclass(frozen=True)
class Transaction:
    """All that a process needs to take part; picklable.

    Attributes:
        start_ts: its start timestamp, which also names it.
        primary: the key that decides for all.
        ttl_ms: how long locks live without a heartbeat.
    """

    start_ts: int
    primary: bytes
    ttl_ms: int


@dataclass(frozen=True)
class Prewritten:
    """What a prewrite did.

    Attributes:
        existing: keys of inserts that exist already, in order; they are not locked.
        spans: ranges that hold every key that is locked, about one for each region.
    """

    existing: tuple[bytes, ...]
    spans: tuple[Span, ...]


def in_few(spans: Iterable[Span]) -> list[Span]:
    """Ranges that overlap as one, and all of them as one where there are very many."""
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
        mutations: what to change.
        lock_wait_s: how long a lock of another writer that lives is waited for.

    Raises:
        TargetBusyError: another writer has changed or holds a key, or the transaction is over.
        StoreUnavailableError: the cluster did not do it in time.
    """
    work = _Prewrite(client, transaction, lock_wait_s, len(mutations))
    try:
        return work.run(mutations)
    finally:
        work.cancel()


def commit(client: TikvClient, transaction: Transaction) -> int:
    """Commit the primary, or find it committed; returns the commit timestamp that counts.

    Raises:
        ReplayNeededError: it was rolled back; nothing of it became visible or ever will.
        StoreUnavailableError: it may be committed.
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
        # Even a good answer does not tell which timestamp counts, where another process was faster.
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
    """Roll the primary back, so that nothing can commit the transaction; returns what it was decided to be.

    Raises:
        StoreUnavailableError: it may be rolled back.
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
    """Lengthen the primary's life; whether it still has one.

    Args:
        client: the cluster.
        transaction: an open transaction.
        ttl_ms: milliseconds from its start on.
        backoff: how long it is tried.

    Raises:
        StoreUnavailableError: it may or may not have been lengthened.
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
    """Change keys in a transaction of their own, begun and committed here; the last of several writers wins.

    Args:
        client: the cluster.
        mutations: what to change, whatever is there.
        ttl_ms: of its locks.

    Raises:
        TargetBusyError: other writers are faster every time, or it took longer than its TTL.
        StoreUnavailableError: it may be done.
    """
    backoff = client.backoff()
    for left in reversed(range(_CONFLICTS)):
        try:
            return _write_once(client, mutations, ttl_ms)
        except TargetBusyError:
            if not left or not backoff.left_s:
                raise
            # Not in step with the one that was faster.
            time.sleep(random.uniform(0.0, 0.05))


def _write_once(client: TikvClient, mutations: Mutations, ttl_ms: int) -> None:
    first, end = mutations.first_key, mutations.last_key + b"\0"
    transaction = Transaction(client.pd.timestamp(), first, ttl_ms)
    try:
        # The primary before all others, so that nobody who meets them takes it for one that never was.
        done = [prewrite(client, transaction, part) for part in (mutations[:1], mutations[1:])]
    except BaseException:
        # What is not undone here its TTL undoes.
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
    """The requests of one `prewrite`: some under way, the rest in order."""

    def __init__(self, client: TikvClient, transaction: Transaction, lock_wait_s: float, rows: int) -> None:
        self._client = client
        self._transaction = transaction
        self._backoff = client.backoff()
        # A TTL counts from the transaction's start, and heartbeats lengthen the primary's alone: clients that go by
        # a row's own lock would take one that is written late for one of a writer that has died.
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
        """Ranges of what is locked: neighbours in one region are one."""
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
            # With it readers may push the commit behind themselves, and need not wait for it.
            min_commit_ts=transaction.start_ts + 1,
        ).SerializeToString()
        call = self._client.start(target, "KvPrewrite", b"".join((head, batch.body)), pb.PrewriteResponse)
        self._under_way.append((batch, target, call))

    def _judge(self, batch: Mutations, errors: Sequence[pb.KeyError]) -> None:
        """Nothing of the batch may be locked; find out what has to be done before it is sent again."""
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
        """Resolve locks that are in the way: of each transaction the first, and many of one by its region."""
        for version, lock in {lock.lock_version: lock for lock in reversed(locks)}.items():
            self._met[version] += 1
            resolve(self._client, lock, self._lock_backoff, whole_region=self._met[version] > _FEW_LOCKS)

    def _raise_if_over(self) -> None:
        transaction = self._transaction
        status = look_up(self._client, transaction.primary, transaction.start_ts)
        # Without a trace of it, it is the primary itself that another writer was faster with.
        if isinstance(status, CommittedTxn | RolledBackTxn):
            raise TargetBusyError(f"transaction {transaction.start_ts} is over meanwhile: {status}")

    def _find_existing(self, batch: Mutations) -> list[bytes]:
        """Keys of a batch of inserts, all of one region a moment ago, that have a value."""
        found: list[bytes] = []
        left, most = batch, _MOST_LOOKED_UP
        while len(left):
            target = self._client.target(left.first_key, self._backoff)
            count = left.head(target.region.end, most, _MOST_BYTES)
            # Just before its own start, so that locks of its own are not in the way.
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
