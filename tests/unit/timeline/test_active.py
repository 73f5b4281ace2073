"""The contents of the active timeline, and the number of calls that load it."""

from __future__ import annotations

import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore, no_answer
from timeline.active import ActiveTimeline
from timeline.errors import StoreUnavailableError
from timeline.instant import (
    Action,
    Instant,
    State,
    commit_completed,
    commit_inflight,
    commit_requested,
    format_time,
)

T = [format_time(1_709_251_199_999 + 1000 * number) for number in range(20)]


def view(*instants: Instant) -> ActiveTimeline:
    return ActiveTimeline.from_names(instant.file_name for instant in instants)


def test_ten_thousand_instants_take_one_listing_and_no_body() -> None:
    store = ScriptedStore()
    for number in range(10_000):
        time, completed = format_time(number * 1000), format_time(number * 1000 + 500)
        for instant in (commit_requested(time), commit_inflight(time), commit_completed(time, completed)):
            store.put(instant.path, b"")
    store.calls.clear()
    timeline = ActiveTimeline.load(store, AT_ONCE)
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
    timeline = ActiveTimeline.from_names(iter(names))
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


def times(timeline: ActiveTimeline) -> list[int]:
    return [T.index(instant.time) for instant in timeline]


def test_filters_answer_what_they_are_named_for_and_combine() -> None:
    assert times(ALL) == [0, 1, 3, 5, 6]
    assert times(ALL.pending()) == [1, 5, 6]
    assert times(ALL.completed()) == [0, 3]
    assert times(ALL.by_action(Action.ROLLBACK)) == [3, 5]
    assert times(ALL.by_action(Action.COMMIT, Action.ROLLBACK)) == times(ALL)
    assert times(ALL.by_action()) == []
    assert ALL.pending().unreadable == ALL.unreadable


def test_an_instant_is_found_by_time_and_action() -> None:
    assert ALL.find(T[0]) == commit_completed(T[0], T[2])
    assert ALL.find(T[3]) is None
    assert ALL.find(T[3], Action.ROLLBACK) == Instant(T[3], Action.ROLLBACK, State.COMPLETED, T[4])


def test_the_latest_time_counts_completion_times_too() -> None:
    assert ActiveTimeline().latest_time is None
    assert view(commit_completed(T[0], T[9]), commit_requested(T[6])).latest_time == T[9]
    assert view(commit_completed(T[0], T[1]), commit_requested(T[6])).latest_time == T[6]


def test_an_empty_timeline_is_asked_for_its_layout_once_and_for_nothing_else() -> None:
    store = ScriptedStore()
    assert ActiveTimeline.load(store, AT_ONCE).instants == ()
    assert store.calls == {"list": 1, "get": 1}


def test_another_writers_instants_are_never_taken_for_ones_to_settle() -> None:
    """Recovery settles pending commits and rollbacks; all other instants, in any state, belong to other writers."""
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
        ActiveTimeline.load(store, AT_ONCE)
