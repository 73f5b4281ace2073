"""A lake with a TiKV target, alone or beside a Delta table, for processes that die at crash points."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ingest.check_store.lakes import DeltaLake
from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.check_store.processes import faults
from ingest.protocol.counts import TargetRows
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import clean_late_files
from sinks.base import ParallelRunner, Sink, SinkContext, sequential
from sinks.memory import MemorySink
from sinks.tikv.client import TikvClient
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.locks import OpenTxn, look_up
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import TikvOptions
from sinks.tikv.reader import read_rows
from sinks.tikv.records import PREPARED
from sinks.tikv.settling import locks_in
from sinks.tikv.sink import TransactionSink
from sinks.tikv.transaction import roll_back, write_mutations
from timeline.active import ActiveTimeline
from timeline.clock import InstantClock, wall_clock_ms
from timeline.epoch import MANIFEST, PLAN, Part
from timeline.instant import Action, commit_inflight, commit_requested
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.memory import MemoryStore

TTL_S = 10
"""TTL of locks. Nothing waits for it: a successor ends the transactions of dead processes, and so their heartbeats."""

_TWO_DAYS_MS = 2 * 24 * 3600 * 1000

_prefixes = (f"tlake{number}_" for number in itertools.count())


@dataclass
class MortalTikv(TransactionSink):
    """The target in one process: a dead process cannot reach the cluster. Its prepared transaction may be lost."""

    life: ObjectStore = field(default_factory=lambda: MemoryStore("memory://life"))
    losses: list[int] = field(default_factory=lambda: [0])

    @property
    def client(self) -> TikvClient:
        self.life.sizes([""])
        return super().client

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        if part.rows and self.losses[0] and not self.is_applied(part.epoch):
            self.losses[0] -= 1
            # As a reader does that finds the transaction's locks past their TTL.
            roll_back(self.client, PREPARED.validate_python(part.detail).transaction)
        super().commit(part, parallel)


@dataclass
class TikvLake:
    """See `ingest.check_store.processes.Lake`.

    Attributes:
        pd: the cluster.
        mode: ``upsert`` or ``insert``.
        existing: numbers in TiKV before the job starts; with ``insert`` their rows are refused.
        beside: tables that get the same epochs; None: TiKV is the job's only target.
        is_first: whether TiKV comes before the table.
        losses: one number, of decided transactions that the cluster still loses.
    """

    pd: tuple[str, ...]
    mode: str = "upsert"
    existing: Sequence[int] = ()
    beside: DeltaLake | None = None
    is_first: bool = False
    losses: list[int] = field(default_factory=lambda: [0])
    prefix: str = field(default_factory=lambda: next(_prefixes))
    timeline: MemoryStore = field(default_factory=lambda: MemoryStore("memory://timeline"))
    quarantine: MemoryStore = field(default_factory=lambda: MemoryStore("memory://quarantine"))

    def __post_init__(self) -> None:
        if self.existing:
            numbers = pa.record_batch([pa.array(self.existing, pa.int64())], schema=NUMBER_SCHEMA)
            staged = self.keyed.stager.stage(numbers, "before", pa.array(self.existing, pa.int64())).rows
            keys, values = staged.column("key"), staged.column("value")
            write_mutations(self.keyed.client, Mutations.of(keys, values, inserts=False), 10_000)

    @property
    def keyed(self) -> MortalTikv:
        """The target in a live process."""
        options = TikvOptions.model_validate(
            {
                "type": "tikv",
                "name": "table" if self.beside is None else "keyed",
                "pd": self.pd,
                "prefix": self.prefix,
                "key": ["number"],
                "mode": self.mode,
                "lock_ttl": TTL_S,
                "patience": 20,
            }
        )
        return MortalTikv.open(options, SinkContext("app", NUMBER_SCHEMA))

    def timeline_store(self) -> ObjectStore:
        return self.timeline if self.beside is None else self.beside.timeline_store()

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        life = reach_store(MemoryStore("memory://life"))
        keyed = replace(self.keyed, life=life, losses=self.losses)
        if self.beside is None:
            return keyed, MemorySink("quarantine", "app", reach_store(self.quarantine))
        table, quarantine = self.beside.sinks(reach_store)
        return (keyed, table, quarantine) if self.is_first else (table, keyed, quarantine)

    def rows(self) -> list[int]:
        return self.keyed_rows() if self.beside is None else self.beside.rows()

    def rejected(self) -> list[int]:
        if self.beside is not None:
            return self.beside.rejected()
        return sorted(MemorySink("quarantine", "app", self.quarantine).read()["offset"].to_pylist())

    def keyed_rows(self) -> list[int]:
        """Numbers in TiKV as another client reads them, sorted."""
        return sorted(row for batch in read_rows(self.keyed) for row in batch.column("number").to_pylist())

    def orphans(self) -> Sequence[str]:
        beside = self.beside.orphans() if self.beside is not None else ()
        return [*beside, *self.locks(), *self.open_transactions()]

    def locks(self) -> list[str]:
        """Locks anywhere below the prefix."""
        start, end = own_range(self.prefix.encode())[0], row_range(self.prefix.encode())[1]
        return [f"lock on {lock.key!r}" for lock in locks_in(self.keyed.client, start, end)]

    def open_transactions(self) -> list[str]:
        """Recorded transactions that could still be committed."""
        client, attempts = self.keyed.client, self.keyed.records.attempts()
        statuses = {each: look_up(client, each.transaction.primary, each.start_ts) for each in attempts}
        return [
            f"transaction {each.start_ts} is open" for each, status in statuses.items() if isinstance(status, OpenTxn)
        ]

    def expire(self) -> None:
        """Roll back all recorded transactions, as a reader does that finds their locks past the TTL."""
        for attempt in self.keyed.records.attempts():
            roll_back(self.keyed.client, attempt.transaction)

    def clean_two_days_later(self) -> None:
        """Delete late files as a start two days later does, when no task can still write."""
        store = self.timeline_store()
        job = JobContext(
            name="numbers",
            store=store,
            identity=IDENTITY,
            sinks=self.sinks(lambda inner: inner),
            quarantine="quarantine",
            base_target="table",
            by="process 100",
            clock=InstantClock(lambda: wall_clock_ms() + _TWO_DAYS_MS),
        )
        clean_late_files(job, ActiveTimeline.load(store, Retry()))


@dataclass(frozen=True)
class KeyedNumbers(NumberSource):
    """Numbers for a target that keeps one row of each.

    Attributes:
        refused: numbers that the target already has, and refuses.
    """

    refused: tuple[int, ...] = ()
    is_table: bool = False

    @property
    def accepted(self) -> list[int]:
        numbers = super().accepted
        return numbers if self.is_table else sorted(set(numbers))

    @property
    def rejected(self) -> list[int]:
        return sorted([*super().rejected, *self.refused])


def verdict(lake: TikvLake, source: NumberSource, refused: Sequence[int] = ()) -> list[str]:
    """Deviations from the expected final state, human-readable.

    Args:
        lake: the job's targets.
        source: the job's source, read to its end.
        refused: numbers that TiKV refused because they existed.
    """
    is_table = lake.beside is not None
    expected = KeyedNumbers(source.shards, source.most, source.bad_every, tuple(refused), is_table)
    found = faults(lake, expected)
    keyed, wanted = lake.keyed_rows(), sorted(set(source.accepted))
    if keyed != wanted:
        found.append(f"in TiKV {keyed}, expected {wanted}")
    found += unchained(lake.timeline_store())
    lake.clean_two_days_later()
    left = [f"transaction {each.start_ts} is recorded" for each in lake.keyed.records.attempts()]
    return [*found, *left, *lake.locks()]


def unchained(store: ObjectStore) -> list[str]:
    """Gaps, overlaps and wrong counts of rows in committed epochs, human-readable."""
    found: list[str] = []
    reached: Counter[str] = Counter()
    for instant in ActiveTimeline.load(store).completed().by_action(Action.COMMIT):
        requested, inflight = commit_requested(instant.time).path, commit_inflight(instant.time).path
        plan, manifest = PLAN.load(requested, store.get(requested)), MANIFEST.load(inflight, store.get(inflight))
        counted = {count.shard: count for count in manifest.counts}
        for offsets in plan.ranges:
            count = counted[offsets.shard]
            if offsets.start != reached[offsets.shard]:
                found.append(f"{plan.ref}: {offsets} follows {reached[offsets.shard]}")
            if not offsets.until - offsets.start == count.read == count.accepted + count.rejected:
                found.append(f"{plan.ref}: {offsets} has {count}")
            reached[offsets.shard] = offsets.until
        taken = {part.target: TargetRows.of(part).given for part in manifest.parts if part.target != "quarantine"}
        accepted = sum(count.accepted for count in manifest.counts)
        found += [
            f"{plan.ref}: {name} was given {rows} of {accepted}" for name, rows in taken.items() if rows != accepted
        ]
    return found
