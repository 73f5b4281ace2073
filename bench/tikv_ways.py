"""Ways to write the same rows to TiKV: Tideline's epochs, and ways without Tideline.

Preparation that is no part of a user's write is not timed: connections, and, for ways in one process, the bytes of keys
and values. Ways whose tasks make rows are timed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from tikv_client.asynchronous import TransactionClient

from bench.tikv_rows import BLOCK_ROWS, MadeRows, rows, schema
from ingest.execution.runner import Runner
from ingest.execution.task import Outputs, TaskSpec, error_of
from sinks.base import BatchWriter, SinkContext, TaskAttempt
from sinks.tikv.client import TikvClient
from sinks.tikv.dedup import Rule
from sinks.tikv.key_codec import row_range
from sinks.tikv.options import TikvOptions
from sinks.tikv.records import scan
from sinks.tikv.sink import TransactionSink
from sinks.tikv.staged import Stager
from timeline.epoch import EpochRef, OffsetRange, Plan, WriteReport

_CLIENT_ROWS = 1000
_CLIENT_ATTEMPTS = 20


@dataclass(frozen=True)
class Load:
    """Rows of one round.

    Attributes:
        key: type of the key column.
        prefix: prefix of all keys of this way.
        start: number of the first row.
        until: number behind the last row.
        number: number of the round, and of its epoch.
    """

    key: str
    prefix: str
    start: int
    until: int
    number: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.until - self.start

    def parts(self, count: int) -> list[tuple[int, int]]:
        """Its rows in even parts, as pairs of start and until."""
        marks = [self.start + self.rows * part // count for part in range(count + 1)]
        return list(itertools.pairwise(marks))


class Way(Protocol):
    """One way of writing rows."""

    def connect(self, pd: Sequence[str]) -> None:
        """Connect to a cluster; not timed."""

    def get_ready(self, load: Load) -> None:
        """Prepare a load; not timed."""

    def write(self, load: Load) -> Mapping[str, float]:
        """Write all rows, durable and visible on return; returns seconds by step, if there are several."""

    def close(self) -> None:
        """Close connections, and end child processes."""


def pairs(load: Load, start: int, until: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and values of rows, as Tideline writes them, block by block.

    Args:
        load: has key type and prefix.
        start: number of the first row.
        until: number behind the last row.
    """
    stager = Stager.of(schema(load.key), prefix=load.prefix.encode(), key=["id"], rule=Rule())
    for at in range(start, until, BLOCK_ROWS):
        block = rows(load.key, at, min(at + BLOCK_ROWS, until))
        yield stager.keys.encode(block).to_pylist(), stager.values.encode(block).to_pylist()


def count_rows(client: TikvClient, prefix: str) -> int:
    """Rows below a prefix that a reader sees now."""
    return sum(1 for _ in scan(client, *row_range(prefix.encode())))


class NoQuarantine:
    """A quarantine for runs without bad rows."""

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        return _NothingRejected()


class _NothingRejected:
    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError(f"{batch.num_rows} rows were rejected")

    def close(self) -> WriteReport:
        return WriteReport(0, 0)

    def abort(self) -> None:
        pass


class Epochs:
    """Tideline: each round is an epoch, from the transaction's begin until the last lock is resolved."""

    def __init__(self, runner: Runner) -> None:
        """Connect to nothing yet.

        Args:
            runner: runs the tasks, one for each of its slots.
        """
        self._runner = runner

    def connect(self, pd: Sequence[str]) -> None:
        """See Way."""
        self._pd = tuple(pd)
        self._sinks: dict[str, TransactionSink] = {}

    def get_ready(self, load: Load) -> None:
        """See Way."""
        if load.prefix not in self._sinks:
            options = TikvOptions(type="tikv", pd=self._pd, prefix=load.prefix, key=("id",))
            self._sinks[load.prefix] = TransactionSink.open(options, SinkContext("bench", schema(load.key)))
            self._sinks[load.prefix].ensure()

    def write(self, load: Load) -> Mapping[str, float]:
        """See Way."""
        sink, made = self._sinks[load.prefix], MadeRows(load.key)
        ref = EpochRef(load.number, f"{load.number:017}", 1)
        ranges = tuple(OffsetRange("made", start, until) for start, until in load.parts(self._runner.slots))
        clock = Clock()
        writer = sink.begin(Plan(ref, "bench", "bench", ranges, (sink.target,), {}, "bench"))
        clock.lap("begin")
        outputs = Outputs.of({"quarantine": NoQuarantine(), sink.target: writer}, "quarantine")
        specs = [TaskSpec((part,), made, made, outputs, ref.epoch, lineage=False) for part in ranges]
        reports = self._runner.run(specs, threading.Event())
        clock.lap("stage, exchange, prewrite")
        for failure in (report.failure for report in reports if report.failure is not None):
            raise error_of(failure)
        part = sink.prepare(ref, [each.reports[sink.target] for each in reports if each.reports])
        assert part.rows == load.rows, f"{part.rows} of {load.rows} rows"
        clock.lap("prepare")
        sink.commit(part, self._runner.parallel)
        clock.lap("commit, settle")
        sink.release(ref, part)
        clock.lap("release")
        return clock.laps

    def close(self) -> None:
        """See Way; the creator of the runner closes it."""


class Clock:
    """Seconds of consecutive steps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Record the step that ends now."""
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


class ClientTransactions:
    """tikv-client in Spark tasks on the same executors: each task commits 1,000 rows at a time."""

    def __init__(self, runner: Runner) -> None:
        """See Epochs."""
        self._runner = runner

    def connect(self, pd: Sequence[str]) -> None:
        """See Way."""
        self._pd = tuple(pd)

    def get_ready(self, load: Load) -> None:
        """See Way."""

    def write(self, load: Load) -> Mapping[str, float]:
        """See Way."""
        self._runner.parallel([_ClientTask(self._pd, load, *part) for part in load.parts(self._runner.slots)])
        return {}

    def close(self) -> None:
        """See Way."""


@dataclass(frozen=True)
class _ClientTask:
    pd: tuple[str, ...]
    load: Load
    start: int
    until: int

    def __call__(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        client = await TransactionClient.connect(list(self.pd))
        for keys, values in pairs(self.load, self.start, self.until):
            for at in range(0, len(keys), _CLIENT_ROWS):
                batch = list(zip(keys[at : at + _CLIENT_ROWS], values[at : at + _CLIENT_ROWS], strict=True))
                for left in reversed(range(_CLIENT_ATTEMPTS)):
                    try:
                        await _commit(client, batch)
                        break
                    except Exception:  # every error of tikv-client is a plain Exception
                        # The client waits two seconds for any response: a busy store needs more.
                        if not left:
                            raise


async def _commit(client: TransactionClient, batch: Sequence[tuple[bytes, bytes]]) -> None:
    transaction = await client.begin(pessimistic=False)
    for key, value in batch:
        await transaction.put(key, value)
    try:
        await transaction.commit()
    except Exception:
        # Otherwise its locks block the next attempt until their TTL has passed.
        with contextlib.suppress(Exception):
            await transaction.rollback()
        raise
