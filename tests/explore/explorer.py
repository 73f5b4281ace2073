"""Every interleaving of a few real processes over one store, with a crash and a recovery in every state.

Between two calls of a process, any other process may run, or the process may crash. The place of a process is its stack
(functions, instructions, local variables), its clock and its ids. Schedules that lead to equal objects and equal places
lead to one state, whose successors are explored once.

A process is deterministic: its place and the store's answer determine its next place. Each process is run once for each
pair of place and answer, and the result is cached: a state is a store and places, and no schedule is run again.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.execution.task import TaskReport
from ingest.protocol.evidence import Evidence
from ingest.protocol.recovery import SettledInstant
from ingest.protocol.steps import Rollback
from tests.explore.stepped import Answer, Body, Call, HashedStore, Process
from timeline.active import ActiveTimeline
from timeline.chain import Chain, PositionSnapshot
from timeline.decision import Decision
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, Plan
from timeline.settled import SettledMark as Mark
from timeline.stores.base import ObjectInfo
from timeline.stores.memory import MemoryStore

_LOCAL_STATE = (
    bool, int, float, str, bytes, type(None), tuple, list, dict, set, frozenset, enum.Enum,
    Answer, Chain, Decision, EpochRef, Evidence, Manifest, Mark, ObjectInfo, OffsetRange, Part, Plan, Rollback,
    SettledInstant, PositionSnapshot, TaskReport, ActiveTimeline,
)  # fmt: skip
"""Types of the local variables that belong to a place; the other variables (stores, jobs, functions) never change."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OWN_FILES = ("/tests/explore/explorer.py", "/tests/explore/stepped.py")

_END = 0
"""The place of a process that has ended."""


class Learned:
    """The places of a process, as far as it was run.

    Attributes:
        start: the place before the first call.
        calls: the call that follows each place.
    """

    def __init__(self, body: Body, number: int) -> None:
        self._body, self._number = body, number
        self.calls: dict[int, Call] = {}
        self._next: dict[tuple[int, object], int] = {}
        self._way: dict[int, tuple[int, Answer]] = {}
        """The place and the answer that first led to each place."""
        self._process = Process(body, number)
        self.start = self._at = self._look()

    def after(self, place: int, answer: Answer) -> int:
        """The place that follows a place and an answer."""
        key = place, answer.key
        if key not in self._next:
            self._go_to(place)
            self._process.go_on(answer)
            self._next[key] = self._at = self._look()
            if self._at != self.start:
                self._way.setdefault(self._at, (place, answer))
        return self._next[key]

    def kill(self) -> None:
        """End the running process."""
        self._process.kill()

    def _go_to(self, place: int) -> None:
        """Bring the running process to a place: give a new process the answers that led there."""
        if self._at == place:
            return
        self._process.kill()
        self._process = Process(self._body, self._number)
        answers = []
        back = place
        while back != self.start:
            back, answer = self._way[back]
            answers.append(answer)
        for answer in reversed(answers):
            self._process.go_on(answer)
        self._at = self._look()
        assert self._at == place, "a process does different things by the same answers"

    def _look(self) -> int:
        place = _place(self._process)
        if self._process.call is not None:
            self.calls[place] = self._process.call
        return place


def _place(process: Process) -> int:
    """The place of a process: equal for processes that behave the same on the same answers."""
    if process.call is None:
        return _END
    frame = process.frame
    stack: list[object] = [tuple(draw() for draw in process.view.draws)]
    while frame is not None:
        if not frame.f_code.co_filename.endswith(_OWN_FILES):
            values = tuple(
                (name, _ADDRESS.sub("", repr(value)))
                for name, value in sorted(frame.f_locals.items())  # f_locals is built anew, in any order
                if isinstance(value, _LOCAL_STATE)
            )
            stack.append((frame.f_code.co_qualname, frame.f_lasti, values))
        frame = frame.f_back
    return hash(tuple(stack))


Places = tuple[int, ...]


@dataclass(frozen=True)
class State:
    """The objects, the place of each process, and the schedule that led there: one letter (the process) per step."""

    store: HashedStore
    places: Places
    schedule: str = ""

    @property
    def key(self) -> tuple[int, ...]:
        """A key that is equal for equal states, whatever their schedules."""
        return (self.store.digest, *self.places)


@dataclass(frozen=True)
class Explored:
    """The number of explored states and of recoveries."""

    states: int
    recoveries: int


class World:
    """Processes over one store, and the states that were visited.

    Args:
        bodies: the programs of the processes.
        check: raises AssertionError if the objects break an invariant; called once for all states with equal objects.
        recover: recovers a copy of the store after a crash of all processes, and raises AssertionError if that does not
            finish all epochs; called as often as `check`.
        store_type: class of the shared store, correct or broken.
    """

    def __init__(
        self,
        bodies: Sequence[Body],
        *,
        check: Callable[[MemoryStore], None],
        recover: Callable[[MemoryStore], None],
        store_type: type[HashedStore] = HashedStore,
    ) -> None:
        self._processes = [Learned(body, number) for number, body in enumerate(bodies)]
        self._check, self._recover, self._store_type = check, recover, store_type
        self._seen: set[tuple[int, ...]] = set()
        self._recovered: set[int] = set()

    @property
    def explored(self) -> Explored:
        """The states and recoveries so far."""
        return Explored(len(self._seen), len(self._recovered))

    def explore(self, limit: int = 1_000_000) -> Explored:
        """Visit every state; more than `limit` states are an AssertionError."""
        states = [self._start()]
        while states:
            state = states.pop()
            if self._is_new(state):
                assert len(self._seen) <= limit, f"more than {limit} states"
                # The step of process A comes last: the last state is popped first.
                states += [self._after(state, number) for number in reversed(self._alive(state))]
        return self.explored

    def wander(self, draw: random.Random, states: int) -> Explored:
        """Visit at least `states` states, by random schedules.

        A process makes several steps before the next draw: schedules that switch at each step rarely get far.
        """
        while len(self._seen) < states:
            state = self._start()
            self._is_new(state)
            while alive := self._alive(state):
                number = draw.choice(alive)
                for _ in range(draw.choice((1, 1, 2, 5, 20))):
                    if number in self._alive(state):
                        state = self._after(state, number)
                        self._is_new(state)
        return self.explored

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()

    def _start(self) -> State:
        return State(self._store_type(), tuple(process.start for process in self._processes))

    def _alive(self, state: State) -> list[int]:
        return [number for number, place in enumerate(state.places) if place != _END]

    def _after(self, state: State, number: int) -> State:
        """The state after one step of a process."""
        store, places, process = state.store.copy(), list(state.places), self._processes[number]
        places[number] = process.after(places[number], process.calls[places[number]].on(store))
        return State(store, tuple(places), state.schedule + "ABCD"[number])

    def _is_new(self, state: State) -> bool:
        """Whether a state is new; if its objects are new too, check them and recover a copy."""
        if state.key in self._seen:
            return False
        self._seen.add(state.key)
        if state.store.digest not in self._recovered:
            self._recovered.add(state.store.digest)
            try:
                self._check(state.store)
                self._recover(MemoryStore(objects=dict(state.store.objects)))
            except AssertionError as fault:
                fault.add_note(f"schedule: {state.schedule}")
                raise
        return True
