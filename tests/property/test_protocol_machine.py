"""Writers, recoveries and crashes in any order, over a store that delays, fails and loses replies.

Hypothesis chooses which process makes its next call and how the store treats it; after each step the
invariants hold, and in the end one recovery over a quiet store brings everything to its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import greenlet
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.check_store.numbers import NumberSource
from tests.explore.explorer import Dead, HashedStore, Process, SteppedStore
from tests.explore.protocol_world import check_recovered_behind_the_mark, check_visible, recoverer, writer
from timeline.errors import AlreadyExistsError, StoreUnavailableError

FAULTS = ("none", "none", "none", "none", "fails", "reply lost", "late")
MUTATIONS = ("put_if_absent", "put", "delete")


class FaultyStore(SteppedStore):
    """One process's way to the store: a call may fail, take effect unanswered, or take effect later."""

    def __init__(self, inner: HashedStore, late: list[Callable[[], object]]) -> None:
        super().__init__(inner)
        self.fault = "none"
        self._late = late

    def _step(self, name: str, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self.is_dead:
            raise Dead
        greenlet.getcurrent().parent.switch(name)
        if self.is_dead:
            raise Dead
        fault, self.fault = self.fault, "none"
        if fault == "fails" or (fault == "late" and name not in MUTATIONS):
            raise StoreUnavailableError(f"{name} {arguments[0]} failed")
        if fault == "late":
            self._late.append(lambda: action(*arguments, **options))
            raise StoreUnavailableError(f"{name} {arguments[0]} timed out")
        result = action(*arguments, **options)
        if fault == "reply lost":
            raise StoreUnavailableError(f"{name} {arguments[0]}: no reply")
        return result


class ProtocolMachine(RuleBasedStateMachine):
    """The world: a store, processes in the middle of something, and calls that are still on their way."""

    @initialize(records=st.integers(1, 3))
    def begin(self, records: int) -> None:
        self.source = NumberSource({"s": records})
        self.store = HashedStore()
        self.late: list[Callable[[], object]] = []
        self.views: dict[int, FaultyStore] = {}
        self.running: dict[int, greenlet.greenlet] = {}
        self.started = 0

    def teardown(self) -> None:
        for number in list(getattr(self, "running", ())):
            self.kill(number)
        if hasattr(self, "store"):
            while self.late:
                self.deliver(0)
            check_recovered_behind_the_mark(self.store)

    @precondition(lambda self: len(self.running) < 3)
    @rule(epochs=st.integers(0, 2), is_marking=st.booleans())
    def start(self, epochs: int, is_marking: bool) -> None:
        number = self.started = self.started + 1
        body: Process = writer(epochs, self.source, is_marking=is_marking) if epochs else recoverer()
        view = FaultyStore(self.store, self.late)

        def run() -> None:
            with contextlib.suppress(Dead):
                body(view, number)

        self.views[number], self.running[number] = view, greenlet.greenlet(run)
        self.running[number].switch()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=20))
    def step(self, data: st.DataObject, faults: list[str]) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        for fault in faults:
            self.views[number].fault = fault
            self.running[number].switch()
            if self.running[number].dead:
                del self.running[number], self.views[number]
                return

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.kill(data.draw(st.sampled_from(sorted(self.running))))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.integers(0, len(self.late) - 1)))

    @invariant()
    def visible_is_decided(self) -> None:
        if hasattr(self, "store"):
            check_visible(self.store)

    def kill(self, number: int) -> None:
        self.views.pop(number).is_dead = True
        process = self.running.pop(number)
        if not process.dead:
            process.throw(Dead)

    def deliver(self, index: int) -> None:
        with contextlib.suppress(AlreadyExistsError):
            self.late.pop(index)()


TestProtocolMachine = ProtocolMachine.TestCase
TestProtocolMachine.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
