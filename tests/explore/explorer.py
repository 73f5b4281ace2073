"""Every interleaving of a few real processes over one store, with a crash and a recovery in every state.

The processes are the project's own code, unchanged. Each runs in a greenlet and stops before every
call to its store; between two calls any other process may run, or the process may never run again.
Two schedules that lead to equal objects, equal stacks (functions, instructions, local variables) and
equal clocks and ids are one state, and its futures are explored once.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import greenlet

from ingest.protocol import Rollback
from ingest.recovery import Evidence, Settled
from ingest.task import TaskReport
from tests.explore.one_by_one import delete_one_by_one, sizes_one_by_one
from timeline.chain import Chain, Snapshot
from timeline.decision import Decision
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, Plan
from timeline.settled import Settled as Mark
from timeline.store import MemoryStore, ObjectInfo, ObjectWriter
from timeline.view import Timeline


@dataclass
class HashedStore(MemoryStore):
    """A memory store that always knows a digest of everything in it."""

    def __post_init__(self) -> None:
        self.digest = 0
        for path, body in self.objects.items():
            self.digest ^= self._hash(path, body)

    @staticmethod
    def _hash(path: str, body: bytes) -> int:
        return hash((path, body))

    def put_if_absent(self, path: str, body: bytes) -> None:
        super().put_if_absent(path, body)
        self.digest ^= self._hash(path, body)

    def put(self, path: str, body: bytes) -> None:
        self.delete(path)
        super().put(path, body)
        self.digest ^= self._hash(path, body)

    def delete(self, path: str) -> None:
        if path in self.objects:
            self.digest ^= self._hash(path, self.objects[path])
        super().delete(path)


class Dead(BaseException):
    """Raised into a process that must not run any further."""


class SteppedStore:
    """One process's view of the shared store: gives way before each call, remembers each result."""

    url = "memory://explored"
    requests_at_once = 1

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.is_dead = False
        self.draws: list[Callable[[], object]] = []
        """What the process's clock and ids have come to: state that no stack shows."""

    def _step(self, name: str, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self.is_dead:
            raise Dead
        greenlet.getcurrent().parent.switch(name)
        if self.is_dead:
            raise Dead
        return action(*arguments, **options)

    def put_if_absent(self, path: str, body: bytes) -> None:
        self._step("put_if_absent", self.inner.put_if_absent, path, body)

    def put(self, path: str, body: bytes) -> None:
        self._step("put", self.inner.put, path, body)

    def get(self, path: str) -> bytes:
        result: bytes = self._step("get", self.inner.get, path)
        return result

    def size(self, path: str) -> int | None:
        result: int | None = self._step("size", self.inner.size, path)
        return result

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return sizes_one_by_one(self, paths)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        result: list[ObjectInfo] = self._step(
            "list", self.inner.list, folder, recursive=recursive, after=after, limit=limit
        )
        return result

    def delete(self, path: str) -> None:
        self._step("delete", self.inner.delete, path)

    def delete_all(self, paths: Collection[str]) -> None:
        delete_one_by_one(self, paths)

    def open_write(self, path: str) -> ObjectWriter:
        raise NotImplementedError("the memory sink puts whole objects")

    def prune(self, folder: str) -> None: ...

    def sweep(self) -> None: ...

    def abandon(self, paths: Collection[str]) -> None: ...


_LOCAL_STATE = (
    bool, int, float, str, bytes, type(None), tuple, list, dict, set, frozenset, enum.Enum,
    Chain, Decision, EpochRef, Evidence, Manifest, Mark, OffsetRange, Part, Plan, Rollback, Settled, Snapshot,
    TaskReport, Timeline,
)  # fmt: skip
"""Types of local variables that make up a place; the others (stores, jobs, functions) never change."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Process = Callable[[SteppedStore, int], None]
"""A process's body: runs against its store, with its number; it may raise what a process may end with."""


@dataclass
class World:
    """Some processes in the middle of something."""

    bodies: Sequence[Process]
    store_type: type[HashedStore] = HashedStore
    store: HashedStore = field(init=False)
    views: list[SteppedStore] = field(init=False)
    running: list[greenlet.greenlet] = field(init=False)
    places: list[int | None] = field(init=False)
    endings: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = self.store_type()
        self.views = [SteppedStore(self.store) for _ in self.bodies]
        self.running = [greenlet.greenlet(self._body(number)) for number in range(len(self.bodies))]
        for process in self.running:
            process.switch()
        self.places = [None] * len(self.running)

    def _body(self, number: int) -> Callable[[], None]:
        def run() -> None:
            try:
                self.bodies[number](self.views[number], number)
                self.endings[number] = "done"
            except Dead:
                self.endings[number] = "dead"

        return run

    @property
    def alive(self) -> list[int]:
        return [number for number, process in enumerate(self.running) if not process.dead]

    def step(self, number: int) -> None:
        self.running[number].switch()
        self.places[number] = None

    def key(self) -> tuple[int, ...]:
        """Equal for equal states: what the store holds, and where each process is."""
        return (self.store.digest, *(self._place(number) for number in range(len(self.running))))

    def _place(self, number: int) -> int:
        known = self.places[number]
        if known is None:
            known = self.places[number] = self._hash_of_place(number)
        return known

    def _hash_of_place(self, number: int) -> int:
        process = self.running[number]
        if process.dead:
            return 0
        frame = process.gr_frame
        stack: list[object] = [tuple(draw() for draw in self.views[number].draws)]
        while frame is not None:
            if "/tests/explore/explorer.py" not in frame.f_code.co_filename:
                values = tuple(
                    (name, _ADDRESS.sub("", repr(value)))
                    for name, value in frame.f_locals.items()
                    if isinstance(value, _LOCAL_STATE)
                )
                stack.append((frame.f_code.co_qualname, frame.f_lasti, values))
            frame = frame.f_back
        return hash(tuple(stack))

    def kill(self) -> None:
        """Let every process end without another call."""
        for view in self.views:
            view.is_dead = True
        for process in self.running:
            if not process.dead:
                process.throw(Dead)


@dataclass(frozen=True)
class Explored:
    """What an exploration went through."""

    states: int
    recoveries: int


def explore(
    bodies: Sequence[Process],
    *,
    check: Callable[[MemoryStore], None],
    recover: Callable[[MemoryStore], None],
    store_type: type[HashedStore] = HashedStore,
    limit: int = 1_000_000,
) -> Explored:
    """Visit every state.

    Args:
        bodies: the processes.
        check: raises if what the store shows breaks an invariant; called in every state.
        recover: given a copy of the store of every state in which all processes have died: recovers,
            and raises if that does not bring everything to its end.
        store_type: the shared store, or a broken one.
        limit: states after which it is an error to go on.
    """
    seen: set[tuple[int, ...]] = set()
    recovered: set[int] = set()
    traces: list[tuple[int, ...]] = [()]
    while traces:
        trace = traces.pop()
        world = World(bodies, store_type)
        for number in trace:
            world.step(number)
        while True:
            key = world.key()
            if key in seen:
                break
            seen.add(key)
            assert len(seen) <= limit, f"more than {limit} states"
            objects = world.store.digest
            if objects not in recovered:
                recovered.add(objects)
                try:
                    check(world.store)
                    recover(MemoryStore(objects=dict(world.store.objects)))
                except AssertionError as fault:
                    fault.add_note(f"schedule: {describe(trace)}")
                    raise
            alive = world.alive
            if not alive:
                break
            traces += [(*trace, number) for number in alive[1:]]
            trace = (*trace, alive[0])
            world.step(alive[0])
        world.kill()
    return Explored(len(seen), len(recovered))


def describe(trace: Iterable[int]) -> str:
    """A schedule as text: which process made each step."""
    return "".join("ABCD"[number] for number in trace)
