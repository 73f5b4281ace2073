"""Status of a transaction, and resolution of its locks by other clients: Percolator's rules.

The primary key of a transaction decides for all its keys. A client that meets a lock checks the
primary: if it is committed, the key is committed at the same timestamp; if rolled back, the lock is
removed; if alive, the client waits until the TTL has passed, and then rolls the transaction back.

Source: Peng and Dabek, "Large-scale Incremental Processing Using Distributed Transactions and
Notifications" (OSDI 2010), as implemented by TiKV: lock TTL, CheckTxnStatus, ResolveLock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.client import TikvClient
from sinks.tikv.tso import physical_ms
from timeline.errors import InvariantError, TargetBusyError


@dataclass(frozen=True)
class OpenTxn:
    """The transaction is open.

    Attributes:
        ttl_ms: milliseconds from its start within which no other client may roll it back.
        is_pushed: whether its commit timestamp must be later than the timestamp of the reader that asked.
    """

    ttl_ms: int
    is_pushed: bool = False


@dataclass(frozen=True)
class CommittedTxn:
    """The transaction is committed.

    Attributes:
        at: its commit timestamp.
    """

    at: int


@dataclass(frozen=True)
class RolledBackTxn:
    """The transaction is rolled back: none of its changes can become visible."""


@dataclass(frozen=True)
class UnknownTxn:
    """The primary has no trace of the transaction: not begun yet, or rolled back and the trace removed by GC."""


TxnStatus: TypeAlias = OpenTxn | CommittedTxn | RolledBackTxn | UnknownTxn


def look_up(client: TikvClient, primary: bytes, start_ts: int, *, reader_ts: int = 0) -> TxnStatus:
    """Status of a transaction; never ends it, not even where its TTL has passed.

    Args:
        client: the cluster.
        primary: the transaction's primary key.
        start_ts: its start timestamp.
        reader_ts: timestamp of a reader that wants to pass its locks: an open transaction must then commit later.

    Raises:
        StoreUnavailableError: no answer before the deadline.
    """
    request = pb.CheckTxnStatusRequest(primary_key=primary, lock_ts=start_ts, caller_start_ts=reader_ts)
    answer = _check(client, request, client.backoff())
    return _status(answer, primary, start_ts)


def resolve(client: TikvClient, lock: pb.LockInfo, backoff: Backoff, *, whole_region: bool = False) -> None:
    """Resolve another transaction's lock, or back off once where that transaction is alive.

    Args:
        client: the cluster.
        lock: the lock.
        backoff: waits for a live transaction, and the deadline.
        whole_region: resolve all locks of that transaction in the region of the key.

    Raises:
        TargetBusyError: the transaction is still alive at the deadline.
    """
    if not lock.primary_lock:
        backoff.wait(RetryReason.LOCKED, "a key is locked")
        return
    now = client.pd.timestamp()
    is_expired = physical_ms(now) > physical_ms(lock.lock_version) + lock.lock_ttl
    request = pb.CheckTxnStatusRequest(
        primary_key=lock.primary_lock,
        lock_ts=lock.lock_version,
        # An async-commit transaction may be committed though its primary does not show it: it is not ended here.
        current_ts=0 if lock.use_async_commit else now,
        rollback_if_not_exist=is_expired and not lock.use_async_commit,
    )
    answer = _check(client, request, backoff)
    status = _status(answer, lock.primary_lock, lock.lock_version)
    if isinstance(status, OpenTxn | UnknownTxn):
        if backoff.left_s < RetryReason.LOCKED.value[1]:
            raise TargetBusyError(
                f"key {lock.key!r:.80} is locked by another writer's transaction (start {lock.lock_version}, "
                f"primary {lock.primary_lock!r:.80}, TTL {lock.lock_ttl} ms): does anybody else write there?"
            )
        backoff.wait(RetryReason.LOCKED, f"key {lock.key!r:.80} is locked by transaction {lock.lock_version}")
        return
    commit_ts = status.at if isinstance(status, CommittedTxn) else 0
    resolve_key(client, lock.key, lock.lock_version, commit_ts, backoff, whole_region=whole_region)


def resolve_key(
    client: TikvClient, key: bytes, start_ts: int, commit_ts: int, backoff: Backoff, *, whole_region: bool = False
) -> None:
    """Commit one locked key of a transaction, or roll it back.

    Args:
        client: the cluster.
        key: the key.
        start_ts: the transaction's start timestamp.
        commit_ts: its commit timestamp; 0: roll back.
        backoff: waits between retries, and the deadline.
        whole_region: do the same to all keys of the transaction in the region.
    """
    answer = client.ask(
        key,
        "KvResolveLock",
        lambda context: pb.ResolveLockRequest(
            context=context, start_version=start_ts, commit_version=commit_ts, keys=() if whole_region else (key,)
        ),
        pb.ResolveLockResponse,
        backoff,
    )
    if answer.HasField("error"):
        raise InvariantError(f"TiKV does not resolve the lock of transaction {start_ts} on {key!r:.80}: {answer.error}")


def _check(client: TikvClient, request: pb.CheckTxnStatusRequest, backoff: Backoff) -> pb.CheckTxnStatusResponse:
    """Ask the primary's store for the status of a transaction; `request` lacks only the context."""

    def with_context(context: pb.Context) -> pb.CheckTxnStatusRequest:
        request.context.CopyFrom(context)
        return request

    return client.ask(request.primary_key, "KvCheckTxnStatus", with_context, pb.CheckTxnStatusResponse, backoff)


def _status(answer: pb.CheckTxnStatusResponse, primary: bytes, start_ts: int) -> TxnStatus:
    if answer.error.HasField("txn_not_found"):
        return UnknownTxn()
    if answer.HasField("error"):
        raise InvariantError(f"TiKV does not tell what became of transaction {start_ts} ({primary!r}): {answer.error}")
    if answer.commit_version:
        return CommittedTxn(answer.commit_version)
    if answer.lock_ttl:
        return OpenTxn(answer.lock_ttl, answer.action == pb.Action.MinCommitTSPushed)
    return RolledBackTxn()
