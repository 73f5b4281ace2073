"""Simulated processes that die at named crash points, one after the other, on the same storage.

A dead process cannot reach the store: its clean-up fails like that of a killed process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.driver.replay import Replay
from ingest.execution.runner import LocalRunner
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import recover
from sinks.base import Sink
from timeline import failpoints
from timeline.active import ActiveTimeline
from timeline.chain import load_chain
from timeline.instant import Action
from timeline.lease import LeaseObserver, take_lease
from timeline.process import ProcessId
from timeline.stores.base import BaseStore, ObjectInfo, ObjectStore, ObjectWriter, Retry, StoreTraits


class Crashed(BaseException):
    """Death of a simulated process; only `run_process` catches it without raising it again."""


@dataclass
class ProcessState:
    """Liveness of a simulated process."""

    is_dead: bool = False


class MortalStore(BaseStore):
    """A store that a dead process cannot reach."""

    url = ""

    def __init__(self, inner: ObjectStore, life: ProcessState) -> None:
        self._inner = inner
        self._life = life
        self.url = inner.url

    @property
    def traits(self) -> StoreTraits:
        """See ObjectStore."""
        return self._inner.traits

    def _alive(self) -> ObjectStore:
        if self._life.is_dead:
            raise Crashed
        return self._inner

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._alive().put_if_absent(path, body)

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._alive().put(path, body)

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        return self._alive().get(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore."""
        return self._alive().sizes(paths)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore."""
        return self._alive().list(folder, recursive=recursive, after=after, limit=limit)

    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore."""
        self._alive().delete(paths)

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore."""
        return self._alive().open_write(path)

    def prune(self, folder: str) -> None:
        """See ObjectStore."""
        self._alive().prune(folder)

    def remove_stale_uploads(self) -> None:
        """See ObjectStore."""
        self._alive().remove_stale_uploads()

    def abandon(self, paths: Collection[str]) -> None:
        """See ObjectStore."""
        self._alive().abandon(paths)

    def make_durable(self, paths: Collection[str]) -> None:
        """See ObjectStore."""
        self._alive().make_durable(paths)


@dataclass(frozen=True)
class CrashAt:
    """The crash point to die at, when it is passed for the `count`-th time."""

    point: str
    count: int = 1


class Lake(Protocol):
    """Targets of a rehearsed job, with reads of their rows."""

    def timeline_store(self) -> ObjectStore:
        """A fresh handle on the timeline's base path."""

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        """Fresh sinks named "table" and "quarantine", in this order; every store goes through `reach_store`."""

    def rows(self) -> list[int]:
        """Visible numbers of the table, sorted."""

    def rejected(self) -> list[int]:
        """Visible offsets of the quarantine, sorted."""

    def orphans(self) -> Sequence[str]:
        """Data files that no reader sees."""


def run_process(lake: Lake, source: NumberSource, number: int, crash: CrashAt | None = None) -> bool:
    """Run one process to its end or its crash: it takes over the timeline, recovers, and ingests the remaining ranges.

    Args:
        lake: the targets.
        source: the numbers to ingest.
        number: distinguishes the process from the others; all of them count as dead.
        crash: where the process dies; None: nowhere.

    Returns:
        whether the process reached the source's end.
    """
    life = ProcessState()
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        if crash is not None and name == crash.point:
            passed += 1
            if passed == crash.count:
                life.is_dead = True
                raise Crashed(name)

    failpoints.arm(die)
    try:
        _run(lake, source, number, life)
        return True
    except Crashed:
        return False
    finally:
        failpoints.arm(None)


def _run(lake: Lake, source: NumberSource, number: int, life: ProcessState) -> None:
    retry = Retry()
    store = MortalStore(lake.timeline_store(), life)
    pipeline = Pipeline(source, NUMBER_SCHEMA, False, LocalRunner())
    job = JobContext(
        name="numbers",
        store=store,
        identity=IDENTITY,
        sinks=lake.sinks(lambda inner: MortalStore(inner, life)),
        quarantine="quarantine",
        base_target="table",
        by=f"process {number}",
        retry=retry,
        rewrite=Replay(lambda: pipeline, threading.Event()),
    )
    process = ProcessId("host", "", number, 0, "")
    observer = LeaseObserver(store, retry, process_is_gone=lambda other: True)
    lease = take_lease(observer, job="numbers", ttl_ms=60_000, process=lambda: process)
    failpoints.reach("lease-taken")
    recover(job, lease)
    chain = load_chain(store, ActiveTimeline.load(store, retry), retry, repair=True)
    while ranges := source.plan(chain.positions).ranges:
        chain = chain.advanced(
            run_epoch(job, pipeline, NextEpoch(chain, ranges), lease, stop=threading.Event()).decision
        )
    lease.release()


def faults(lake: Lake, source: NumberSource) -> list[str]:
    """Violations of the required final state, as messages: every row exists once, no orphan, nothing pending."""
    rows, rejected, orphans = lake.rows(), lake.rejected(), lake.orphans()
    timeline = ActiveTimeline.load(lake.timeline_store(), Retry())
    pending = timeline.pending().instants
    commits = [instant.time for instant in timeline.completed().by_action(Action.COMMIT)]
    found = (
        (rows != source.accepted, f"rows {rows}, expected {source.accepted}"),
        (rejected != source.rejected, f"quarantined {rejected}, expected {source.rejected}"),
        (bool(orphans), f"left over: {', '.join(orphans)}"),
        (bool(pending), f"pending: {', '.join(map(str, pending))}"),
        (len(set(commits)) != len(commits), f"completed twice: {commits}"),
    )
    return [words for is_so, words in found if is_so]
