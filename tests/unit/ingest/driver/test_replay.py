"""A decided epoch that a target has lost is written to that target again, exactly once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.driver.replay import Replay
from ingest.execution.runner import LocalRunner
from ingest.execution.task import TaskReport, TaskSpec
from ingest.protocol.evidence import gather
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import SettledInstant, StepKind, recover, settle_all
from ingest.protocol.steps import apply_in_order, read_manifest
from sinks.memory import MemorySink
from tests.transaction_sink import LOSE, TransactionSink, committed, still_told, tell
from tests.unit.timeline.scripted_store import AT_ONCE
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain
from timeline.decision import read_decision
from timeline.epoch import MANIFEST, EpochRef, Part, WriteReport
from timeline.errors import InvariantError, ReplayNeededError, RowCountError, StoppedError
from timeline.instant import Action, commit_inflight, commit_requested
from timeline.lease import LeaseObserver, LeaseState, WriterLease, take_lease
from timeline.stores.memory import MemoryStore

SOURCE = NumberSource({"a": 4}, most=2, bad_every=2)
"""Two epochs; every second record is malformed."""


@dataclass
class World:
    """Stores of a job with a table, a target with transactions and a quarantine."""

    table: MemoryStore
    keyed: MemoryStore
    quarantine: MemoryStore

    def job(self, source: NumberSource = SOURCE, *, drops: int = 0, reads: bool = True) -> JobContext:
        """The job in a new process; without `reads` it has no pipeline, like `tideline recover`."""
        job = JobContext(
            name="numbers",
            store=self.table,
            identity=IDENTITY,
            sinks=(
                MemorySink("table", "app", self.table, AT_ONCE),
                TransactionSink("keyed", self.keyed, drops=drops),
                MemorySink("quarantine", "app", self.quarantine, AT_ONCE),
            ),
            quarantine="quarantine",
            base_target="table",
            by="a test",
            retry=AT_ONCE,
        )
        return replace(job, rewrite=Replay(lambda: pipeline(source), threading.Event())) if reads else job

    def pending(self) -> Sequence[str]:
        return [instant.time for instant in ActiveTimeline.load(self.table).pending().by_action(Action.COMMIT)]

    def check(self, epochs: int) -> None:
        """Check that targets have each row of the first epochs once, and nothing is pending or unreleased."""
        numbers = [number for number in range(2 * epochs) if number % 2]
        assert committed(self.keyed) == numbers
        assert sorted(MemorySink("t", "app", self.table).read()["number"].to_pylist()) == numbers
        rejected = MemorySink("q", "app", self.quarantine).read()["offset"].to_pylist()
        assert sorted(rejected) == [number for number in range(2 * epochs) if number % 2 == 0]
        assert self.pending() == []
        assert TransactionSink("keyed", self.keyed).unreleased() == []


@pytest.fixture
def world() -> World:
    return World(MemoryStore("memory://table"), MemoryStore("memory://keyed"), MemoryStore("memory://quarantine"))


def pipeline(source: NumberSource) -> Pipeline:
    return Pipeline(source, NUMBER_SCHEMA, False, LocalRunner())


def lease_of(job: JobContext) -> WriterLease:
    observer = LeaseObserver(job.store, AT_ONCE)
    return take_lease(observer, job=job.name, ttl_ms=60_000, force=True)


def chain_of(job: JobContext) -> Chain:
    return load_chain(job.store, ActiveTimeline.load(job.store, AT_ONCE), AT_ONCE)


def run_one(job: JobContext, source: NumberSource = SOURCE) -> None:
    """Run the next epoch, as a new writer."""
    chain = chain_of(job)
    ranges = source.plan(chain.positions).ranges
    run_epoch(job, pipeline(source), NextEpoch(chain, ranges), lease_of(job), stop=threading.Event())


def decide_and_lose(world: World, source: NumberSource = SOURCE) -> str:
    """Decide an epoch that its target loses, in a process that cannot replay it; returns its instant."""
    tell(world.keyed, LOSE, 1)
    with pytest.raises(ReplayNeededError):
        run_one(world.job(source, reads=False), source)
    (instant,) = world.pending()
    return instant


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_writer_writes_again_what_its_target_lost_before_the_commit(world: World, losses: int) -> None:
    tell(world.keyed, LOSE, losses)
    run_one(world.job())
    world.check(epochs=1)
    run_one(world.job())
    world.check(epochs=2)
    assert still_told(world.keyed, LOSE) == 0


def test_the_next_run_writes_it_again_before_it_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    decide_and_lose(world)
    job = world.job()
    with caplog.at_level(logging.INFO):
        recover(job, lease_of(job))
    world.check(epochs=1)
    assert "is written to keyed again (1 of 3)" in caplog.text
    run_one(job)
    world.check(epochs=2)


def test_the_manifest_stays_as_it_was_decided(world: World) -> None:
    instant = decide_and_lose(world)
    before = world.table.objects[commit_inflight(instant).path]
    job = world.job()
    recover(job, lease_of(job))
    assert world.table.objects[commit_inflight(instant).path] == before


def test_a_target_that_loses_it_again_and_again_ends_the_process_and_not_the_epoch(world: World) -> None:
    tell(world.keyed, LOSE, 5)
    with pytest.raises(ReplayNeededError, match="keyed: epoch 0"):
        run_one(world.job())
    assert len(world.pending()) == 1
    job = world.job()
    recover(job, lease_of(job))
    world.check(epochs=1)


def test_no_pipeline_is_made_where_nothing_was_lost(world: World) -> None:
    def none_needed() -> Pipeline:
        raise AssertionError("the engine was started for nothing")

    job = replace(world.job(), rewrite=Replay(none_needed, threading.Event()))
    run_one(job)
    recover(job, lease_of(job))
    world.check(epochs=1)


def test_recovery_without_a_source_leaves_it_pending_and_says_why(world: World) -> None:
    instant = decide_and_lose(world)
    job = world.job(reads=False)
    (left,) = settle_all(job, lease_of(job)).settled
    assert not left.is_done
    assert (left.evidence.instant, left.step.kind) == (instant, StepKind.REPLAY)
    assert "keyed: epoch 0" in left.step.reason and "was rolled back" in left.step.reason
    (seen,) = left.evidence.lost
    assert seen.startswith("keyed: transaction txn/") and seen.endswith("was rolled back")
    with pytest.raises(ReplayNeededError, match="keyed: epoch 0"):
        recover(job, lease_of(job))
    assert world.pending() == [instant]


def test_what_was_written_again_and_committed_is_not_lost_any_more(world: World) -> None:
    instant = decide_and_lose(world)
    job = world.job()
    manifest = read_manifest(job, instant)
    assert manifest is not None
    assert gather(job, instant, LeaseState.MINE).lost
    decision = read_decision(job.store, 0, AT_ONCE)
    assert decision is not None
    apply_in_order(job, decision, manifest)
    assert gather(job, instant, LeaseState.MINE).lost == ()
    (settled,) = settle_all(world.job(reads=False), lease_of(job)).settled
    assert (settled.step.kind, settled.is_done) == (StepKind.RECOMMIT, True)
    world.check(epochs=1)


def test_a_part_that_does_not_hold_what_tasks_wrote_is_not_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = TransactionSink.prepare

    def lose_a_row(self: TransactionSink, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        part = honest(self, epoch, reports)
        return replace(part, rows=part.rows - 1)

    monkeypatch.setattr(TransactionSink, "prepare", lose_a_row)
    with pytest.raises(RowCountError, match="target keyed took 1 written"):
        run_one(world.job())
    assert world.pending() == []


def test_recovery_settles_what_does_not_wait_for_it(world: World) -> None:
    """Targets before the one that lost the epoch are committed, and a later undecided instant is rolled back."""
    lost = decide_and_lose(world)
    job = world.job(reads=False)
    chain = chain_of(job)

    class DiesInTheMiddle(LocalRunner):
        def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
            super().run(specs, stop)
            raise KeyboardInterrupt

    def cannot_settle(*_: object, **__: object) -> SettledInstant:
        raise InvariantError("gone")

    dying = Pipeline(SOURCE, NUMBER_SCHEMA, False, DiesInTheMiddle())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("ingest.driver.epoch.settle", cannot_settle)
        run_epoch(
            job, dying, NextEpoch(chain, SOURCE.plan(chain.positions).ranges), lease_of(job), stop=threading.Event()
        )
    assert len(world.pending()) == 2
    first, second = settle_all(world.job(reads=False), lease_of(job)).settled
    assert (first.evidence.instant, first.step.kind, first.is_done) == (lost, StepKind.REPLAY, False)
    assert (second.step.kind, second.is_done) == (StepKind.ROLLBACK, True)
    assert world.pending() == [lost]
    assert MemorySink("t", "app", world.table).read()["number"].to_pylist() == [1]
    job = world.job()
    recover(job, lease_of(job))
    world.check(epochs=1)


def test_epochs_behind_it_wait_until_it_is_written_again(world: World) -> None:
    """A later epoch is never visible in the target before the one that was lost."""
    lost = decide_and_lose(world)
    job = world.job(reads=False)
    with pytest.raises(ReplayNeededError, match="epoch 0"):
        run_one(job)
    assert len(world.pending()) == 2
    first, second = settle_all(job, lease_of(job)).settled
    assert [first.is_done, second.is_done] == [False, False]
    assert "epoch 0" in second.step.reason
    assert committed(world.keyed) == []
    assert world.pending()[0] == lost
    job = world.job()
    recover(job, lease_of(job))
    world.check(epochs=2)


def test_a_source_that_gives_other_rows_stops_for_a_person(world: World) -> None:
    instant = decide_and_lose(world)
    changed = replace(SOURCE, bad_every=0)
    job = world.job(changed)
    with pytest.raises(InvariantError) as stopped:
        recover(job, lease_of(job))
    words = str(stopped.value)
    assert "shard a was 2 read = 1 accepted + 1 rejected, now it is 2 read = 2 accepted + 0 rejected" in words
    assert "epoch 0" in words and "keyed" in words and "a person has to look" in words
    assert "or has another version of Tideline decided it" in words
    assert committed(world.keyed) == []
    assert world.pending() == [instant]


def test_a_target_that_takes_other_rows_now_stops_for_a_person(world: World) -> None:
    decide_and_lose(world)
    job = world.job(drops=1)
    with pytest.raises(InvariantError) as stopped:
        recover(job, lease_of(job))
    assert "its part was 1 written + 0 dropped + 0 rejected, now it is 0 written + 1 dropped + 0 rejected" in str(
        stopped.value
    )
    assert committed(world.keyed) == []


def test_dropped_rows_that_are_dropped_again_are_no_difference(world: World) -> None:
    source = NumberSource({"a": 3}, most=3)
    tell(world.keyed, LOSE, 1)
    run_one(world.job(source, drops=1), source)
    assert committed(world.keyed) == [1, 2]


def test_an_epoch_without_its_plan_stops_for_a_person(world: World) -> None:
    instant = decide_and_lose(world)
    job = world.job()
    manifest = read_manifest(job, instant)
    assert manifest is not None and job.rewrite is not None
    world.table.delete([commit_requested(instant).path])
    with pytest.raises(InvariantError, match=r"its plan .* is gone: restore it"):
        job.rewrite(job, manifest, manifest.parts[1])


def test_the_quarantine_cannot_be_written_again(world: World) -> None:
    instant = decide_and_lose(world)
    job = world.job()
    manifest = read_manifest(job, instant)
    assert manifest is not None and job.rewrite is not None
    with pytest.raises(InvariantError, match="the quarantine quarantine lost"):
        job.rewrite(job, manifest, manifest.parts[2])


def test_a_signal_ends_it_and_the_epoch_stays_decided(world: World) -> None:
    instant = decide_and_lose(world)
    stop = threading.Event()
    stop.set()
    job = replace(world.job(), rewrite=Replay(lambda: pipeline(SOURCE), stop))
    with pytest.raises(StoppedError):
        recover(job, lease_of(job))
    assert world.pending() == [instant]
    job = world.job()
    recover(job, lease_of(job))
    world.check(epochs=1)


def test_records_that_were_rejected_for_reasons_told_otherwise_are_the_same_records(world: World) -> None:
    instant = decide_and_lose(world)
    job = world.job()
    manifest = read_manifest(job, instant)
    assert manifest is not None and any(count.reasons for count in manifest.counts)
    counts = tuple(replace(count, reasons={"other reasons": count.rejected}) for count in manifest.counts)
    world.table.objects[commit_inflight(instant).path] = MANIFEST.dump(replace(manifest, counts=counts))
    recover(job, lease_of(job))
    world.check(epochs=1)
