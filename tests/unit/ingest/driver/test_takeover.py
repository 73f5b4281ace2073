"""`tideline recover`: the instants that it checks, and that it settles the instants it reports as pending."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, build_job, create_timeline, known_schema, open_timeline
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.driver.takeover import examine, run_recovery
from ingest.execution.runner import LocalRunner
from ingest.protocol.evidence import gather
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import DIED, Cause, Settler, settle
from ingest.protocol.steps import open_instant, prepare
from sinks.base import TaskAttempt
from sinks.memory import MemorySink
from tests.fakes import EmptySink
from tests.unit.timeline.scripted_store import AT_ONCE
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain
from timeline.decision import read_decision
from timeline.epoch import PLAN, EpochRef, OffsetRange, Part, Plan, ShardCount, WriteReport
from timeline.errors import FencedError
from timeline.hudi.layout import commit_body
from timeline.instant import commit_completed, commit_inflight, commit_requested, format_time
from timeline.lease import LeaseState, WriterLease, WriterRecord
from timeline.process import ProcessId
from timeline.settled import SETTLED, SETTLED_PATH, SettledMark
from timeline.stores.base import StoreTraits, size_of
from timeline.stores.memory import MemoryStore

OLD, MARK, NEW = (format_time(1_700_000_000_000 + number) for number in range(3))


@pytest.fixture
def opened(tmp_path: Path) -> TimelineHandle:
    """The empty timeline of a job with one Delta target; it has had no writer."""
    settings = {
        "name": "takeover",
        "source": {"type": "files", "path": f"{tmp_path}/logs/*.jsonl", "format": "json"},
        "schema": {"id": "bigint"},
        "targets": [{"type": "delta", "path": f"{tmp_path}/lake"}],
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(settings))
    unborn = open_timeline(load_config(file))
    schema = known_schema(unborn)
    assert schema is not None
    return create_timeline(unborn, schema)


def lease(job: JobContext) -> WriterLease:
    record = WriterRecord(1, ProcessId("host", "", 1, 0, ""), job.name, 60_000, 0, False, "t")
    return WriterLease(job.store, record, job.retry)


def put_requested(opened: TimelineHandle, time: str, epoch: int) -> None:
    plan = Plan(EpochRef(epoch, time, 1), "takeover", "someone", (), (), {}, time)
    opened.store.put(commit_requested(time).path, PLAN.dump(plan))


def put_completed(opened: TimelineHandle, time: str, completion_time: str) -> None:
    """Put a commit of another writer, in all of its states."""
    for path in (commit_requested(time).path, commit_inflight(time).path):
        opened.store.put(path, b"")
    opened.store.put(commit_completed(time, completion_time).path, commit_body((), {}))


def put_mark(opened: TimelineHandle) -> None:
    put_completed(opened, MARK, NEW)
    opened.store.put(SETTLED_PATH, SETTLED.dump(SettledMark(MARK, NEW)))


def test_recovery_looks_behind_the_mark_first_and_at_the_whole_where_nothing_is_pending_there(
    opened: TimelineHandle,
) -> None:
    put_mark(opened)
    put_requested(opened, OLD, 1)
    put_requested(opened, NEW, 0)
    assert [evidence.instant for evidence, _ in examine(opened).found] == [NEW]
    assert [each.evidence.instant for each in run_recovery(opened).settled] == [NEW]
    assert [evidence.instant for evidence, _ in examine(opened).found] == [OLD]
    assert [each.evidence.instant for each in run_recovery(opened).settled] == [OLD]
    assert ActiveTimeline.load(opened.store, opened.retry).pending().instants == ()
    assert examine(opened).found == []


def test_rollback_that_is_pending_before_the_mark_is_finished(opened: TimelineHandle) -> None:
    put_mark(opened)
    job = build_job(opened)
    chain = load_chain(opened.store, ActiveTimeline(), opened.retry)
    plan = open_instant(job, chain, lease(job), (OffsetRange("a", 0, 1),))
    run_recovery(opened)
    (rollback,) = [
        instant for instant in ActiveTimeline.load(opened.store, opened.retry) if instant.action.value == "rollback"
    ]
    opened.store.delete([rollback.path])
    later = format_time(2**42)
    put_completed(opened, later, later)
    opened.store.put(SETTLED_PATH, SETTLED.dump(SettledMark(later, later)))
    assert len(ActiveTimeline.load(opened.store, opened.retry).pending()) == 1
    run_recovery(opened)
    assert ActiveTimeline.load(opened.store, opened.retry).find(rollback.time, rollback.action) == rollback
    assert size_of(opened.store, commit_requested(plan.ref.instant).path) is None


@dataclass(frozen=True)
class Asked(MemorySink):
    """Records the instants whose files it verified."""

    asked: list[str] = field(default_factory=list)

    def verify(self, part: Part) -> Sequence[str]:
        self.asked.append(part.epoch.instant)
        return super().verify(part)


def test_files_of_an_epoch_are_asked_for_once_by_a_process_that_knows_its_manifest() -> None:
    store = MemoryStore()
    sink = Asked("table", "app", store, AT_ONCE)
    job = JobContext("numbers", store, IDENTITY, (sink, EmptySink()), "quarantine", None, "a test", retry=AT_ONCE)
    plan = open_instant(job, Chain(), lease(job), (OffsetRange("a", 0, 2),))
    writer = sink.begin(plan).open(TaskAttempt(0, 0, 0))
    writer.write(pa.record_batch({"number": pa.array([1, 2], pa.int64())}))
    reports = {"table": [writer.close()], "quarantine": [WriteReport(0, 0)]}
    manifest = prepare(job, plan, [ShardCount("a", 2, 2, 0)], reports)
    at = plan.ref.instant
    assert gather(job, at, LeaseState.EXPIRED).manifest == manifest
    assert sink.asked == [at]
    assert gather(job, at, LeaseState.EXPIRED, checked=manifest).manifest == manifest
    assert sink.asked == [at]
    gather(job, at, LeaseState.EXPIRED, checked=replace(manifest, counts=()))
    assert sink.asked == [at, at], "another manifest than the one that was looked at"
    settle(job, at, Settler(LeaseState.MINE, 2), checked=manifest)
    assert sink.asked == [at, at]
    assert sink.read().num_rows == 2


@dataclass
class TakenOver(MemoryStore):
    """A store in which the next writer settles an epoch right before its writer decides it."""

    settle: Callable[[], object] | None = None

    def put_if_absent(self, path: str, body: bytes) -> None:
        if path.startswith(".hoodie/decisions/") and self.settle is not None:
            settle, self.settle = self.settle, None
            settle()
        super().put_if_absent(path, body)


def test_a_writer_that_finds_its_epoch_committed_by_the_next_one_begins_no_other() -> None:
    store = TakenOver()
    sink = MemorySink("table", "app", store, AT_ONCE)
    job = JobContext("numbers", store, IDENTITY, (sink, EmptySink()), "quarantine", None, "a test", retry=AT_ONCE)
    mine, ranges = lease(job), (OffsetRange("a", 0, 2),)

    def settle_it() -> None:
        (instant,) = ActiveTimeline.load(store, AT_ONCE).pending()
        settle(job, instant.time, Settler(LeaseState.EXPIRED, 2))

    store.settle = settle_it
    pipeline = Pipeline(NumberSource({"a": 2}, most=2), NUMBER_SCHEMA, False, LocalRunner())
    result = run_epoch(job, pipeline, NextEpoch(Chain(), ranges), mine, stop=threading.Event())
    assert (result.decision.generation, sink.read().num_rows) == (2, 2)
    assert mine.is_lost, "its heart need not have beaten for it"
    with pytest.raises(FencedError):
        mine.check()


@pytest.mark.parametrize(
    ("cause", "is_crash"),
    [(DIED, True), (Cause("SparkJobError", is_crash=True), True), (Cause("asked to stop", is_crash=False), False)],
)
def test_a_rollback_says_whether_a_crash_ended_the_epoch(cause: Cause, is_crash: bool) -> None:
    store = MemoryStore()
    sink = MemorySink("table", "app", store, AT_ONCE)
    job = JobContext("numbers", store, IDENTITY, (sink, EmptySink()), "quarantine", None, "a test", retry=AT_ONCE)
    plan = open_instant(job, Chain(), lease(job), (OffsetRange("a", 0, 2),))
    settle(job, plan.ref.instant, Settler(LeaseState.MINE, 2, cause))
    decision = read_decision(store, 0, AT_ONCE)
    assert decision is not None and decision.is_crash is is_crash


@dataclass
class SlowPlans(MemoryStore):
    """A store that puts plans slowly, and records the objects that are created meanwhile."""

    meanwhile: list[str] = field(default_factory=list)

    @property
    def traits(self) -> StoreTraits:
        return replace(super().traits, requests_at_once=8)

    def put_if_absent(self, path: str, body: bytes) -> None:
        before = set(self.objects)
        if path.endswith(".commit.requested"):
            time.sleep(0.05)
            self.meanwhile.extend(set(self.objects) - before)
        super().put_if_absent(path, body)


def test_an_instant_is_inflight_only_once_it_is_requested() -> None:
    """Recovery deletes the files that an inflight file without a plan announces, without a decision."""
    store = SlowPlans()
    sink = MemorySink("table", "app", store, AT_ONCE)
    job = JobContext("numbers", store, IDENTITY, (sink, EmptySink()), "quarantine", None, "a test", retry=AT_ONCE)
    open_instant(job, Chain(), lease(job), (OffsetRange("a", 0, 2),))
    assert store.meanwhile == []
