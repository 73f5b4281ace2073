"""Writers, recoveries and crashes in any order, over a store that delays, fails and loses replies.

Hypothesis chooses which process makes its next call and which fault the call has; after each step the
invariants hold, and in the end recovery over a store without faults finishes all epochs.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.check_store.numbers import NumberSource
from tests.explore.protocol_world import check_recovered_behind_the_mark, check_visible, recoverer, writer
from tests.explore.stepped import Answer, Call, HashedStore, Process
from timeline.errors import StoreUnavailableError

FAULTS = ("none", "none", "none", "none", "fails", "reply lost", "late")
MUTATIONS = ("put_if_absent", "put", "delete")


def faulty(call: Call, store: HashedStore, fault: str, late: list[Callable[[], object]]) -> Answer:
    """The answer to a call that may fail, lose its reply, or take effect later.

    Args:
        call: the call of a process.
        store: the store to make the call on.
        fault: one of `FAULTS`.
        late: receives calls that take effect later.
    """

    def unavailable(words: str) -> Answer:
        return Answer(None, StoreUnavailableError(f"{call.name} {call.arguments[0]}{words}"))

    if fault == "fails" or (fault == "late" and call.name not in MUTATIONS):
        return unavailable(" failed")
    if fault == "late":
        late.append(lambda: call.on(store))
        return unavailable(" timed out")
    answer = call.on(store)
    return unavailable(": no reply") if fault == "reply lost" and answer.error is None else answer


class ProtocolMachine(RuleBasedStateMachine):
    """A store, running processes, and calls that have yet to take effect."""

    @initialize(records=st.integers(1, 3))
    def begin(self, records: int) -> None:
        self.source = NumberSource({"s": records})
        self.store = HashedStore()
        self.late: list[Callable[[], object]] = []
        self.running: dict[int, Process] = {}
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
        body = writer(epochs, self.source, is_marking=is_marking) if epochs else recoverer()
        self.running[number] = Process(body, number)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=20))
    def step(self, data: st.DataObject, faults: list[str]) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        for fault in faults:
            call = self.running[number].call
            if call is None:
                del self.running[number]
                return
            self.running[number].go_on(faulty(call, self.store, fault, self.late))

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
        self.running.pop(number).kill()

    def deliver(self, index: int) -> None:
        self.late.pop(index)()


TestProtocolMachine = ProtocolMachine.TestCase
TestProtocolMachine.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
