"""Processes that stop before every call to their store, and continue with the answer that they are given.

A process is the project's own code, unchanged, in a greenlet. Its driver chooses when to make the call on a store, and
passes the answer back; or it kills the process there.
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
    """A memory store that keeps a digest of all its objects."""

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
        """A store with the same objects."""
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
        """Make the call on a store; an exception becomes part of the answer."""
        try:
            return Answer(getattr(store, self.name)(*self.arguments, **self.options))
        except Exception as error:
            return Answer(None, error)


@dataclass(frozen=True)
class Answer:
    """The outcome of a call: its result, or the exception that it raised."""

    result: Any
    error: Exception | None = None

    @property
    def key(self) -> object:
        """A key that is equal for answers that no process can distinguish."""
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
    """The store of one process: every call waits for the driver's answer."""

    url = "memory://stepped"

    def __init__(self) -> None:
        self.is_dead = False
        self.draws: list[Callable[[], object]] = []
        """Functions that read the process's clock and last ids: state outside the stack."""

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
"""The program of a process, called with its store and number; an exception other than `Dead` reaches the driver."""


class Process:
    """A running process: it waits for the answer to its next call, or has ended.

    Attributes:
        view: the process's store.
        call: the next call; None after the end.
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
        """Answer the next call, and run the process up to the call after it."""
        self.call = self._running.switch(answer)

    def kill(self) -> None:
        """End the process without another call."""
        self.view.is_dead = True
        if not self._running.dead:
            self._running.throw(Dead)

    @property
    def frame(self) -> Any:
        """The innermost stack frame; None after the end."""
        return self._running.gr_frame
