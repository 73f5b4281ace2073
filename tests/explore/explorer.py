"""Every interleaving of a few real processes over one store, with a crash and a recovery in every state.

Between two calls of a process any other may run, or the process may never run again. Two schedules that lead to equal
objects, equal stacks (functions, instructions, local variables) and equal clocks and ids are one state, and its futures
are explored once.

What a process does next follows from where it stands and what the store answers. So each is run once for every answer
that it can get in a place, and is known from then on: a state is a store and places, and no schedule is run again.
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
"""Types of local variables that make up a place; the others (stores, jobs, functions) never change."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OWN_FILES = ("/tests/explore/explorer.py", "/tests/explore/stepped.py")

_END = 0
"""The place of a process that has ended."""


class Learned:
    """A process by its places, as far as it was run.

    Attributes:
        start: where it stands at first.
        calls: what it calls in a place.
    """

    def __init__(self, body: Body, number: int) -> None:
        self._body, self._number = body, number
        self.calls: dict[int, Call] = {}
        self._next: dict[tuple[int, object], int] = {}
        self._way: dict[int, tuple[int, Answer]] = {}
        """The place and answer from which a place was reached first."""
        self._process = Process(body, number)
        self.start = self._at = self._look()

    def after(self, place: int, answer: Answer) -> int:
        """Where it stands when it has been given an answer in a place."""
        key = place, answer.key
        if key not in self._next:
            self._go_to(place)
            self._process.go_on(answer)
            self._next[key] = self._at = self._look()
            if self._at != self.start:
                self._way.setdefault(self._at, (place, answer))
        return self._next[key]

    def kill(self) -> None:
        """Let the running one end."""
        self._process.kill()

    def _go_to(self, place: int) -> None:
        """Have one that stands in a place: give a new one the answers that led there."""
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
    """Equal for processes that will do the same by the same answers."""
    if process.call is None:
        return _END
    frame = process.frame
    stack: list[object] = [tuple(draw() for draw in process.view.draws)]
    while frame is not None:
        if not frame.f_code.co_filename.endswith(_OWN_FILES):
            values = tuple(
                (name, _ADDRESS.sub("", repr(value)))
                for name, value in sorted(frame.f_locals.items())  # in no order of its own: a frame is looked at anew
                if isinstance(value, _LOCAL_STATE)
            )
            stack.append((frame.f_code.co_qualname, frame.f_lasti, values))
        frame = frame.f_back
    return hash(tuple(stack))


Places = tuple[int, ...]


@dataclass(frozen=True)
class State:
    """Objects, where each process stands, and by which schedule that was reached: which process made each step."""

    store: HashedStore
    places: Places
    schedule: str = ""

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for equal states, however they were reached."""
        return (self.store.digest, *self.places)


@dataclass(frozen=True)
class Explored:
    """What an exploration went through."""

    states: int
    recoveries: int


class World:
    """Some processes over one store, and what has been seen of their states.

    Args:
        bodies: the processes.
        check: raises if what the store shows breaks an invariant; called in every state.
        recover: given a copy of the store of every state in which all processes have died: recovers,
            and raises if that does not bring everything to its end.
        store_type: the shared store, or a broken one.
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
        """What was gone through so far."""
        return Explored(len(self._seen), len(self._recovered))

    def explore(self, limit: int = 1_000_000) -> Explored:
        """Visit every state; after so many it is an error to go on."""
        states = [self._start()]
        while states:
            state = states.pop()
            if self._is_new(state):
                assert len(self._seen) <= limit, f"more than {limit} states"
                # Last what process A does: it is taken first.
                states += [self._after(state, number) for number in reversed(self._alive(state))]
        return self.explored

    def wander(self, draw: random.Random, states: int) -> Explored:
        """Visit so many states at least, by schedules that are drawn.

        A process makes some steps before the next one is drawn: few schedules that change at each step get far.
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
        """Let all processes end."""
        for process in self._processes:
            process.kill()

    def _start(self) -> State:
        return State(self._store_type(), tuple(process.start for process in self._processes))

    def _alive(self, state: State) -> list[int]:
        return [number for number, place in enumerate(state.places) if place != _END]

    def _after(self, state: State, number: int) -> State:
        """What a step of a process makes of a state."""
        store, places, process = state.store.copy(), list(state.places), self._processes[number]
        places[number] = process.after(places[number], process.calls[places[number]].on(store))
        return State(store, tuple(places), state.schedule + "ABCD"[number])

    def _is_new(self, state: State) -> bool:
        """Whether a state was not seen yet; it is checked then, and recovered from where its objects are new."""
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
