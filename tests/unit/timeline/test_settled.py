"""The settled mark: a start lists instants from the mark on; a full listing finds late instants before the mark."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.execution.runner import LocalRunner
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import FULL_LISTING_EVERY, recover
from ingest.protocol.steps import open_instant, roll_back
from sinks.memory import MemorySink
from sinks.parquet.markers import file_id, marker_path
from tests.fakes import EmptySink
from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore
from timeline import chain as chains
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain, move_settled, write_snapshot
from timeline.clock import InstantClock
from timeline.decision import Decision, Outcome
from timeline.epoch import PLAN, EpochRef, Plan
from timeline.instant import commit_completed, commit_inflight, commit_requested, format_time
from timeline.lease import WriterLease, WriterRecord
from timeline.process import ProcessId
from timeline.settled import SETTLED, SETTLED_PATH, SettledMark, read_settled
from timeline.stores.base import size_of

SOURCE = NumberSource({"a": 1000}, most=1)
PIPELINE = Pipeline(SOURCE, NUMBER_SCHEMA, False, LocalRunner())


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture(autouse=True)
def every_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a snapshot, and so the mark, every third epoch."""
    monkeypatch.setattr(chains, "SNAPSHOT_EVERY", 3)


def make_job(store: ScriptedStore, *, now_ms: int = 2**41) -> JobContext:
    """The job of a new process, on one table beside its timeline; the wall clock stands still."""
    sinks = (MemorySink("table", "app", store, AT_ONCE), EmptySink())
    clock = InstantClock(lambda: now_ms)
    return JobContext("numbers", store, IDENTITY, sinks, "quarantine", None, "a test", clock=clock, retry=AT_ONCE)


def lease(job: JobContext, generation: int = 1) -> WriterLease:
    record = WriterRecord(generation, ProcessId("host", "", 1, 0, ""), job.name, 60_000, 0, False, "t")
    return WriterLease(job.store, record, AT_ONCE)


def start(job: JobContext, generation: int = 1) -> Chain:
    """Recover and load the chain, like a writer before its first plan."""
    recover(job, lease(job, generation))
    return load_chain(job.store, ActiveTimeline.recent(job.store, AT_ONCE), AT_ONCE, repair=True)


def ingest(job: JobContext, epochs: int) -> Chain:
    """Run `epochs` epochs, like the ingest loop."""
    chain = start(job)
    for _ in range(epochs):
        ranges = SOURCE.plan(chain.positions).ranges
        result = run_epoch(job, PIPELINE, NextEpoch(chain, ranges), lease(job), stop=threading.Event())
        chain = chain.advanced(result.decision)
        write_snapshot(job.store, chain, AT_ONCE)
    return chain


def commits(store: ScriptedStore) -> list[str]:
    return [instant.time for instant in ActiveTimeline.load(store, AT_ONCE).completed()]


def late_instant(store: ScriptedStore, *, files: tuple[str, ...] = ()) -> str:
    """Leave an instant before the mark, as by a writer that froze in its first epoch, resumed now and was killed."""
    mark = read_settled(store, AT_ONCE)
    assert mark is not None
    time = format_time(2**41 - 1000)
    assert time < mark.time
    plan = Plan(EpochRef(0, time, 1), "numbers", "a zombie", (), ("table",), {}, "zombie")
    store.put(commit_requested(time).path, PLAN.dump(plan))
    store.put(commit_inflight(time).path, b"")
    for drawn in files:
        path = f"{file_id('app', drawn)}-0_0-0-0_{time}.arrow"
        store.put(marker_path(time, path), b"")
        store.put(path, b"late rows")
    return time


def test_a_start_lists_what_came_since_the_mark_however_old_the_timeline_is(store: ScriptedStore) -> None:
    costs = []
    for _ in range(4):
        ingest(make_job(store), 9)
        store.calls.clear()
        store.listed = 0
        chain = start(make_job(store))
        costs.append((store.calls["list"], store.listed, store.calls["get"]))
    assert chain.next_epoch == 36
    assert len(set(costs)) == 1, f"listings, objects listed, bodies read: {costs}"


def test_the_chain_from_the_mark_on_is_that_of_the_whole_timeline(store: ScriptedStore) -> None:
    for epochs in range(1, 9):
        ingest(make_job(store), epochs)
        whole = load_chain(store, ActiveTimeline.load(store, AT_ONCE), AT_ONCE)
        assert start(make_job(store)) == whole
        assert whole.last is not None and whole.last.epoch == whole.next_epoch - 1


def test_the_mark_is_a_completed_instant_and_is_in_the_recent_view(store: ScriptedStore) -> None:
    ingest(make_job(store), 7)
    mark = read_settled(store, AT_ONCE)
    assert mark is not None and mark.time == commits(store)[5]
    recent = ActiveTimeline.recent(store, AT_ONCE)
    assert [instant.time for instant in recent] == commits(store)[5:]
    assert recent.settled == mark


def test_times_are_drawn_behind_everything_before_the_mark(store: ScriptedStore) -> None:
    ingest(make_job(store), 6)
    latest = ActiveTimeline.load(store, AT_ONCE).latest_time
    far = format_time(2**41 + 10**9)
    store.put(SETTLED_PATH, SETTLED.dump(SettledMark(commits(store)[-1], far)))
    job = make_job(store, now_ms=0)
    start(job)
    assert job.clock.next() > far > (latest or "")


def test_an_epoch_is_later_than_the_one_before_it_though_the_wall_clock_is_behind(store: ScriptedStore) -> None:
    chain = ingest(make_job(store), 6)
    assert chain.last is not None
    slow = make_job(store, now_ms=0)  # has not listed the timeline since that epoch was decided
    plan = open_instant(slow, chain, lease(slow), SOURCE.plan(chain.positions).ranges)
    assert plan.ref.instant > chain.last.completion_time > chain.last.instant


@pytest.mark.parametrize("epochs", [3, 6])
def test_the_chain_right_behind_a_snapshot_knows_the_last_decision(store: ScriptedStore, epochs: int) -> None:
    chain = ingest(make_job(store), epochs)
    loaded = start(make_job(store))
    assert loaded.last == chain.last is not None


def test_the_mark_does_not_pass_what_is_pending(store: ScriptedStore) -> None:
    job = make_job(store)
    chain = ingest(job, 2)
    plan = Plan(EpochRef(0, format_time(1), 1), "numbers", "another", (), ("table",), {}, "another")
    store.put(commit_requested(plan.ref.instant).path, PLAN.dump(plan))
    ingested = run_epoch(
        job, PIPELINE, NextEpoch(chain, SOURCE.plan(chain.positions).ranges), lease(job), stop=threading.Event()
    )
    write_snapshot(store, chain.advanced(ingested.decision), AT_ONCE)
    assert read_settled(store, AT_ONCE) is None
    chain = ingest(make_job(store), 3)
    mark = read_settled(store, AT_ONCE)
    assert mark is not None and mark.time > plan.ref.instant
    assert ActiveTimeline.load(store, AT_ONCE).pending().instants == ()


def test_a_rollback_that_is_pending_holds_the_mark(store: ScriptedStore) -> None:
    ingest(make_job(store), 2)
    pending = format_time(5)
    store.put(f".hoodie/timeline/{pending}.rollback.requested", b"")
    move_settled(store, ActiveTimeline.load(store, AT_ONCE), commits(store)[-1], AT_ONCE)
    assert read_settled(store, AT_ONCE) is None


def test_the_mark_is_put_before_an_epoch_that_is_decided_and_not_completed_yet(store: ScriptedStore) -> None:
    chain = ingest(make_job(store), 3)
    before = read_settled(store, AT_ONCE)
    assert before is not None
    chain = ingest(make_job(store), 3)
    store.put(SETTLED_PATH, SETTLED.dump(before))
    newest = ActiveTimeline.load(store, AT_ONCE).instants[-1]
    store.delete([newest.path])
    write_snapshot(store, chain, AT_ONCE)
    mark = read_settled(store, AT_ONCE)
    assert mark is not None
    assert before.time < mark.time == commits(store)[4] < newest.time


def test_the_mark_is_never_put_behind_the_newest_decided_epoch(store: ScriptedStore) -> None:
    chain = ingest(make_job(store), 6)
    assert chain.last is not None
    far = format_time(2**41 + 10**9)
    store.put(commit_completed(far, far).path, b"another Hudi writer's")
    write_snapshot(store, chain, AT_ONCE)
    mark = read_settled(store, AT_ONCE)
    assert mark is not None and mark.time == chain.last.instant and mark.latest == far


def test_a_timeline_without_a_mark_is_looked_at_as_a_whole_and_gets_one(store: ScriptedStore) -> None:
    ingest(make_job(store), 7)
    store.delete([SETTLED_PATH])
    assert len(ActiveTimeline.recent(store, AT_ONCE)) == 7
    start(make_job(store))
    mark = read_settled(store, AT_ONCE)
    assert mark is not None and mark.time == commits(store)[-1]


@pytest.mark.parametrize("body", [b"", b"{", b'{"format":2,"kind":"settled"}', b'{"format":1,"kind":"plan"}'])
def test_a_mark_that_cannot_be_read_costs_a_longer_listing_and_nothing_else(store: ScriptedStore, body: bytes) -> None:
    ingest(make_job(store), 7)
    store.put(SETTLED_PATH, body)
    assert len(ActiveTimeline.recent(store, AT_ONCE)) == 7
    start(make_job(store))
    assert read_settled(store, AT_ONCE) is not None


def test_what_woke_up_before_the_mark_is_removed_by_the_writer_whose_turn_it_is(store: ScriptedStore) -> None:
    ingest(make_job(store), 7)
    time = late_instant(store, files=("late",))
    rows = make_job(store).sinks[0].lookup(EpochRef(6, "", 1))
    for generation in range(FULL_LISTING_EVERY - 3, FULL_LISTING_EVERY):
        start(make_job(store), generation)
        assert size_of(store, commit_requested(time).path) is not None
    start(make_job(store), FULL_LISTING_EVERY)
    assert size_of(store, commit_requested(time).path) is None
    assert [path for path in store.inner.list("", recursive=True) if path.path.endswith(f"{time}.arrow")] == []
    assert make_job(store).sinks[0].lookup(EpochRef(6, "", 1)) is rows
    assert ActiveTimeline.load(store, AT_ONCE).pending().instants == ()
    assert start(make_job(store)).next_epoch == 7


def test_a_late_instant_that_is_rolled_back_again_finds_its_rollback(store: ScriptedStore) -> None:
    ingest(make_job(store), 7)
    time = late_instant(store)
    for _ in range(2):
        job = make_job(store)
        roll_back(job, EpochRef(0, time, 1), None, "decided against it")
        store.put(commit_requested(time).path, b"")
    rollbacks = [instant for instant in ActiveTimeline.load(store, AT_ONCE) if instant.action.value == "rollback"]
    assert len(rollbacks) == 1 and rollbacks[0].time > commits(store)[-2]


def test_late_files_of_an_instant_before_the_mark_are_deleted_by_the_next_start(store: ScriptedStore) -> None:
    ingest(make_job(store), 7)
    first = commits(store)[0]
    late = f"{file_id('app', 'late')}-0_9-0-1_{first}.arrow"
    store.put(marker_path(first, late), b"")
    store.put(late, b"rows of a speculative copy")
    start(make_job(store))
    assert size_of(store, late) is None
    assert len({row for row in MemorySink("table", "app", store, AT_ONCE).read()["number"].to_pylist()}) == 7


def test_late_files_of_an_instant_that_was_rolled_back_before_the_mark_are_deleted(store: ScriptedStore) -> None:
    job = make_job(store)
    chain = start(job)
    plan = open_instant(job, chain, lease(job), SOURCE.plan(chain.positions).ranges)
    recover(job, lease(job))
    ingest(make_job(store), 7)
    late = f"{file_id('app', 'late')}-0_9-0-1_{plan.ref.instant}.arrow"
    store.put(marker_path(plan.ref.instant, late), b"")
    store.put(late, b"closed long after the rollback")
    mark = read_settled(store, AT_ONCE)
    assert mark is not None and plan.ref.instant < mark.time
    start(make_job(store))
    assert size_of(store, late) is None


def test_a_rolled_back_epoch_is_no_place_for_the_mark(store: ScriptedStore) -> None:
    store.put(commit_completed(format_time(0), format_time(1)).path, b"")
    decision = Decision(2, Outcome.ROLLBACK, format_time(2), format_time(3), 1, "test", "why", "token")
    write_snapshot(store, replace(Chain(3), last=decision), AT_ONCE)
    assert read_settled(store, AT_ONCE) is None


def test_since_lists_an_instant_of_that_time_and_none_before(store: ScriptedStore) -> None:
    times = [format_time(number) for number in range(5)]
    for time in times:
        for instant in (commit_requested(time), commit_inflight(time), commit_completed(time, times[-1])):
            store.put(instant.path, b"")
    store.listed = 0
    assert [instant.time for instant in ActiveTimeline.since(store, times[3], AT_ONCE)] == times[3:]
    assert store.listed == 6
