"""What a timeline shows, and what it costs to look."""

from __future__ import annotations

import pytest

from tests.unit.scripted_store import AT_ONCE, ScriptedStore, no_answer
from timeline.decision import DECISION, Decision, Outcome, decision_path
from timeline.epoch import PLAN, EpochRef, Plan
from timeline.errors import StoreUnavailableError
from timeline.hudi import commit_body, rollback_body
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
from timeline.view import Timeline

T = [format_time(1_709_251_199_999 + 1000 * number) for number in range(20)]


def view(*instants: Instant) -> Timeline:
    return Timeline.from_names(instant.file_name for instant in instants)


def test_ten_thousand_instants_take_one_listing_and_no_body() -> None:
    store = ScriptedStore()
    for number in range(10_000):
        time, completed = format_time(number * 1000), format_time(number * 1000 + 500)
        for instant in (commit_requested(time), commit_inflight(time), commit_completed(time, completed)):
            store.put(instant.path, b"")
    store.calls.clear()
    timeline = Timeline.load(store, AT_ONCE)
    assert store.calls == {"list": 1}
    assert len(timeline) == len(timeline.completed()) == 10_000
    assert timeline.pending().instants == ()
    assert timeline.latest_time == format_time(9_999 * 1000 + 500)
    assert store.calls == {"list": 1}, "filters read nothing"


def test_an_instant_is_shown_in_the_furthest_state_it_has_reached() -> None:
    states = [commit_completed(T[0], T[1]), commit_requested(T[0]), commit_inflight(T[0])]
    assert view(*states).instants == (commit_completed(T[0], T[1]),)
    assert view(*states[1:]).instants == view(*states[:0:-1]).instants == (commit_inflight(T[0]),)


def test_instants_come_in_the_order_of_their_times() -> None:
    timeline = view(commit_requested(T[3]), commit_completed(T[1], T[9]), commit_inflight(T[2]))
    assert [instant.time for instant in timeline] == [T[1], T[2], T[3]]


def test_files_that_are_no_instants_are_kept_apart() -> None:
    names = [commit_inflight(T[0]).file_name, "history", f"{T[1]}.frobnicate.requested", ""]
    timeline = Timeline.from_names(iter(names))
    assert len(timeline) == 1
    assert timeline.unreadable == tuple(names[1:])


def test_a_late_writers_inflight_without_a_request_is_told() -> None:
    timeline = view(commit_inflight(T[0]), commit_requested(T[1]), commit_inflight(T[1]), commit_completed(T[2], T[3]))
    assert timeline.unrequested == {T[0]}


ALL = view(
    commit_requested(T[0]),
    commit_completed(T[0], T[2]),
    commit_inflight(T[1]),
    Instant(T[3], Action.ROLLBACK, State.COMPLETED, T[4]),
    Instant(T[5], Action.ROLLBACK, State.INFLIGHT),
    commit_requested(T[6]),
)


def times(timeline: Timeline) -> list[int]:
    return [T.index(instant.time) for instant in timeline]


def test_filters_answer_what_they_are_named_for_and_combine() -> None:
    assert times(ALL) == [0, 1, 3, 5, 6]
    assert times(ALL.pending()) == [1, 5, 6]
    assert times(ALL.completed()) == [0, 3]
    assert times(ALL.by_action(Action.ROLLBACK)) == [3, 5]
    assert times(ALL.by_action(Action.COMMIT, Action.ROLLBACK)) == times(ALL)
    assert times(ALL.by_action()) == []
    assert times(ALL.between(T[1], T[5])) == [1, 3, 5]
    assert times(ALL.between(T[5], T[1])) == []
    assert times(ALL.pending().by_action(Action.COMMIT).between(T[2], T[9])) == [6]
    assert ALL.pending().unreadable == ALL.unreadable


def test_an_instant_is_found_by_time_and_action() -> None:
    assert ALL.find(T[0]) == commit_completed(T[0], T[2])
    assert ALL.find(T[3]) is None
    assert ALL.find(T[3], Action.ROLLBACK) == Instant(T[3], Action.ROLLBACK, State.COMPLETED, T[4])


def test_the_latest_time_counts_completion_times_too() -> None:
    assert Timeline().latest_time is None
    assert view(commit_completed(T[0], T[9]), commit_requested(T[6])).latest_time == T[9]
    assert view(commit_completed(T[0], T[1]), commit_requested(T[6])).latest_time == T[6]


def test_an_empty_timeline_is_asked_for_its_layout_once_and_for_nothing_else() -> None:
    store = ScriptedStore()
    assert Timeline.load(store, AT_ONCE).instants == ()
    assert store.calls == {"list": 1, "get": 1}


def test_another_writers_instants_are_never_taken_for_ones_to_settle() -> None:
    """Recovery settles pending commits and rollbacks; all else is someone else's, however far it is."""
    foreign = [action for action in Action if action not in (Action.COMMIT, Action.ROLLBACK)]
    instants = [Instant(T[number], action, State.INFLIGHT) for number, action in enumerate(foreign)]
    timeline = view(*instants)
    assert len(timeline.pending()) == len(foreign)
    assert not timeline.pending().by_action(Action.COMMIT, Action.ROLLBACK).instants
    assert timeline.unrequested == frozenset()


def test_a_timeline_that_cannot_be_listed_is_not_an_empty_one() -> None:
    store = ScriptedStore()
    store.fail("list", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        Timeline.load(store, AT_ONCE)


def put_plan(store: ScriptedStore, time: str, epoch: int) -> None:
    plan = Plan(EpochRef(epoch, time, 1), "web", "test", (), (), {}, "token")
    store.put(commit_requested(time).path, PLAN.dump(plan))
    store.put(commit_inflight(time).path, b"")


def put_rollback(store: ScriptedStore, time: str, done: str, instant: str, epoch: int | None) -> None:
    plan = RollbackPlan(instant, -1 if epoch is None else epoch, done, "why", "test", "token")
    store.put(Instant(time, Action.ROLLBACK, State.REQUESTED).path, ROLLBACK_PLAN.dump(plan))
    extra = {} if epoch is None else {"tideline.epoch": str(epoch)}
    path = Instant(time, Action.ROLLBACK, State.COMPLETED, done).path
    store.put(path, rollback_body(instant, time, 1, (), extra))


def put_decision(store: ScriptedStore, epoch: int, outcome: Outcome, instant: str, done: str) -> None:
    store.put(decision_path(epoch), DECISION.dump(Decision(epoch, outcome, instant, done, 1, "test", "why", "token")))


def test_an_epochs_instants_are_found_in_every_state() -> None:
    store = ScriptedStore()
    # Epoch 0 committed at its second attempt, epoch 1 rolled back, epoch 2 open; one rollback of an unknown epoch.
    put_decision(store, 0, Outcome.COMMIT, T[1], T[2])
    put_plan(store, T[1], 0)
    store.put(commit_completed(T[1], T[2]).path, commit_body((), {"tideline.epoch": "0"}))
    put_rollback(store, T[3], T[4], T[0], 0)
    put_decision(store, 1, Outcome.ROLLBACK, T[5], T[6])
    put_rollback(store, T[7], T[8], T[5], 1)
    put_rollback(store, T[9], T[10], T[5], None)
    put_plan(store, T[11], 2)
    timeline = Timeline.load(store, AT_ONCE)
    assert times(timeline.by_epoch(store, 0, AT_ONCE)) == [1, 3]
    assert times(timeline.by_epoch(store, 1, AT_ONCE)) == [7]
    assert times(timeline.by_epoch(store, 2, AT_ONCE)) == [11]
    assert times(timeline.by_epoch(store, 3, AT_ONCE)) == []


def test_finding_an_epoch_reads_no_body_of_a_completed_commit() -> None:
    store = ScriptedStore()
    for number in range(0, 18, 2):
        put_decision(store, number // 2, Outcome.COMMIT, T[number], T[number + 1])
        store.put(commit_completed(T[number], T[number + 1]).path, b"not read")
    timeline = Timeline.load(store, AT_ONCE)
    store.calls.clear()
    assert times(timeline.by_epoch(store, 4, AT_ONCE)) == [8]
    assert store.calls == {"get": 1}
