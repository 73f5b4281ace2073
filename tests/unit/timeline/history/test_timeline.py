"""The instants of one epoch, found by their bodies."""

from __future__ import annotations

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore
from tests.unit.timeline.test_active import ALL, T
from timeline.decision import DECISION, Decision, Outcome, decision_path
from timeline.epoch import PLAN, EpochRef, Plan
from timeline.history.timeline import Timeline
from timeline.hudi.layout import commit_body, rollback_body
from timeline.instant import Action, Instant, State, commit_completed, commit_inflight, commit_requested
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan


def times(timeline: Timeline) -> list[int]:
    return [T.index(instant.time) for instant in timeline]


def test_instants_between_two_times_are_those_requested_then() -> None:
    whole = Timeline(ALL)
    assert times(whole.between(T[1], T[5])) == [1, 3, 5]
    assert times(whole.between(T[5], T[1])) == []
    assert times(whole.pending().by_action(Action.COMMIT).between(T[2], T[9])) == [6]


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
    assert times(timeline.by_epoch(0)) == [1, 3]
    assert times(timeline.by_epoch(1)) == [7]
    assert times(timeline.by_epoch(2)) == [11]
    assert times(timeline.by_epoch(3)) == []


def test_finding_an_epoch_reads_no_body_of_a_completed_commit() -> None:
    store = ScriptedStore()
    for number in range(0, 18, 2):
        put_decision(store, number // 2, Outcome.COMMIT, T[number], T[number + 1])
        store.put(commit_completed(T[number], T[number + 1]).path, b"not read")
    timeline = Timeline.load(store, AT_ONCE)
    store.calls.clear()
    assert times(timeline.by_epoch(4)) == [8]
    assert store.calls == {"get": 1}
