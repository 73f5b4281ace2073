"""A decision, once created, never changes; no decider takes an error for a lost or a won race."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, Call, Fault, ScriptedStore, delayed, lost_reply, no_answer
from timeline.decision import DECISION, Decision, Outcome, decide, decision_path, read_decision
from timeline.epoch import Position
from timeline.errors import (
    AlreadyExistsError,
    FormatError,
    InvariantError,
    NotFoundError,
    StoreUnavailableError,
)
from timeline.stores.base import Retry, create_or_read, read_or_none
from timeline.stores.memory import MemoryStore

COMMIT = Decision(
    7, Outcome.COMMIT, "20240101000000000", "20240101000000001", 1, "writer", "written", "w", 5, 1, {"a": Position(9)}
)
ROLLBACK = Decision(7, Outcome.ROLLBACK, "20240101000000000", "20240101000000002", 2, "recovery", "not prepared", "r")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def test_the_first_decision_holds_and_the_second_decider_learns_it(store: ScriptedStore) -> None:
    assert read_decision(store, 7, AT_ONCE) is None
    assert decide(store, COMMIT, AT_ONCE) == COMMIT
    assert decide(store, ROLLBACK, AT_ONCE) == COMMIT
    assert decide(store, COMMIT, AT_ONCE) == COMMIT
    assert read_decision(store, 7, AT_ONCE) == COMMIT
    assert decision_path(7) == ".hoodie/decisions/00000000000000000007.json"
    assert [info.path for info in store.list(".hoodie/decisions")] == [decision_path(7)]


@pytest.mark.parametrize("race", range(30))
def test_of_two_racing_deciders_both_learn_the_same_decision(race: int) -> None:
    store = MemoryStore()
    start = threading.Barrier(2)
    learned: list[Decision] = []

    def claim(wanted: Decision) -> None:
        start.wait()
        learned.append(decide(store, wanted, AT_ONCE))

    threads = [threading.Thread(target=claim, args=(wanted,)) for wanted in (COMMIT, ROLLBACK)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learned == [read_decision(store, 7, AT_ONCE)] * 2


FAULTS: dict[str, Fault] = {"none": lambda call: call(), "no answer": no_answer, "lost reply": lost_reply}


@pytest.mark.parametrize("faults", list(itertools.product(FAULTS, repeat=3)), ids="-".join)
def test_however_the_puts_fail_the_decider_learns_what_the_store_holds(
    faults: tuple[str, ...], store: ScriptedStore
) -> None:
    store.fail("put_if_absent", *(FAULTS[name] for name in faults))
    learned = decide(store, COMMIT, AT_ONCE)
    assert learned == read_decision(store, 7, AT_ONCE) == COMMIT
    assert decide(store, ROLLBACK, AT_ONCE) == COMMIT


@pytest.mark.parametrize("faults", list(itertools.product(FAULTS, repeat=2)), ids="-".join)
def test_a_loser_with_lost_replies_does_not_believe_to_have_won(faults: tuple[str, ...], store: ScriptedStore) -> None:
    decide(store, ROLLBACK, AT_ONCE)
    store.fail("put_if_absent", *(FAULTS[name] for name in faults))
    store.fail("get", no_answer, no_answer)
    assert decide(store, COMMIT, AT_ONCE) == ROLLBACK


def test_a_put_that_lands_late_loses_to_a_decision_made_meanwhile(store: ScriptedStore) -> None:
    later: list[Call] = []
    store.fail("put_if_absent", *[delayed(later)] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError, match="created or not, unknown"):
        decide(store, COMMIT, AT_ONCE)
    assert decide(store, ROLLBACK, AT_ONCE) == ROLLBACK
    for call in later:
        with pytest.raises(AlreadyExistsError):
            call()
    assert read_decision(store, 7, AT_ONCE) == ROLLBACK


def test_a_put_that_lands_late_is_found_when_it_is_claimed_again(store: ScriptedStore) -> None:
    later: list[Call] = []
    store.fail("put_if_absent", *[delayed(later)] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        decide(store, COMMIT, AT_ONCE)
    later[0]()
    assert decide(store, ROLLBACK, AT_ONCE) == COMMIT


def test_a_put_that_lands_between_two_attempts_is_the_own_win(store: ScriptedStore) -> None:
    later: list[Call] = []

    def first_lands_now(call: Call) -> None:
        later[0]()
        call()

    store.fail("put_if_absent", delayed(later), first_lands_now)
    assert decide(store, COMMIT, AT_ONCE) == COMMIT


def test_a_decision_filed_under_another_epoch_is_refused(store: ScriptedStore) -> None:
    store.put(decision_path(8), DECISION.dump(COMMIT))
    with pytest.raises(InvariantError, match=r"00008\.json holds the decision of epoch 7"):
        read_decision(store, 8, AT_ONCE)
    with pytest.raises(InvariantError):
        decide(store, replace(ROLLBACK, epoch=8), AT_ONCE)


def test_a_damaged_decision_is_no_absent_one(store: ScriptedStore) -> None:
    store.put(decision_path(7), b"")
    with pytest.raises(FormatError, match=r"00007\.json: not a decision"):
        read_decision(store, 7, AT_ONCE)
    with pytest.raises(FormatError):
        decide(store, COMMIT, AT_ONCE)
    assert store.get(decision_path(7)) == b""


def test_a_store_that_does_not_answer_is_neither_yes_nor_no(store: ScriptedStore) -> None:
    store.fail("get", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        read_decision(store, 7, AT_ONCE)


def test_creating_returns_what_the_key_holds_for_good(store: ScriptedStore) -> None:
    assert create_or_read(store, "k", b"mine", AT_ONCE) == b"mine"
    assert create_or_read(store, "k", b"theirs", AT_ONCE) == b"mine"
    assert create_or_read(store, "empty", b"", AT_ONCE) == b""


def test_creating_over_an_object_that_goes_away_tries_again(store: ScriptedStore) -> None:
    def conflict(call: Call) -> None:
        raise AlreadyExistsError("k exists")

    store.fail("put_if_absent", conflict)
    assert create_or_read(store, "k", b"mine", AT_ONCE) == b"mine"
    assert store.calls["put_if_absent"] == 2


def test_creating_gives_up_as_unknown_and_names_the_object(store: ScriptedStore) -> None:
    store.fail("put_if_absent", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError, match=r"memory:///k: created or not, unknown: no answer"):
        create_or_read(store, "k", b"mine", AT_ONCE)
    assert store.calls["put_if_absent"] == AT_ONCE.attempts


def test_absence_is_told_from_silence(store: ScriptedStore) -> None:
    assert read_or_none(store, "k", AT_ONCE) is None
    store.put("k", b"")
    store.fail("get", no_answer)
    assert read_or_none(store, "k", AT_ONCE) == b""


class Patience:
    """A monotonic clock that only pauses and attempts move."""

    def __init__(self, work_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.attempts = 0
        self._work_s = work_s

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s

    def fail(self) -> None:
        self.attempts += 1
        self.now_s += self._work_s
        raise StoreUnavailableError(f"attempt {self.attempts}")

    def retry(self, *, jitter: float = 1.0, attempts: int = 6, deadline_s: float = 30.0) -> Retry:
        return Retry(
            attempts,
            first_pause_s=1.0,
            longest_pause_s=4.0,
            deadline_s=deadline_s,
            sleep=self.sleep,
            monotonic=lambda: self.now_s,
            jitter=lambda: jitter,
        )


def test_retries_are_bounded_by_count_and_their_pauses_double_up_to_the_longest() -> None:
    patience = Patience()
    with pytest.raises(StoreUnavailableError, match="attempt 6"):
        patience.retry().call(patience.fail)
    assert (patience.attempts, patience.pauses) == (6, [1.0, 2.0, 4.0, 4.0, 4.0])


def test_jitter_shortens_a_pause_to_half_at_most() -> None:
    patience = Patience()
    with pytest.raises(StoreUnavailableError):
        patience.retry(jitter=0.0).call(patience.fail)
    assert patience.pauses == [0.5, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(("work_s", "attempts"), [(0.0, 4), (3.0, 2), (10.0, 1)])
def test_no_attempt_starts_behind_the_deadline(work_s: float, attempts: int) -> None:
    patience = Patience(work_s)
    with pytest.raises(StoreUnavailableError):
        patience.retry(deadline_s=8.0, attempts=100).call(patience.fail)
    assert patience.attempts == attempts
    assert patience.now_s - work_s <= 8.0


def test_only_silence_is_retried() -> None:
    def absent() -> None:
        calls.append("called")
        raise NotFoundError("k")

    calls: list[str] = []
    action: Callable[[], None] = absent
    with pytest.raises(NotFoundError):
        AT_ONCE.call(action)
    assert calls == ["called"]
