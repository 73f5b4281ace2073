"""A fake target with keys, on any store: rows are staged, shuffled by bucket and written once for each key."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from sinks.base import (
    REJECTED_SCHEMA,
    BatchWriter,
    KeyedWriter,
    Lookup,
    ParallelRunner,
    PartitionWriter,
    SinkContext,
    Staged,
    TargetOptions,
    TaskAttempt,
    sequential,
)
from sinks.memory import MemorySink
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import TidelineError
from timeline.stores.opening import open_store

STAGED_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.int64()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        ("stands_for", pa.int64()),
    ]
)


@dataclass(frozen=True)
class KeyRules:
    """Keys and faults of a `KeyedSink`, whose rows have one column of numbers.

    Attributes:
        keys: a row's key is its number modulo this.
        never: keys that `stage` rejects.
        taken: keys that `settle` refuses.
        fail_at: number whose staging raises `error`.
        fail_settle: key whose settling raises `error`.
        error: class of the error.
        kill_at: a file; the first bucket that settles creates it and kills its own process.
        kill_executor: kill the nearest JVM above that process instead, and with it the data that it keeps for others.
        hang_at: a file; every bucket that settles creates it and hangs.
    """

    keys: int = 10
    never: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    fail_at: int = -1
    fail_settle: int = -1
    error: type[Exception] = TidelineError
    kill_at: str = ""
    kill_executor: bool = False
    hang_at: str = ""


@dataclass(frozen=True)
class KeyedSink:
    """A `MemorySink` that keeps the row with the greatest number for each key. See `sinks.base.Sink`.

    Attributes:
        table: keeps the rows; files of an epoch are visible once it is committed.
        rules: keys and faults.
    """

    table: MemorySink
    rules: KeyRules = field(default_factory=KeyRules)

    Options = TargetOptions

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> KeyedSink:
        return cls.at(f"memory://{options.name}", options.name or "keyed", KeyRules())

    @classmethod
    def at(cls, url: str, target: str, rules: KeyRules) -> KeyedSink:
        return cls(MemorySink(target, "a" * 32, open_store(url)), rules)

    @property
    def target(self) -> str:
        return self.table.target

    def ensure(self) -> None: ...

    def begin(self, plan: Plan) -> PartitionWriter | KeyedWriter:
        return FakeKeyedWriter(self.table.begin(plan), self.rules)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        part = self.table.prepare(epoch, reports)
        return replace(
            part,
            dropped=sum(report.dropped for report in reports),
            rejected=sum(report.rejected for report in reports),
        )

    def verify(self, part: Part) -> Sequence[str]:
        return self.table.verify(part)

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        self.table.commit(part, parallel)

    def lookup(self, epoch: EpochRef) -> Lookup:
        return self.table.lookup(epoch)

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        return self.table.abort(epoch, part)

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        self.table.release(epoch, part, final=final)

    def unreleased(self) -> Sequence[str]:
        return self.table.unreleased()

    def read(self) -> dict[int, int]:
        """Each key's number; a duplicate key is an error."""
        rows = self.table.read()
        if rows.num_rows == 0:
            return {}
        keys = Counter(rows["key"].to_pylist())
        assert set(keys.values()) == {1}, keys
        return {int(key): value for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)}


@dataclass(frozen=True)
class FakeKeyedWriter:
    """See `sinks.base.KeyedWriter`."""

    table: PartitionWriter
    rules: KeyRules

    def stage(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> Staged:
        numbers = rows.column(0).to_pylist()
        if self.rules.fail_at in numbers:
            raise self.rules.error(f"cannot stage {self.rules.fail_at}")
        keys = [number % self.rules.keys for number in numbers]
        last = {key: index for index, key in enumerate(keys)}
        stand_for = Counter(keys)
        rejected = [index for index, key in enumerate(keys) if key in self.rules.never]
        kept = sorted(index for key, index in last.items() if key not in self.rules.never)
        at = offsets.to_pylist()
        staged = pa.RecordBatch.from_pydict(
            {
                "key": [b"%d" % keys[index] for index in kept],
                "value": [numbers[index] for index in kept],
                "shard": [shard] * len(kept),
                "offset": [at[index] for index in kept],
                "stands_for": [stand_for[keys[index]] for index in kept],
            },
            STAGED_SCHEMA,
        )
        refused = _refused([(shard, at[index], numbers[index]) for index in rejected], "never")
        return Staged(staged, refused)

    def buckets(self, staged: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        return np.array([zlib.crc32(key) % count for key in staged["key"].to_pylist()], np.int32)

    def open(self, attempt: TaskAttempt) -> FakeKeyedBatchWriter:
        return FakeKeyedBatchWriter(self.table.open(attempt), self.rules)


class FakeKeyedBatchWriter:
    """See `sinks.base.KeyedBatchWriter`."""

    def __init__(self, table: BatchWriter, rules: KeyRules) -> None:
        self._table = table
        self._rules = rules
        self._batches: list[pa.RecordBatch] = []
        self._settled = WriteReport(0, 0)

    def write(self, batch: pa.RecordBatch) -> None:
        assert batch.schema == STAGED_SCHEMA
        self._batches.append(batch)

    def settle(self) -> Iterable[pa.RecordBatch]:
        self._die_once()
        if self._rules.hang_at:
            Path(self._rules.hang_at).touch()
            time.sleep(600)
        rows = pa.Table.from_batches(self._batches, STAGED_SCHEMA).sort_by("value")
        if b"%d" % self._rules.fail_settle in rows["key"].to_pylist():
            raise self._rules.error(f"cannot settle {self._rules.fail_settle}")
        taken = [b"%d" % key for key in self._rules.taken]
        is_taken = pc.is_in(rows["key"], pa.array(taken, pa.binary()))
        refused = rows.filter(is_taken)
        left = rows.filter(pc.invert(is_taken))
        last = {row["key"]: row for row in left.to_pylist()}
        if last:
            self._table.write(pa.RecordBatch.from_pylist(list(last.values()), STAGED_SCHEMA))
        dropped = (pc.sum(rows["stands_for"]).as_py() or 0) - len(last) - refused.num_rows
        self._settled = WriteReport(0, 0, dropped=dropped, rejected=refused.num_rows)
        records = [(row["shard"], row["offset"], row["value"]) for row in refused.to_pylist()]
        return [_refused(records, "taken")]

    def close(self) -> WriteReport:
        written = self._table.close()
        return replace(written, dropped=self._settled.dropped, rejected=self._settled.rejected)

    def abort(self) -> None:
        self._table.abort()

    def _die_once(self) -> None:
        if self._rules.kill_at:
            with contextlib.suppress(FileExistsError):
                Path(self._rules.kill_at).touch(exist_ok=False)
                me = psutil.Process()
                above = [each for each in me.parents() if each.name().startswith("java")]
                (above[0] if self._rules.kill_executor else me).kill()
                # An executor's Python processes notice its end a little later.
                time.sleep(60)


@dataclass(frozen=True)
class Touch:
    """A callable that creates a file.

    Attributes:
        path: the file.
        error: raised after that, if given.
        once: whether only the first call raises.
    """

    path: str
    error: Callable[[str], Exception] | None = None
    once: bool = False

    def __call__(self) -> None:
        was_there = Path(self.path).exists()
        Path(self.path).touch()
        if self.error is not None and not (self.once and was_there):
            raise self.error(f"cannot do {Path(self.path).name}")


def _refused(records: Sequence[tuple[str, int, int]], reason: str) -> pa.RecordBatch:
    rows = [
        {"shard": shard, "offset": offset, "reason": reason, "raw": b"%d" % number} for shard, offset, number in records
    ]
    return pa.RecordBatch.from_pylist(rows, REJECTED_SCHEMA)
