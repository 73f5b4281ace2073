"""Late files of tasks are deleted; files of another job and committed files are not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.execution.runner import LocalRunner
from ingest.protocol.job import JobContext
from ingest.protocol.late_files import clean_late_files
from ingest.protocol.recovery import recover
from ingest.protocol.steps import claim_rollback, open_instant, roll_back
from sinks.base import SelectiveWriter, TaskAttempt
from sinks.memory import MemorySink
from sinks.parquet.markers import file_id, marker_path
from tests.fakes import EmptySink
from tests.unit.timeline.scripted_store import AT_ONCE
from timeline.active import ActiveTimeline
from timeline.chain import load_chain
from timeline.clock import InstantClock
from timeline.epoch import EpochRef, Manifest, Part, Plan, WriteReport
from timeline.lease import LeaseObserver, WriterLease, take_lease
from timeline.stores.base import size_of
from timeline.stores.memory import MemoryStore

SOURCE = NumberSource({"a": 4}, most=4)
PIPELINE = Pipeline(SOURCE, NUMBER_SCHEMA, False, LocalRunner())


def job(table: MemoryStore, timeline: MemoryStore, *, app_id: str = "app", target: str = "table") -> JobContext:
    sink = MemorySink(target, app_id, table, AT_ONCE)
    return JobContext(app_id, timeline, IDENTITY, (sink, EmptySink()), "quarantine", None, "a test", retry=AT_ONCE)


def lease(of: JobContext) -> WriterLease:
    return take_lease(LeaseObserver(of.store, AT_ONCE), job=of.name, ttl_ms=60_000, force=True)


def commit(of: JobContext) -> None:
    chain = load_chain(of.store, ActiveTimeline.load(of.store, AT_ONCE), AT_ONCE)
    ranges = SOURCE.plan(chain.positions).ranges
    run_epoch(of, PIPELINE, NextEpoch(chain, ranges), lease(of), stop=threading.Event())


def write_unprepared(of: JobContext) -> tuple[Plan, str]:
    """Open an epoch and write its file without preparing it; the plan, and the path of the file."""
    chain = load_chain(of.store, ActiveTimeline.load(of.store, AT_ONCE), AT_ONCE)
    plan = open_instant(of, chain, lease(of), SOURCE.plan(chain.positions).ranges)
    return plan, write_file(of, plan).files[0].path


def write_file(of: JobContext, plan: Plan) -> WriteReport:
    begun = of.sinks[0].begin(plan)
    assert not isinstance(begun, SelectiveWriter)
    writer = begun.open(TaskAttempt(0, 0, 0))
    writer.write(pa.record_batch({"number": pa.array([1, 2], pa.int64())}))
    return writer.close()


def test_a_job_leaves_the_open_epoch_of_another_job_on_its_table_alone() -> None:
    table = MemoryStore()
    other = job(table, MemoryStore("memory://other"), app_id="other")
    _, path = write_unprepared(other)
    mine = job(table, MemoryStore("memory://mine"))
    recover(mine, lease(mine))
    commit(mine)
    recover(mine, lease(mine))
    assert size_of(table, path) is not None
    recover(other, lease(other))
    assert size_of(table, path) is None, "its own job rolls it back"


def test_two_jobs_with_instants_of_one_time_delete_nothing_of_each_other() -> None:
    table = MemoryStore()
    same_clock = InstantClock(lambda: 2**41)
    other = replace(job(table, MemoryStore("memory://other"), app_id="other"), clock=same_clock)
    plan, path = write_unprepared(other)
    mine = job(table, MemoryStore("memory://mine"))
    ref = replace(plan.ref, epoch=0)
    mine.sinks[0].prepare(ref, [])
    mine.sinks[0].abort(ref, None)
    mine.sinks[0].release(ref, None, final=True)
    assert size_of(table, path) is not None
    assert size_of(table, marker_path(plan.ref.instant, path)) is not None
    assert list(mine.sinks[0].unreleased()) == []
    assert list(other.sinks[0].unreleased()) == [plan.ref.instant]


def test_a_committed_file_survives_a_target_that_is_renamed_before_its_marker_is_released() -> None:
    table = MemoryStore()
    before = job(table, table)
    commit(before)
    (path,) = [name for name in table.objects if name.endswith(".arrow")]
    instant = next(iter(ActiveTimeline.load(table, AT_ONCE).completed()))
    table.put(marker_path(instant.time, path), b"")
    after = job(table, table, target="renamed")
    recover(after, lease(after))
    assert size_of(table, path) is not None
    assert MemorySink("renamed", "app", table, AT_ONCE).read().num_rows == 4


def test_a_file_that_a_task_closes_after_the_rollback_is_deleted_by_the_next_start() -> None:
    table = MemoryStore()
    mine = job(table, table)
    plan, path = write_unprepared(mine)
    body = table.get(path)
    recover(mine, lease(mine))
    assert size_of(table, path) is None
    assert size_of(table, marker_path(plan.ref.instant, path)) is not None, "the task may still be alive"
    table.put(path, body)
    recover(mine, lease(mine))
    assert size_of(table, path) is None


def test_markers_of_a_rolled_back_instant_go_once_no_task_can_be_alive() -> None:
    table = MemoryStore()
    mine = job(table, table)
    plan, path = write_unprepared(mine)
    recover(mine, lease(mine))
    tomorrow = replace(mine, clock=type(mine.clock)(lambda: 2**42))
    recover(tomorrow, lease(tomorrow))
    assert size_of(table, marker_path(plan.ref.instant, path)) is None


def test_a_late_file_of_a_committed_instant_is_deleted_and_its_committed_ones_stay() -> None:
    table = MemoryStore()
    mine = job(table, table)
    commit(mine)
    instant = next(iter(ActiveTimeline.load(table, AT_ONCE).completed()))
    late = f"{file_id('app', 'late')}-0_9-0-1_{instant.time}.arrow"
    table.put(marker_path(instant.time, late), b"")
    table.put(late, b"rows of a speculative copy")
    recover(mine, lease(mine))
    assert size_of(table, late) is None
    assert MemorySink("table", "app", table, AT_ONCE).read().num_rows == 4


def test_a_reported_file_that_the_store_puts_late_after_the_rollback_is_deleted_by_the_next_start() -> None:
    table = MemoryStore()
    mine = job(table, table)
    chain = load_chain(mine.store, ActiveTimeline.load(mine.store, AT_ONCE), AT_ONCE)
    plan = open_instant(mine, chain, lease(mine), SOURCE.plan(chain.positions).ranges)
    part = mine.sinks[0].prepare(plan.ref, [write_file(mine, plan)])
    (path,) = [file.path for file in part.files]
    body = table.get(path)
    claim_rollback(mine, plan.ref, 0, "a test")
    roll_back(mine, plan.ref, Manifest(plan.ref, (), (part,)), "a test")
    assert size_of(table, path) is None
    table.put(path, body)
    recover(mine, lease(mine))
    assert size_of(table, path) is None


def test_a_start_does_not_grow_with_the_rollbacks_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    table, timeline = MemoryStore(), MemoryStore("memory://timeline")
    mine = job(table, timeline)
    looks: list[str] = []
    abort = MemorySink.abort

    def noted(sink: MemorySink, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        looks.append(epoch.instant)
        return abort(sink, epoch, part)

    monkeypatch.setattr(MemorySink, "abort", noted)
    asked: list[int] = []
    for _ in range(25):
        plan, _ = write_unprepared(mine)
        recover(mine, lease(mine))
        looks.clear()
        clean_late_files(mine, ActiveTimeline.load(timeline, AT_ONCE))
        assert plan.ref.instant in looks
        asked.append(len(looks))
    assert asked == [*range(1, 10), *[10] * 16]
    assert len(mine.sinks[0].unreleased()) == 25
    tomorrow = replace(mine, clock=type(mine.clock)(lambda: 2**42))
    clean_late_files(tomorrow, ActiveTimeline.load(timeline, AT_ONCE))
    assert mine.sinks[0].unreleased() == []


def test_a_rollback_names_a_target_that_the_job_file_no_longer_has(caplog: pytest.LogCaptureFixture) -> None:
    table = MemoryStore()
    write_unprepared(job(table, table))
    after = job(MemoryStore("memory://elsewhere"), table, target="another")
    recover(after, lease(after))
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "epoch 0" in warning and "no longer has its target table" in warning
