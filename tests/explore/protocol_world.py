"""The real protocol as processes for the explorer, and checks of the invariants of docs/design.md on a store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.execution.runner import LocalRunner
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import FULL_LISTING_EVERY, recover
from sinks.base import Sink
from sinks.memory import LOG_ENTRY, MemorySink
from sinks.parquet.markers import TEMP_FOLDER
from tests.explore.stepped import Body, SteppedStore
from tests.fakes import EmptySink
from timeline.active import ActiveTimeline
from timeline.chain import load_chain, move_settled
from timeline.clock import InstantClock
from timeline.decision import DECISION, Decision, Outcome
from timeline.epoch import PLAN
from timeline.errors import TidelineError
from timeline.instant import Action, State, parse_file_name
from timeline.lease import WriterLease, WriterRecord
from timeline.process import ProcessId
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.memory import MemoryStore

START_MS = 1_700_000_000_000
NEVER_AGAIN = Retry(attempts=3, first_pause_s=0, sleep=lambda pause_s: None, monotonic=lambda: 0.0)

SinkMaker = Callable[[ObjectStore, Callable[[], str]], tuple[Sink, ...]]


def one_table(store: ObjectStore, new_id: Callable[[], str]) -> tuple[Sink, ...]:
    """One table, and a quarantine that stays empty."""
    return (MemorySink("table", "app", store, NEVER_AGAIN, new_id), EmptySink())


@dataclass
class Ids:
    """Numbered ids with the name of their process: schedules with equal steps write equal objects."""

    name: str
    drawn: int = 0

    def __call__(self) -> str:
        self.drawn += 1
        return f"{self.name}{self.drawn}"


def make_job(store: ObjectStore, name: str, number: int, sinks: SinkMaker = one_table) -> JobContext:
    """The job of one process.

    Args:
        store: the process's store.
        name: the process's name, in its ids.
        number: the process's number; its wall clock is ahead by as many milliseconds.
        sinks: makes the targets.
    """
    clock, files, tokens = InstantClock(lambda: START_MS + number), Ids(f"{name}-file-"), Ids(f"{name}-token-")
    if isinstance(store, SteppedStore):
        store.draws = [lambda: clock.latest, lambda: files.drawn, lambda: tokens.drawn]
    return JobContext(
        name="numbers",
        store=store,
        identity=IDENTITY,
        sinks=sinks(store, files),
        quarantine="quarantine",
        base_target="table",
        by=name,
        clock=clock,
        retry=NEVER_AGAIN,
        token=tokens,
    )


def make_lease(store: ObjectStore, number: int) -> WriterLease:
    """A lease that was never taken in the store: safety must not depend on the lease."""
    process = ProcessId("host", "", number, 0, "")
    return WriterLease(store, WriterRecord(number + 1, process, "numbers", 60_000, 0, False, "t"), NEVER_AGAIN)


def writer(epochs: int, source: NumberSource, sinks: SinkMaker = one_table, *, is_marking: bool = False) -> Body:
    """A process that recovers and then runs some epochs, as `tideline run` does.

    Args:
        epochs: number of epochs at most.
        source: the records.
        sinks: makes the targets.
        is_marking: move the settled mark after every epoch, instead of every hundredth.
    """

    def run(store: SteppedStore, number: int) -> None:
        job = make_job(store, f"P{number}", number, sinks)
        with contextlib.suppress(TidelineError):
            recover(job, make_lease(store, number))
            chain = load_chain(store, ActiveTimeline.recent(store, job.retry), job.retry)
            for _ in range(epochs):
                plan = source.plan(chain.positions)
                if not plan.ranges:
                    break
                pipeline = Pipeline(source, NUMBER_SCHEMA, False, LocalRunner())
                # A new lease per epoch: a writer that was overtaken in one epoch and continues must do no harm.
                lease = make_lease(store, number)
                result = run_epoch(job, pipeline, NextEpoch(chain, plan.ranges), lease, stop=threading.Event())
                chain = chain.advanced(result.decision)
                if is_marking:
                    move_settled(store, ActiveTimeline.recent(store, job.retry), result.decision.instant, job.retry)

    return run


def recoverer(sinks: SinkMaker = one_table) -> Body:
    """A process that only recovers."""

    def run(store: SteppedStore, number: int) -> None:
        with contextlib.suppress(TidelineError):
            recover(make_job(store, f"P{number}", number, sinks), make_lease(store, number))

    return run


def decisions(store: MemoryStore) -> list[Decision]:
    """All decisions, in order; asserts that none is missing in between."""
    paths = sorted(path for path in store.objects if path.startswith(".hoodie/decisions/"))
    found = [DECISION.load(path, store.objects[path]) for path in paths]
    assert [decision.epoch for decision in found] == list(range(len(found))), "a hole in the decisions"
    return found


def check_visible(store: MemoryStore) -> None:
    """Check invariants 1, 2, 3 and 7, in any state: visible epochs are decided, in order, and have all files."""
    decided = decisions(store)
    log = [path for path in sorted(store.objects) if path.startswith("_log/")]
    entries = [LOG_ENTRY.load(path, store.objects[path]) for path in log]
    epochs = [entry.epoch for entry in entries]
    assert epochs == sorted(set(epochs)), f"epochs visible twice or out of order: {epochs}"
    for entry in entries:
        assert entry.epoch < len(decided), f"epoch {entry.epoch} is visible and not decided"
        assert decided[entry.epoch].commits(entry.instant), f"{entry.instant} is visible, not decided to commit"
        gone = [path for path in entry.files if path not in store.objects]
        assert not gone, f"files of visible {entry.instant} are gone: {gone}"
    numbers = MemorySink("table", "app", store, NEVER_AGAIN).read()
    values = numbers["number"].to_pylist() if entries else []
    assert values == list(range(len(values))), f"visible rows {values}"
    reached: dict[str, int] = {}
    for decision in decided:
        for shard, position in decision.positions.items():
            assert position.offset > reached.get(shard, 0), f"epoch {decision.epoch} overlaps: {position}"
            reached[shard] = position.offset


def check_recovered(store: MemoryStore, sinks: SinkMaker = one_table) -> None:
    """Recover alone, then check invariants 4 and 6: decided commits are visible and completed, the rest is deleted."""
    recover(make_job(store, "R", 9, sinks), make_lease(store, 9))
    check_visible(store)
    commits = [decision.instant for decision in decisions(store) if decision.outcome is Outcome.COMMIT]
    log = [LOG_ENTRY.load(path, store.objects[path]) for path in sorted(store.objects) if path.startswith("_log/")]
    assert [entry.instant for entry in log] == commits, "decided commits are not all visible"
    instants = [parse_file_name(path.rpartition("/")[2]) for path in store.objects if "/timeline/" in path]
    pending = ActiveTimeline.load(store).pending().instants
    assert not pending, f"pending after recovery: {pending}"
    completed = [i.time for i in instants if i.action is Action.COMMIT and i.state is State.COMPLETED]
    assert sorted(completed) == sorted(commits), f"completed {completed}, decided {commits}"
    requested = {i.time for i in instants if i.action is Action.COMMIT and i.state is not State.COMPLETED}
    assert requested == set(commits), f"files of rolled-back instants are left: {requested - set(commits)}"
    data = {path for path in store.objects if path.endswith(".arrow")}
    visible = {path for entry in log for path in entry.files}
    assert data == visible, f"orphans: {data - visible}"
    for decision in decisions(store):
        if decision.outcome is Outcome.ROLLBACK:
            gone = [rollback_of(store, i.time) for i in instants if i.action is Action.ROLLBACK]
            assert decision.instant in gone, f"no rollback instant for {decision.instant}"
    # A marker without its file stays for a day (ADR 2): of a rolled-back instant whose time is used again.
    markers = {path for path in store.objects if path.startswith(TEMP_FOLDER)}
    left = {path for path in markers if any(path.endswith(f"/{file}.marker.CREATE") for file in data)}
    assert not left, f"markers of committed files are left: {left}"


def check_recovered_behind_the_mark(store: MemoryStore) -> None:
    """Check that recovery from the settled mark on completes all decided epochs, and a full listing all instants."""
    recover(make_job(store, "B", 10), make_lease(store, 10))
    check_visible(store)
    completed = {instant.time for instant in ActiveTimeline.load(store).completed()}
    undone = [
        each.instant for each in decisions(store) if each.outcome is Outcome.COMMIT and each.instant not in completed
    ]
    assert not undone, f"decided, and pending after recovery: {undone}"
    recover(make_job(store, "W", 11), make_lease(store, FULL_LISTING_EVERY - 1))
    check_recovered(store)


def rollback_of(store: MemoryStore, time: str) -> str:
    """The instant that a rollback instant removed."""
    from timeline.rollback import ROLLBACK_PLAN

    path = f".hoodie/timeline/{time}.rollback.requested"
    return ROLLBACK_PLAN.load(path, store.objects[path]).instant


def planned(store: MemoryStore, time: str) -> int:
    """Epoch of a commit instant."""
    path = f".hoodie/timeline/{time}.commit.requested"
    return PLAN.load(path, store.objects[path]).ref.epoch


def fresh(store: MemoryStore) -> MemoryStore:
    """A copy of the store that can be changed."""
    return replace(store, objects=dict(store.objects))
