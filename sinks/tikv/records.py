"""Tideline's own records below a target's prefix: applied epochs, and transactions that were begun.

::

    prefix 00 'a' app instant start_ts    attempt: written before a transaction locks anything
    prefix 00 'e' app epoch               epoch record: the transaction's primary, visible with its rows

An attempt record is to a transaction what a marker is to a data file: the locks that a dead process may
have left are known without a search. The record is deleted once no lock can be left.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import TypeAdapter

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.client import TikvClient, is_oversized
from sinks.tikv.key_codec import memcomparable, own_range
from sinks.tikv.locks import CommittedTxn, OpenTxn, RolledBackTxn, UnknownTxn, look_up, resolve_key
from sinks.tikv.mutations import Mutations
from sinks.tikv.transaction import Transaction, write_mutations
from timeline.body import BodyFormat
from timeline.epoch import EpochRef, OffsetRange
from timeline.errors import InvariantError

_NUMBER = struct.Struct(">Q")
_MOST_SHARDS = 10_000
"""With more shards, an epoch record holds no offsets: a value has to stay small, and the timeline has the offsets."""

_PAGE = 256


@dataclass(frozen=True)
class RowLayout:
    """Key and value columns of a job's rows; the rows alone would not reveal two swapped columns.

    Attributes:
        key: names and types of the key columns.
        columns: names and types of the other columns, in stored order.
    """

    key: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]

    def difference(self, other: RowLayout) -> str | None:
        """Why rows of two layouts cannot be read as one table; None where one layout only appends columns."""
        if self.key != other.key:
            return f"the key is {_words(other.key)}, not {_words(self.key)}"
        shared = min(len(self.columns), len(other.columns))
        if self.columns[:shared] != other.columns[:shared]:
            return (
                f"the columns are {_words(other.columns)}, not {_words(self.columns)}: append, never change or remove"
            )
        return None


@dataclass(frozen=True)
class EpochRecord:
    """The primary of an epoch's transaction: the target's marker, with the source offsets of its rows.

    Attributes:
        epoch: the epoch's number.
        instant: the epoch's instant.
        generation: the writer's generation.
        layout: layout of the rows.
        offsets: for each shard its first offset and its end (exclusive); empty where there are too many shards.
    """

    epoch: int
    instant: str
    generation: int
    layout: RowLayout
    offsets: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """A transaction that a writer has begun.

    Attributes:
        epoch: the epoch's number.
        instant: the epoch's instant.
        generation: the writer's generation.
        start_ts: the transaction's start timestamp.
        primary: its primary key, in hex.
        ttl_ms: TTL of its locks.
        is_settled: whether it has ended and its locks were resolved; a late task may lock rows again.
    """

    epoch: int
    instant: str
    generation: int
    start_ts: int
    primary: str
    ttl_ms: int
    is_settled: bool = False

    @property
    def transaction(self) -> Transaction:
        """The transaction itself."""
        return Transaction(self.start_ts, bytes.fromhex(self.primary), self.ttl_ms)


@dataclass(frozen=True)
class Prepared:
    """A transaction as the manifest records it: enough to commit the transaction and to resolve its locks.

    Attributes:
        cluster_id: id of its cluster; text, because JSON's numbers are too small.
        start_ts: its start timestamp.
        primary: its primary key, in hex.
        ttl_ms: TTL of its locks.
        spans: for each task, key ranges in hex that hold all rows of the task.
    """

    cluster_id: str
    start_ts: int
    primary: str
    ttl_ms: int
    spans: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def transaction(self) -> Transaction:
        """The transaction itself."""
        return Transaction(self.start_ts, bytes.fromhex(self.primary), self.ttl_ms)


PREPARED = TypeAdapter(Prepared)
SPANS = TypeAdapter(tuple[tuple[str, str], ...])
EPOCH_RECORD = BodyFormat("epoch record", EpochRecord)
ATTEMPT = BodyFormat("attempt", Attempt)


def epoch_record(ref: EpochRef, layout: RowLayout, ranges: Sequence[OffsetRange] = ()) -> bytes:
    """The body of an epoch's record.

    Args:
        ref: the epoch.
        layout: layout of its rows.
        ranges: source ranges of its rows, where known.
    """
    offsets = {one.shard: (one.start, one.until) for one in ranges} if len(ranges) <= _MOST_SHARDS else {}
    return EPOCH_RECORD.dump(EpochRecord(ref.epoch, ref.instant, ref.generation, layout, offsets))


@dataclass(frozen=True)
class RecordStore:
    """The records of one job below one prefix.

    Attributes:
        client: the cluster.
        prefix: the target's key prefix.
        app_id: the job's key.
    """

    client: TikvClient
    prefix: bytes
    app_id: str

    def epoch_key(self, epoch: int) -> bytes:
        """The key of an epoch's record."""
        return self._own(b"e") + _NUMBER.pack(epoch)

    def attempt_key(self, instant: str, start_ts: int) -> bytes:
        """The key of an attempt's record."""
        return self._own(b"a") + memcomparable(instant.encode()) + _NUMBER.pack(start_ts)

    def write(self, puts: Sequence[tuple[bytes, bytes | None]], ttl_ms: int) -> None:
        """Write records in a transaction of their own; None as value deletes a record."""
        ordered = sorted(puts)
        keys = pa.array([key for key, _ in ordered], pa.binary())
        values = pa.array([value for _, value in ordered], pa.binary())
        write_mutations(self.client, Mutations.of(keys, values, inserts=False), ttl_ms)

    def epochs(self, since: int = 0) -> list[int]:
        """Epochs from `since` on whose records are visible, ascending; older records get deleted."""
        keys = (key for key, _ in scan(self.client, self.epoch_key(since), _after(self._own(b"e"))))
        return [_NUMBER.unpack(key[-_NUMBER.size :])[0] for key in keys]

    def attempts(self, instant: str | None = None) -> list[Attempt]:
        """Recorded attempts, of one instant or of all."""
        start = self._own(b"a") + (memcomparable(instant.encode()) if instant is not None else b"")
        return [ATTEMPT.load(repr(key), body) for key, body in scan(self.client, start, _after(start))]

    def layouts(self) -> list[RowLayout]:
        """The layouts of all jobs' rows below the prefix."""
        start = own_range(self.prefix)[0] + b"e"
        return [EPOCH_RECORD.load(repr(key), body).layout for key, body in scan(self.client, start, _after(start))]

    def _own(self, kind: bytes) -> bytes:
        return own_range(self.prefix)[0] + kind + memcomparable(self.app_id.encode())


def scan(client: TikvClient, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Committed keys and values in a range, at one timestamp; keys locked by an open transaction have their old values.

    Args:
        client: the cluster.
        start: first key.
        end: end key, exclusive.
    """
    version = client.pd.timestamp()
    open_transactions: list[int] = []
    backoff = client.backoff()
    key: bytes | None = start
    most = _PAGE
    while key is not None and key < end:
        target = client.target(key, backoff)
        context = target.context
        context.resolved_locks.extend(open_transactions)
        request = pb.ScanRequest(context=context, start_key=key, end_key=end, limit=most, version=version)
        call = client.start(target, "KvScan", request.SerializeToString(), pb.ScanResponse)
        if most > 1 and is_oversized(call):
            most //= 2
            continue
        answer = client.settled(target, call, backoff)
        if answer is None:
            continue
        errors = [pair.error for pair in answer.pairs if pair.HasField("error")]
        errors += [answer.error] if answer.HasField("error") else []
        if errors:
            open_transactions += [lock for error in errors for lock in _cleared(client, error, version, backoff)]
            continue
        backoff.renew()
        yield from ((pair.key, pair.value) for pair in answer.pairs)
        is_full = len(answer.pairs) >= most
        key = answer.pairs[-1].key + b"\0" if is_full else target.region.end or None


def _cleared(client: TikvClient, error: pb.KeyError, version: int, backoff: Backoff) -> list[int]:
    """Resolve the lock of a decided transaction; return a transaction that can only be committed after `version`."""
    if not error.HasField("locked"):
        raise InvariantError(f"TiKV does not show what is below a prefix: {error}")
    lock = error.locked
    match look_up(client, lock.primary_lock, lock.lock_version, reader_ts=version):
        case UnknownTxn() | OpenTxn(is_pushed=True):
            # A primary that does not exist yet can only be committed after `version` as well.
            return [lock.lock_version]
        case OpenTxn():
            backoff.wait(RetryReason.LOCKED, f"key {lock.key!r:.80} is locked by transaction {lock.lock_version}")
        case CommittedTxn(at):
            resolve_key(client, lock.key, lock.lock_version, at, backoff)
        case RolledBackTxn():
            resolve_key(client, lock.key, lock.lock_version, 0, backoff)
    return []


def _words(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns) or "nothing"


def _after(prefix: bytes) -> bytes:
    """The first key behind all keys with a prefix; the prefix must not end in 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
