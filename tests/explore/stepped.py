"""Processes that stop before every call to their store, and go on with the answer that they are given.

A process is the project's own code, unchanged, in a greenlet. Whoever drives it makes the call on a store for it, at a
moment of the driver's choice, and hands back what came of it; or lets the process die there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import greenlet

from tests.explore.one_by_one import delete_one_by_one, sizes_one_by_one
from timeline.stores.base import BaseStore, ObjectInfo, ObjectWriter
from timeline.stores.memory import MemoryStore


@dataclass
class HashedStore(MemoryStore):
    """A memory store that always knows a digest of everything in it."""

    def __post_init__(self) -> None:
        self.digest = 0
        for path, body in self.objects.items():
            self.digest ^= hash((path, body))

    def put_if_absent(self, path: str, body: bytes) -> None:
        super().put_if_absent(path, body)
        self.digest ^= hash((path, body))

    def put(self, path: str, body: bytes) -> None:
        self.delete([path])
        super().put(path, body)
        self.digest ^= hash((path, body))

    def delete(self, paths: Collection[str]) -> None:
        for path in paths:
            if path in self.objects:
                self.digest ^= hash((path, self.objects[path]))
        super().delete(paths)

    def copy(self) -> HashedStore:
        """One with the same objects."""
        return type(self)(objects=dict(self.objects))


class Dead(BaseException):
    """Raised into a process that must not run any further."""


@dataclass(frozen=True)
class Call:
    """A call that a process is about to make."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def on(self, store: MemoryStore) -> Answer:
        """Make it."""
        try:
            return Answer(getattr(store, self.name)(*self.arguments, **self.options))
        except Exception as error:
            return Answer(None, error)


@dataclass(frozen=True)
class Answer:
    """What came of a call: what it gave, or what it raised."""

    result: Any
    error: Exception | None = None

    @property
    def key(self) -> object:
        """Equal for answers that no process can tell from each other."""
        if self.error is not None:
            return type(self.error), str(self.error)
        match self.result:
            case list():
                return tuple(self.result)
            case dict():
                return tuple(self.result.items())
            case _:
                return self.result


class SteppedStore(BaseStore):
    """One process's view of a store."""

    url = "memory://stepped"

    def __init__(self) -> None:
        self.is_dead = False
        self.draws: list[Callable[[], object]] = []
        """What the process's clock and ids have come to: state that no stack shows."""

    def _step(self, name: str, *arguments: Any, **options: Any) -> Any:
        if self.is_dead:
            raise Dead
        answer: Answer = greenlet.getcurrent().parent.switch(Call(name, arguments, options))
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return list(answer.result) if isinstance(answer.result, list) else answer.result

    def put_if_absent(self, path: str, body: bytes) -> None:
        self._step("put_if_absent", path, body)

    def put(self, path: str, body: bytes) -> None:
        self._step("put", path, body)

    def get(self, path: str) -> bytes:
        result: bytes = self._step("get", path)
        return result

    def sizes_of_one(self, path: str) -> dict[str, int]:
        """One step of `sizes`."""
        result: dict[str, int] = self._step("sizes", (path,))
        return result

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return sizes_one_by_one(self, paths)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        result: list[ObjectInfo] = self._step("list", folder, recursive=recursive, after=after, limit=limit)
        return result

    def delete_one(self, path: str) -> None:
        """One step of `delete`."""
        self._step("delete", (path,))

    def delete(self, paths: Collection[str]) -> None:
        delete_one_by_one(self, paths)

    def open_write(self, path: str) -> ObjectWriter:
        raise NotImplementedError("the memory sink puts whole objects")

    def prune(self, folder: str) -> None: ...

    def remove_stale_uploads(self) -> None: ...

    def abandon(self, paths: Collection[str]) -> None: ...


Body = Callable[[SteppedStore, int], None]
"""What a process does: runs against its store, with its number; it may raise what a process may end with."""


class Process:
    """One that runs: it stands before its next call, or has ended.

    Attributes:
        view: its store.
        call: what it is about to call; None at its end.
    """

    def __init__(self, body: Body, number: int) -> None:
        self.view = SteppedStore()
        self._body, self._number = body, number
        self._running = greenlet.greenlet(self._run)
        self.call: Call | None = self._running.switch()

    def _run(self) -> None:
        try:
            self._body(self.view, self._number)
        except Dead:
            assert self.view.is_dead

    def go_on(self, answer: Answer) -> None:
        """Give it the answer that it waits for, and run it up to its next call."""
        self.call = self._running.switch(answer)

    def kill(self) -> None:
        """Let it end without another call."""
        self.view.is_dead = True
        if not self._running.dead:
            self._running.throw(Dead)

    @property
    def frame(self) -> Any:
        """Where it stands, the innermost first; None at its end."""
        return self._running.gr_frame
