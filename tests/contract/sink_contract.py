"""Guarantees of every sink, as tests: an implementation inherits `SinkContract` and supplies the fixture `rig`.

Each guarantee is tested alone: "commit twice", "abort twice" and "look up after a lost reply" hide
each other's faults when one test does all three.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
import pytest

from sinks.base import KeyedWriter, Lookup, PartitionWriter, SelectiveWriter, Sink, TaskAttempt
from sinks.held import Held, contents_of
from timeline.body import BodyFormat
from timeline.epoch import EpochRef, Part, Plan, WriteReport
from timeline.errors import CommitRejectedError, CommitUnknownError, TargetRefusedError
from timeline.stores.base import ObjectStore, size_of

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
"""Columns of the rows that the suite writes."""

PART = BodyFormat("part", Part)


class SinkRig(Protocol):
    """One target with the schema `SCHEMA`, and methods to read the target and to make its storage fail."""

    def sink(self, app_id: str = "job-a") -> Sink:
        """The target's sink, as opened by a new process."""

    def losing_replies(self) -> Sink:
        """The same, but the reply of the first commit that takes effect is lost."""

    def unreachable(self) -> Sink:
        """The same, but its storage does not answer."""

    def visible(self) -> list[int]:
        """Ids that a reader sees now, sorted."""

    def traces(self) -> list[str]:
        """Names of all stored objects (files, keys, locks), visible to readers or not."""


class LakeRig(SinkRig, Protocol):
    """A target made of files."""

    store: ObjectStore
    """The target's folder, without faults."""


def ref(epoch: int, *, instant: str | None = None) -> EpochRef:
    """An epoch with an instant time of its own."""
    return EpochRef(epoch, instant or f"20240101{epoch:09d}", 1)


def planned(epoch: EpochRef) -> Plan:
    """A plan for an epoch, without offset ranges: sinks do not read them."""
    return Plan(epoch, "job", "test", (), (), {}, "token")


def write(sink: Sink, epoch: EpochRef, ids: Iterable[int], *, task: int = 0) -> WriteReport:
    """Write rows as one task attempt, and close the attempt."""
    return write_rows(sink.begin(planned(epoch)), rows(ids), task=task)


def write_rows(
    writer: PartitionWriter | SelectiveWriter | KeyedWriter, batch: pa.RecordBatch, *, task: int = 0
) -> WriteReport:
    """Write a batch as one task attempt that has all rows of its keys."""
    if isinstance(writer, KeyedWriter):
        staged = writer.stage(batch, "shard", pa.array(range(batch.num_rows), pa.int64()))
        bucket = writer.open(TaskAttempt(task, 0, 0))
        bucket.write(staged.rows)
        assert not any(refused.num_rows for refused in bucket.settle())
        return bucket.close()
    if isinstance(writer, SelectiveWriter):
        selecting = writer.open_selective(TaskAttempt(task, 0, 0))
        assert not selecting.take(batch, "shard", pa.array(range(batch.num_rows), pa.int64())).num_rows
        return selecting.close()
    opened = writer.open(TaskAttempt(task, 0, 0))
    opened.write(batch)
    return opened.close()


def plain_writer(sink: Sink, epoch: EpochRef) -> PartitionWriter:
    """The epoch's writer, of a sink whose tasks write every row that they read."""
    writer = sink.begin(planned(epoch))
    assert not isinstance(writer, KeyedWriter | SelectiveWriter)
    return writer


def rows(ids: Iterable[int]) -> pa.RecordBatch:
    """A batch of rows with these ids."""
    return pa.RecordBatch.from_pylist([{"id": each, "text": f"row {each}"} for each in ids], schema=SCHEMA)


def prepared(sink: Sink, epoch: EpochRef, ids: Iterable[int]) -> Part:
    """The prepared part of an epoch, written by one task."""
    return sink.prepare(epoch, [write(sink, epoch, ids)])


def run_together(actions: Sequence[threading.Thread]) -> None:
    """Start all threads, then wait for all."""
    for action in actions:
        action.start()
    for action in actions:
        action.join()


class SinkContract:
    """The tests of every sink; a subclass supplies the fixture ``rig``."""

    @pytest.fixture
    def rig(self) -> SinkRig:
        """One new target for each test."""
        raise NotImplementedError

    # ── visibility ────────────────────────────────────────────────────────────────────────────

    def test_nothing_is_visible_before_the_commit(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.ensure()
        prepared(sink, ref(0), range(3))
        assert rig.visible() == []

    def test_a_commit_makes_every_row_visible_once(self, rig: SinkRig) -> None:
        sink = rig.sink()
        reports = [write(sink, ref(0), range(0, 5), task=0), write(sink, ref(0), range(5, 9), task=1)]
        part = sink.prepare(ref(0), reports)
        assert part.rows == 9
        assert part.bytes > 0
        sink.commit(part)
        assert rig.visible() == list(range(9))

    def test_ensure_creates_nothing_that_a_reader_sees(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.ensure()
        sink.ensure()
        assert rig.visible() == []
        assert sink.lookup(ref(0)) is Lookup.NOT_COMMITTED

    def test_ensure_accepts_the_target_that_the_sink_made(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        rig.sink().ensure()

    def test_a_part_without_rows_changes_nothing(self, rig: SinkRig) -> None:
        sink = rig.sink()
        before = rig.traces()
        writer, attempt = sink.begin(planned(ref(0))), TaskAttempt(0, 0, 0)
        opened = writer.open_selective(attempt) if isinstance(writer, SelectiveWriter) else writer.open(attempt)
        part = sink.prepare(ref(0), [opened.close()])
        assert (part.rows, part.files) == (0, ())
        sink.commit(part)
        assert sink.lookup(ref(0)) is Lookup.NOT_COMMITTED
        sink.release(ref(0), part, final=True)
        assert rig.traces() == before

    # ── commit ────────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize("epoch", [0, 1, 7])
    def test_a_second_commit_adds_nothing(self, rig: SinkRig, epoch: int) -> None:
        sink = rig.sink()
        part = prepared(sink, ref(epoch), range(3))
        sink.commit(part)
        sink.commit(part)
        assert rig.visible() == [0, 1, 2]

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_another_process_cannot_commit_again(self, rig: SinkRig, epoch: int) -> None:
        part = prepared(rig.sink(), ref(epoch), range(3))
        rig.sink().commit(part)
        rig.sink().commit(part)
        assert rig.visible() == [0, 1, 2]

    def test_a_part_can_be_committed_from_its_json_alone(self, rig: SinkRig) -> None:
        body = PART.dump(prepared(rig.sink(), ref(0), range(3)))
        rig.sink().commit(PART.load("part", body))
        assert rig.visible() == [0, 1, 2]

    def test_an_older_epoch_is_not_added_after_a_newer_one(self, rig: SinkRig) -> None:
        sink = rig.sink()
        older = prepared(sink, ref(3), [3])
        newer = prepared(sink, ref(4), [4])
        sink.commit(newer)
        sink.commit(older)
        assert rig.visible() == [4]

    def test_epochs_follow_each_other(self, rig: SinkRig) -> None:
        sink = rig.sink()
        for epoch in range(5):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
        assert rig.visible() == [0, 1, 2, 3, 4]

    def test_two_processes_that_race_with_one_epoch_add_it_once(self, rig: SinkRig) -> None:
        first = prepared(rig.sink(), ref(0), [0])
        self.race(rig, [first] * 4)
        second = prepared(rig.sink(), ref(1), [1])
        self.race(rig, [second] * 4)
        assert rig.visible() == [0, 1]

    def test_a_process_with_an_old_view_cannot_add_an_epoch_again(self, rig: SinkRig) -> None:
        zombie, successor = rig.sink(), rig.sink()
        zombie.commit(prepared(zombie, ref(0), [0]))
        part = prepared(zombie, ref(1), [1])
        successor.commit(part)
        successor.commit(prepared(successor, ref(2), [2]))
        zombie.commit(part)
        assert rig.visible() == [0, 1, 2]

    def test_jobs_do_not_meet_in_one_target(self, rig: SinkRig) -> None:
        a, b = rig.sink("job-a"), rig.sink("job-b")
        part_a = prepared(a, ref(0, instant="20240101000000001"), [1])
        part_b = prepared(b, ref(0, instant="20240101000000002"), [2])
        run_together([threading.Thread(target=sink.commit, args=(part,)) for sink, part in ((a, part_a), (b, part_b))])
        assert rig.visible() == [1, 2]
        assert (a.lookup(ref(0)), b.lookup(ref(0))) == (Lookup.COMMITTED, Lookup.COMMITTED)
        assert (a.lookup(ref(1)), b.lookup(ref(1))) == (Lookup.NOT_COMMITTED, Lookup.NOT_COMMITTED)

    def race(self, rig: SinkRig, parts: Sequence[Part]) -> None:
        """Commit the parts at the same time, each by a sink that has loaded the target before."""
        sinks = [rig.sink() for _ in parts]
        for sink, part in zip(sinks, parts, strict=True):
            sink.lookup(part.epoch)
        run_together(
            [threading.Thread(target=sink.commit, args=(part,)) for sink, part in zip(sinks, parts, strict=True)]
        )

    # ── lost replies ──────────────────────────────────────────────────────────────────────────

    def test_a_commit_whose_reply_is_lost_is_not_repeated(self, rig: SinkRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        rig.losing_replies().commit(part)
        assert rig.visible() == [0, 1, 2]

    def test_lookup_finds_a_commit_whose_reply_was_lost(self, rig: SinkRig) -> None:
        sink = rig.losing_replies()
        part = prepared(rig.sink(), ref(0), range(3))
        sink.commit(part)
        assert sink.lookup(ref(0)) is Lookup.COMMITTED
        assert rig.sink().lookup(ref(0)) is Lookup.COMMITTED

    def test_a_commit_that_reaches_nobody_is_an_error_of_known_outcome(self, rig: SinkRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        with pytest.raises((CommitRejectedError, CommitUnknownError)):
            rig.unreachable().commit(part)
        assert rig.visible() == []

    # ── lookup ────────────────────────────────────────────────────────────────────────────────

    def test_lookup_tells_a_commit_from_none(self, rig: SinkRig) -> None:
        sink = rig.sink()
        part = prepared(sink, ref(0), [1])
        assert sink.lookup(ref(0)) is Lookup.NOT_COMMITTED
        sink.commit(part)
        assert sink.lookup(ref(0)) is Lookup.COMMITTED
        assert sink.lookup(ref(1)) is Lookup.NOT_COMMITTED

    def test_a_later_epoch_implies_the_earlier_ones(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.commit(prepared(sink, ref(5), [5]))
        assert rig.sink().lookup(ref(2)) is Lookup.COMMITTED

    def test_lookup_sees_what_another_process_committed(self, rig: SinkRig) -> None:
        watcher, sink = rig.sink(), rig.sink()
        for epoch in range(3):
            assert watcher.lookup(ref(epoch)) is Lookup.NOT_COMMITTED
            sink.commit(prepared(sink, ref(epoch), [epoch]))
            assert watcher.lookup(ref(epoch)) is Lookup.COMMITTED

    def test_a_failing_store_is_unknown_and_never_no(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        assert rig.unreachable().lookup(ref(0)) is Lookup.UNKNOWN
        assert rig.unreachable().lookup(ref(1)) is Lookup.UNKNOWN

    # ── prepare and verify ────────────────────────────────────────────────────────────────────

    def test_verify_finds_nothing_wrong_with_a_prepared_part(self, rig: SinkRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        assert list(rig.sink().verify(part)) == []

    # ── abort and release ─────────────────────────────────────────────────────────────────────

    def test_a_second_abort_changes_nothing_and_names_the_same(self, rig: SinkRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        first = list(rig.sink().abort(ref(0), part))
        assert list(rig.sink().abort(ref(0), None)) == first

    def test_abort_touches_no_other_epoch(self, rig: SinkRig) -> None:
        sink = rig.sink()
        sink.commit(prepared(sink, ref(0), [0]))
        write(sink, ref(1), [1])
        waiting = prepared(sink, ref(2), [2])
        sink.abort(ref(1), None)
        assert rig.visible() == [0]
        assert list(sink.verify(waiting)) == []

    def test_an_aborted_epoch_leaves_nothing_behind_once_released(self, rig: SinkRig) -> None:
        sink = rig.sink()
        write(sink, ref(0), range(3))
        assert list(sink.unreleased()) == [ref(0).instant]
        sink.abort(ref(0), None)
        assert list(sink.unreleased()) == [ref(0).instant]
        sink.release(ref(0), None, final=True)
        assert list(rig.sink().unreleased()) == []
        assert rig.traces() == []

    def test_release_keeps_the_rows_of_a_committed_epoch(self, rig: SinkRig) -> None:
        sink = rig.sink()
        part = prepared(sink, ref(0), range(3))
        sink.commit(part)
        sink.release(ref(0), part)
        sink.release(ref(0), part)
        assert rig.visible() == [0, 1, 2]
        assert list(sink.unreleased()) == []

    # ── writers ───────────────────────────────────────────────────────────────────────────────

    def test_a_partition_writer_travels_to_executors(self, rig: SinkRig) -> None:
        pickle.dumps(rig.sink().begin(planned(ref(0))))

    def test_the_target_name_is_stable(self, rig: SinkRig) -> None:
        assert rig.sink().target == rig.sink().target


class LakeSinkContract(SinkContract):
    """More tests, of targets made of files; a subclass supplies ``rig`` as a `LakeRig`."""

    @pytest.fixture
    def rig(self) -> LakeRig:
        """One new target for each test."""
        raise NotImplementedError

    def data_files(self, rig: LakeRig) -> set[str]:
        """Data files of the suite's epochs, recognized by the instant in their names."""
        listed = rig.store.list("", recursive=True)
        return {info.path for info in listed if "_20240101" in info.path and not info.path.startswith(".hoodie")}

    @pytest.mark.parametrize("by_another_process", [False, True])
    def test_what_attempts_without_a_report_wrote_is_gone_once_the_epoch_is_committed(
        self, rig: LakeRig, by_another_process: bool
    ) -> None:
        sink = rig.sink()
        write(sink, ref(0), range(100, 103), task=7)
        part = sink.prepare(ref(0), [write(sink, ref(0), range(3))])
        (rig.sink() if by_another_process else sink).commit(part)
        assert self.data_files(rig) == {file.path for file in part.files}
        sink.commit(part)
        assert rig.visible() == [0, 1, 2]

    def test_verify_names_a_missing_file(self, rig: LakeRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        rig.store.delete([part.files[0].path])
        assert any(part.files[0].path in line for line in rig.sink().verify(part))

    def test_verify_names_a_file_of_another_size(self, rig: LakeRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        rig.store.put(part.files[0].path, b"cut")
        assert any(part.files[0].path in line and "3" in line for line in rig.sink().verify(part))

    def test_abort_leaves_no_file(self, rig: LakeRig) -> None:
        part = prepared(rig.sink(), ref(0), range(3))
        removed = rig.sink().abort(ref(0), part)
        assert set(removed) == {file.path for file in part.files}
        assert self.data_files(rig) == set()

    def test_abort_needs_neither_the_part_nor_the_process_that_wrote(self, rig: LakeRig) -> None:
        report = write(rig.sink(), ref(0), range(3))
        removed = rig.sink().abort(ref(0), None)
        assert set(removed) == {file.path for file in report.files}
        assert self.data_files(rig) == set()

    def test_a_late_file_of_a_lost_task_is_found_and_deleted(self, rig: LakeRig) -> None:
        sink = rig.sink()
        late = plain_writer(sink, ref(0)).open(TaskAttempt(0, 0, 1))
        late.write(rows([99]))
        part = prepared(sink, ref(0), range(3))
        late.close()
        sink.commit(part)
        sink.release(ref(0), part)
        assert self.data_files(rig) == {file.path for file in part.files}
        assert rig.visible() == [0, 1, 2]

    def test_the_marker_of_a_task_that_may_still_run_stays_until_release_is_final(self, rig: LakeRig) -> None:
        sink = rig.sink()
        write(sink, ref(0), [99], task=1)
        part = prepared(sink, ref(0), range(3))
        sink.release(ref(0), part)
        assert list(sink.unreleased()) == [ref(0).instant]
        sink.release(ref(0), part, final=True)
        assert list(sink.unreleased()) == []

    def test_an_aborted_attempt_leaves_no_file(self, rig: LakeRig) -> None:
        sink = rig.sink()
        writer = plain_writer(sink, ref(0)).open(TaskAttempt(0, 0, 0))
        writer.write(rows(range(10)))
        writer.abort()
        writer.abort()
        assert self.data_files(rig) == set()
        assert sink.prepare(ref(0), []).rows == 0

    def test_a_closed_attempt_can_still_be_aborted(self, rig: LakeRig) -> None:
        sink = rig.sink()
        writer = plain_writer(sink, ref(0)).open(TaskAttempt(0, 0, 0))
        writer.write(rows(range(10)))
        writer.close()
        writer.abort()
        assert self.data_files(rig) == set()

    def test_every_file_was_announced_before_it_could_appear(self, rig: LakeRig) -> None:
        sink = rig.sink()
        report = write(sink, ref(0), range(10))
        for file in report.files:
            assert size_of(rig.store, f".hoodie/.temp/{ref(0).instant}/{file.path}.marker.CREATE") == 0

    def test_a_report_says_what_was_written(self, rig: LakeRig) -> None:
        sink = rig.sink()
        writer = plain_writer(sink, ref(0)).open(TaskAttempt(3, 2, 1))
        for start in range(0, 100, 10):
            writer.write(rows(range(start, start + 10)))
        writer.write(rows([]))
        report = writer.close()
        assert report.rows == 100 == sum(file.rows for file in report.files)
        assert report.bytes == sum(file.size for file in report.files)
        for file in report.files:
            assert size_of(rig.store, file.path) == file.size
            name = file.path.rpartition("/")[2]
            assert str(uuid.UUID(name[:36])) == name[:36]
            assert name[36:].startswith(f"-0_3-2-1_{ref(0).instant}.")

    def test_attempts_of_one_task_never_share_a_file(self, rig: LakeRig) -> None:
        sink = rig.sink()
        reports = [write(sink, ref(0), [1]) for _ in range(3)]
        paths = [file.path for report in reports for file in report.files]
        assert len(set(paths)) == len(paths) == 3


class HoldingContract:
    """More tests, of targets that report which epochs they have; a subclass inherits this class too."""

    def held(self, rig: SinkRig, app_id: str = "job-a") -> Held:
        """The epochs that the target has, as read by a new process."""
        contents = contents_of(rig.sink(app_id))
        assert contents is not None
        return contents.held()

    def test_a_target_that_is_not_there_has_no_epoch(self, rig: SinkRig) -> None:
        assert self.held(rig) == Held(None)

    def test_the_newest_epoch_with_rows_is_what_it_has(self, rig: SinkRig) -> None:
        sink = rig.sink()
        for epoch in (0, 3):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
            found = self.held(rig)
            assert (found.newest, found.missing, found.doubt) == (epoch, (), "")
            assert found.instant == ref(epoch).instant
        sink.commit(prepared(sink, ref(4), []))
        assert self.held(rig).newest == 3

    def test_the_table_of_other_jobs_has_no_epoch_of_this_one(self, rig: SinkRig) -> None:
        sink = rig.sink("job-b")
        sink.commit(prepared(sink, ref(0), [0]))
        assert self.held(rig).newest is None
        assert self.held(rig).table == self.held(rig, "job-b").table

    def test_the_same_epoch_of_another_instant_is_refused_and_not_taken_for_applied(self, rig: SinkRig) -> None:
        """A timeline restored from a backup reuses the number of an epoch that the target has."""
        sink = rig.sink()
        sink.commit(prepared(sink, ref(0), [0]))
        again = rig.sink()
        with pytest.raises(TargetRefusedError, match="the timeline is older than its table"):
            again.commit(prepared(again, ref(0, instant="20240102000000000"), [1]))
        assert rig.visible() == [0]

    def test_it_tells_whether_readers_see_all_files_of_a_part(self, rig: SinkRig) -> None:
        sink = rig.sink()
        first, second = prepared(sink, ref(0), [0]), prepared(sink, ref(1), [1])
        contents = contents_of(sink)
        assert contents is not None
        sink.commit(first)
        assert contents.has_all(first) and not contents.has_all(second)
