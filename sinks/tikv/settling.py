"""The second phase of a transaction: locks resolved region by region, by any process, without a list of keys.

A region that is asked to resolve a transaction finds its locks by the start timestamp. So only
the outcome has to survive: the writer's executors settle, or a recovery that knows no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.client import Endpoint, TikvClient, connection
from timeline.errors import InvariantError

_REGIONS_A_CALL = 8
_THREADS = 8
_LOCKS_AT_ONCE = 1024

Span: TypeAlias = tuple[bytes, bytes]
"""A range of keys: first key and end key (exclusive)."""


def settle(client: TikvClient, start_ts: int, commit_ts: int, start: bytes, end: bytes) -> int:
    """Resolve every lock of a decided transaction in a range, region by region; the second phase.

    Needs no list of keys: each region finds the transaction's locks by itself.

    Args:
        client: the cluster.
        start_ts: the transaction's start timestamp.
        commit_ts: its commit timestamp; 0: it was rolled back.
        start: first key of the range.
        end: end key, exclusive; empty: unbounded.

    Returns:
        number of regions.
    """
    regions = 0
    key: bytes | None = start
    while key is not None:
        key = _settle_region(client, start_ts, commit_ts, key)
        regions += 1
        if key is not None and end and key >= end:
            break
    return regions


def _settle_region(client: TikvClient, start_ts: int, commit_ts: int, key: bytes) -> bytes | None:
    """Resolve the locks in a key's region; return the next region's first key, None after the last region."""
    backoff = client.backoff()
    while True:
        target = client.target(key, backoff)
        request = pb.ResolveLockRequest(context=target.context, start_version=start_ts, commit_version=commit_ts)
        call = client.start(target, "KvResolveLock", request.SerializeToString(), pb.ResolveLockResponse)
        answer = client.settled(target, call, backoff)
        if answer is None:
            continue
        if answer.HasField("error"):
            raise InvariantError(f"TiKV does not resolve the locks of transaction {start_ts}: {answer.error}")
        return target.region.end or None


def locks_in(client: TikvClient, start: bytes, end: bytes) -> list[pb.LockInfo]:
    """Every lock in a range, of any writer: prewritten and not settled.

    Args:
        client: the cluster.
        start: first key.
        end: end key, exclusive.
    """
    found: list[pb.LockInfo] = []
    now, backoff = client.pd.timestamp(), client.backoff()
    key = start
    while key < end:
        target = client.target(key, backoff)
        until = min(target.region.end, end) if target.region.end else end
        request = pb.ScanLockRequest(
            context=target.context, max_version=now, start_key=key, end_key=until, limit=_LOCKS_AT_ONCE
        )
        call = client.start(target, "KvScanLock", request.SerializeToString(), pb.ScanLockResponse)
        answer = client.settled(target, call, backoff)
        if answer is not None:
            found += [lock for lock in answer.locks if key <= lock.key < until]
            key = until if len(answer.locks) < _LOCKS_AT_ONCE else answer.locks[-1].key + b"\0"
    return found


@dataclass(frozen=True)
class Settling:
    """A picklable call of `settle` over several ranges; it uses the connection of the process that runs it."""

    endpoint: Endpoint
    start_ts: int
    commit_ts: int
    spans: tuple[Span, ...]

    def __call__(self) -> None:
        """Settle the ranges."""
        for start, end in self.spans:
            settle(connection(self.endpoint), self.start_ts, self.commit_ts, start, end)


def settlings(client: TikvClient, start_ts: int, commit_ts: int, spans: Iterable[Span]) -> list[Settling]:
    """Calls that settle the ranges in which a decided transaction has locks; they may run in parallel.

    Args:
        client: the cluster.
        start_ts: the transaction's start timestamp.
        commit_ts: its commit timestamp; 0: it was rolled back.
        spans: ranges that hold all of its locks; each region in them is asked once.
    """
    pieces = list(_by_region(client, spans))
    return [
        Settling(client.endpoint, start_ts, commit_ts, tuple(pieces[first : first + _REGIONS_A_CALL]))
        for first in range(0, len(pieces), _REGIONS_A_CALL)
    ]


def run_concurrently(calls: Sequence[Callable[[], None]]) -> None:
    """The `ParallelRunner` of one process: uses threads; raises the first error once all calls have ended."""
    if len(calls) == 1:
        calls[0]()
        return
    # Every call is made whatever another one raises: locks that stay would be in the way of readers.
    with ThreadPoolExecutor(_THREADS) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()


def _by_region(client: TikvClient, spans: Iterable[Span]) -> Iterator[Span]:
    """One piece for each region that spans touch, from their first key in the region to their last.

    A piece reaches to the end of its last span, because the region may be split before it is asked.
    """
    piece: Span | None = None
    region_end = b""
    for start, end in sorted(spans):
        key = start
        while key < end:
            if piece is None or (region_end and key >= region_end):
                if piece is not None:
                    yield piece
                region_end = client.target(key, client.backoff()).region.end
                piece = key, key
            until = min(region_end, end) if region_end else end
            piece = piece[0], max(piece[1], until)
            key = until
    if piece is not None:
        yield piece
