"""The history of a Tideline timeline, row by row, and the messages about unreadable bodies."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore, no_answer
from timeline.active import ActiveTimeline
from timeline.decision import DECISION, Decision, Outcome, decision_path
from timeline.epoch import MANIFEST, PLAN, EpochRef, Manifest, OffsetRange, Part, Plan, ShardCount, WrittenFile
from timeline.errors import ConfigError, StoreUnavailableError
from timeline.history.arrow import VIEWS, view_schema
from timeline.history.entry import read_entry
from timeline.history.epochs import History
from timeline.history.rows import EpochRow, FileRow, InstantRow, OffsetRow, RejectedRow, to_json
from timeline.history.timeline import Timeline
from timeline.holes import Hole, holes_json
from timeline.hudi.layout import commit_body, rollback_body
from timeline.instant import (
    Action,
    Instant,
    State,
    commit_completed,
    commit_inflight,
    commit_requested,
    format_time,
)
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan

START_MS = 1_709_251_199_000
T = [format_time(START_MS + 1000 * number) for number in range(20)]


def moment(number: int) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000 + number, UTC)


LOST = Hole(3, 5, "retention")
RANGES = (OffsetRange("web-0", 0, 10), OffsetRange("web-1", 3, 9, after=holes_json([LOST])))
COUNTS = (ShardCount("web-0", 10, 8, 2, {"malformed JSON": 1}), ShardCount("web-1", 4, 4, 0))
FILES = (WrittenFile("day=1/a.parquet", 100, 7, {"day": "1"}), WrittenFile("b.parquet", 50, 3, {"day": None}))


class Past:
    """A timeline with the epochs that a test writes."""

    def __init__(self) -> None:
        self.store = ScriptedStore()

    def planned(self, epoch: int, at: int, ranges: tuple[OffsetRange, ...] = RANGES) -> EpochRef:
        ref = EpochRef(epoch, T[at], 4)
        plan = Plan(ref, "web", "planner", ranges, ("delta", "tikv"), {}, "token")
        self.store.put(commit_requested(T[at]).path, PLAN.dump(plan))
        return ref

    def writing(self, epoch: int, at: int) -> EpochRef:
        ref = self.planned(epoch, at)
        self.store.put(commit_inflight(T[at]).path, b"")
        return ref

    def prepared(self, epoch: int, at: int) -> EpochRef:
        ref = self.planned(epoch, at)
        parts = (
            Part("delta", ref, 10, 150, FILES),
            Part("tikv", ref, 9, 90, dropped=1, rejected=2),
            Part("quarantine", ref, 4, 30, (WrittenFile("q.parquet", 30, 4),)),
        )
        self.store.put(commit_inflight(T[at]).path, MANIFEST.dump(Manifest(ref, COUNTS, parts)))
        return ref

    def decided(self, ref: EpochRef, outcome: Outcome, at: int, reason: str) -> None:
        decision = Decision(ref.epoch, outcome, ref.instant, T[at], 5, "decider", reason, "token")
        self.store.put(decision_path(ref.epoch), DECISION.dump(decision))

    def completed(self, ref: EpochRef, at: int) -> None:
        extra = {"tideline.epoch": str(ref.epoch)}
        self.store.put(commit_completed(ref.instant, T[at]).path, commit_body(FILES, extra))

    def committed(self, epoch: int, at: int) -> EpochRef:
        ref = self.prepared(epoch, at)
        self.decided(ref, Outcome.COMMIT, at + 1, "written")
        self.completed(ref, at + 1)
        return ref

    def rolled_back(self, epoch: int, at: int, *, until: State) -> None:
        """Write a rollback decision and its instant up to `until`; a completed one deletes the commit's files."""
        ref = self.writing(epoch, at)
        self.decided(ref, Outcome.ROLLBACK, at + 1, "writer gone")
        plan = RollbackPlan(T[at], epoch, T[at + 3], "writer gone", "decider", "token")
        self.store.put(Instant(T[at + 2], Action.ROLLBACK, State.REQUESTED).path, ROLLBACK_PLAN.dump(plan))
        if until is not State.REQUESTED:
            self.store.put(Instant(T[at + 2], Action.ROLLBACK, State.INFLIGHT).path, b"")
        if until is State.COMPLETED:
            extra = {"tideline.epoch": str(epoch), "tideline.reason": "writer gone", "tideline.by": "decider"}
            body = rollback_body(T[at], T[at + 2], 7, ("delta: day=1/a.parquet", "delta: b.parquet"), extra)
            self.store.put(Instant(T[at + 2], Action.ROLLBACK, State.COMPLETED, T[at + 3]).path, body)
            self.store.delete([commit_requested(T[at]).path])
            self.store.delete([commit_inflight(T[at]).path])

    @property
    def history(self) -> History:
        return Timeline.load(self.store, AT_ONCE).history()


@pytest.fixture
def past() -> Past:
    return Past()


def test_a_committed_epoch_is_told_in_every_view(past: Past) -> None:
    past.committed(3, 1)
    history = past.history
    assert history.instants() == [
        InstantRow(
            T[1],
            "commit",
            "completed",
            epoch=3,
            outcome="commit",
            reason="written",
            by="decider",
            generation=5,
            requested=moment(1),
            decided=moment(2),
            completed=moment(2),
            seconds=1.0,
            rows=12,
            dropped=1,
            rejected=4,
            files=3,
            bytes=270,
        )
    ]
    (epoch,) = history.epochs()
    assert epoch == EpochRow(
        3,
        T[1],
        "committed",
        outcome="commit",
        reason="written",
        by="decider",
        generation=5,
        requested=moment(1),
        decided=moment(2),
        completed=moment(2),
        commit_s=0.0,
        read=14,
        rows=12,
        dropped=1,
        rejected=4,
        files=3,
        bytes=270,
        lost=2,
    )
    assert history.offsets() == [
        OffsetRow(3, T[1], "commit", "web-0", 0, 10, read=10, accepted=8, rejected=2),
        OffsetRow(3, T[1], "commit", "web-1", 3, 9, read=4, accepted=4, rejected=0, lost=str(LOST)),
    ]
    assert history.files() == [
        FileRow(T[1], 3, "commit", "delta", "day=1/a.parquet", 100, 7, {"day": "1"}),
        FileRow(T[1], 3, "commit", "delta", "b.parquet", 50, 3, {"day": None}),
        FileRow(T[1], 3, "commit", "quarantine", "q.parquet", 30, 4),
    ]
    assert history.rejected() == [
        RejectedRow(3, T[1], "commit", "web-0", None, "malformed JSON", 1),
        RejectedRow(3, T[1], "commit", "web-0", None, "not recorded", 1),
        RejectedRow(3, T[1], "commit", None, "tikv", "refused by target tikv", 2),
    ]


def test_a_rolled_back_epoch_tells_why_by_whom_and_which_files_went(past: Past) -> None:
    past.rolled_back(7, 1, until=State.COMPLETED)
    history = past.history
    (instant,) = history.instants()
    assert (instant.action, instant.state, instant.outcome, instant.epoch) == ("rollback", "completed", "rollback", 7)
    assert (instant.reason, instant.by, instant.files) == (f"writer gone: instant {T[1]}", "decider", 2)
    (epoch,) = history.epochs()
    assert (epoch.state, epoch.outcome, epoch.reason, epoch.instant) == ("rolled back", "rollback", "writer gone", T[1])
    assert (epoch.requested, epoch.decided, epoch.completed, epoch.commit_s) == (moment(1), moment(2), moment(4), 2.0)
    assert history.files() == [
        FileRow(T[3], 7, "rollback", "delta", "day=1/a.parquet"),
        FileRow(T[3], 7, "rollback", "delta", "b.parquet"),
    ]
    assert (history.offsets(), history.rejected()) == ([], [])


@pytest.mark.parametrize("until", [State.REQUESTED, State.INFLIGHT])
def test_an_epoch_is_pending_until_its_rollback_is_done(past: Past, until: State) -> None:
    past.rolled_back(7, 1, until=until)
    (epoch,) = past.history.epochs()
    assert (epoch.state, epoch.outcome, epoch.completed) == ("pending", "rollback", None)
    commit, rollback = past.history.instants()
    assert (commit.state, commit.outcome, commit.reason) == ("inflight", "rollback", "writer gone")
    assert (rollback.state, rollback.completed, rollback.reason) == (until.value, None, f"writer gone: instant {T[1]}")


def test_a_pending_epoch_tells_as_much_as_its_state_knows(past: Past) -> None:
    past.planned(0, 1)
    (row,) = past.history.instants()
    assert (row.state, row.outcome, row.by, row.generation, row.rows) == ("requested", None, "planner", 4, None)
    past.writing(0, 1)
    (row,) = past.history.instants()
    assert (row.state, row.outcome, row.prepared, row.files) == ("inflight", None, None, None)
    (epoch,) = past.history.epochs()
    assert (epoch.state, epoch.outcome, epoch.read, epoch.lost) == ("pending", None, None, 2)
    assert [(row.shard, row.read) for row in past.history.offsets()] == [("web-0", None), ("web-1", None)]
    ref = past.prepared(0, 1)
    (row,) = past.history.instants()
    assert (row.state, row.outcome, row.rows, row.files, row.completed) == ("inflight", None, 12, 3, None)
    past.decided(ref, Outcome.COMMIT, 2, "prepared by a writer that is gone")
    (row,) = past.history.instants()
    assert (row.state, row.outcome, row.by, row.decided) == ("inflight", "commit", "decider", moment(2))
    assert past.history.epochs()[0].state == "pending"


def test_an_epoch_that_was_tried_twice_is_one_epoch(past: Past) -> None:
    past.rolled_back(0, 1, until=State.COMPLETED)
    past.committed(0, 6)
    assert [row.action for row in past.history.instants()] == ["rollback", "commit"]
    (epoch,) = past.history.epochs()
    assert (epoch.state, epoch.instant, epoch.reason) == ("committed", T[6], "written")


def test_the_stores_clock_tells_when_a_commit_was_prepared_and_completed(past: Past) -> None:
    past.committed(0, 1)
    active = ActiveTimeline.load(past.store, AT_ONCE)
    written = {commit_inflight(T[1]).file_name: START_MS + 4_000}
    written[commit_completed(T[1], T[2]).file_name] = START_MS + 9_000
    timeline = Timeline(replace(active, modified_ms=written))
    (row,) = timeline.history().instants()
    assert (row.prepared, row.decided, row.completed, row.seconds) == (moment(4), moment(2), moment(9), 8.0)
    (epoch,) = timeline.history().epochs()
    assert (epoch.write_s, epoch.commit_s) == (3.0, 7.0)


@pytest.mark.parametrize(
    ("damaged", "still_there"),
    [
        (commit_requested(T[1]).path, "rows"),
        (commit_inflight(T[1]).path, "reason"),
        (commit_completed(T[1], T[2]).path, "rows"),
        (decision_path(3), "rows"),
    ],
)
def test_a_damaged_body_costs_its_own_part_only_and_is_said(past: Past, damaged: str, still_there: str) -> None:
    past.committed(3, 1)
    past.committed(4, 5)
    past.store.put(damaged, b'{"format":1,"kind":')
    history = past.history
    row, other = history.instants()
    assert row.problems is not None and damaged in row.problems
    assert getattr(row, still_there) is not None
    assert row.writer == "tideline"
    assert other.problems is None
    assert 4 in [epoch.epoch for epoch in history.epochs()]


def test_an_instant_of_which_nothing_can_be_read_is_still_tidelines(past: Past) -> None:
    past.committed(3, 1)
    for path in (commit_requested(T[1]).path, commit_inflight(T[1]).path, commit_completed(T[1], T[2]).path):
        past.store.put(path, b"{damaged")
    (row,) = past.history.instants()
    assert (row.writer, row.state, row.epoch) == ("tideline", "completed", None)
    assert len((row.problems or "").split("; ")) == 3


def test_a_completed_file_that_went_meanwhile_is_said(past: Past) -> None:
    past.committed(3, 1)
    timeline = Timeline.load(past.store, AT_ONCE)
    past.store.delete([commit_completed(T[1], T[2]).path])
    (row,) = timeline.history().instants()
    assert "does not exist" in (row.problems or "") and row.rows == 12


def test_a_store_that_does_not_answer_is_an_error_and_no_gap(past: Past) -> None:
    past.committed(3, 1)
    timeline = Timeline.load(past.store, AT_ONCE)
    past.store.fail("get", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        timeline.history()


def test_an_instant_costs_at_most_four_objects(past: Past) -> None:
    past.committed(3, 1)
    past.rolled_back(4, 5, until=State.COMPLETED)
    for instant in Timeline.load(past.store, AT_ONCE):
        past.store.calls.clear()
        read_entry(past.store, instant, AT_ONCE)
        assert set(past.store.calls) == {"get"} and past.store.calls["get"] <= 4


def test_views_are_arrow_tables_whose_columns_are_the_rows_fields(past: Past) -> None:
    past.committed(3, 1)
    past.rolled_back(4, 5, until=State.COMPLETED)
    timeline = Timeline.load(past.store, AT_ONCE)
    rows: dict[str, type[InstantRow | EpochRow | OffsetRow | FileRow | RejectedRow]] = {
        "instants": InstantRow,
        "epochs": EpochRow,
        "offsets": OffsetRow,
        "files": FileRow,
        "rejected": RejectedRow,
    }
    assert tuple(rows) == VIEWS
    for view in VIEWS:
        table = timeline.to_arrow(view)
        assert table.schema == view_schema(view)
        assert table.column_names == [column.name for column in fields(rows[view])]
        assert table.num_rows == len(getattr(timeline.history(), view)())
    assert timeline.to_arrow("files")["partition"].to_pylist()[:2] == [[("day", "1")], [("day", None)]]
    assert timeline.to_arrow().schema.field("requested").type == pa.timestamp("ms", "UTC")
    assert timeline.to_arrow("epochs").to_pylist()[0]["decided"] == moment(2)
    assert timeline.to_pandas("offsets")["shard"].tolist() == ["web-0", "web-1"]


def test_whole_numbers_of_a_data_frame_stay_whole_where_some_are_missing(past: Past) -> None:
    past.committed(3, 1)
    past.planned(4, 5)
    frame = Timeline.load(past.store, AT_ONCE).to_pandas()
    assert str(frame["rows"].dtype) == "Int64"
    assert frame["rows"].dropna().tolist() == [12]


def test_without_pandas_a_data_frame_is_refused_with_the_extra_to_install(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'tideline\[look\]'"):
        Timeline.load(past.store, AT_ONCE).to_pandas()


def test_an_empty_timeline_has_empty_views_with_all_columns() -> None:
    for view in VIEWS:
        table = Timeline.load(ScriptedStore(), AT_ONCE).to_arrow(view)
        assert (table.num_rows, table.schema) == (0, view_schema(view))


def test_a_view_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="view 'epoch': allowed are instants, epochs, offsets, files, rejected"):
        Timeline.load(ScriptedStore(), AT_ONCE).to_arrow("epoch")


def test_rows_are_json_with_times_in_utc(past: Past) -> None:
    past.committed(3, 1)
    (row,) = json.loads(to_json(past.history.instants()))
    assert row["requested"] == moment(1).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert (row["epoch"], row["prepared"]) == (3, None)
