"""A store that counts its calls and raises scripted faults, and the faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from timeline.errors import StoreUnavailableError
from timeline.stores.base import BaseStore, ObjectInfo, ObjectStore, ObjectWriter, Retry, StoreTraits
from timeline.stores.memory import MemoryStore

AT_ONCE = Retry(attempts=4, first_pause_s=0.0, sleep=lambda pause_s: None)
"""Retries that follow each other without a pause."""

Call = Callable[[], None]

Fault = Callable[[Call], None]
"""Runs in place of a write, which it receives and may let through; before a read, it receives a call without effect."""


class ScriptedStore(BaseStore):
    """Counts calls by name, and listed objects; each call takes the next fault that is queued for its name."""

    url = ""

    def __init__(self, inner: ObjectStore | None = None) -> None:
        self.inner: ObjectStore = inner or MemoryStore()
        self.url = self.inner.url
        self._traits = self.inner.traits
        self.calls: Counter[str] = Counter()
        self.listed = 0
        self._faults: dict[str, list[Fault]] = {}

    @property
    def traits(self) -> StoreTraits:
        return self._traits

    @traits.setter
    def traits(self, traits: StoreTraits) -> None:
        self._traits = traits

    def fail(self, call: str, *faults: Fault) -> None:
        """Queue faults for the next calls of this name."""
        self._faults.setdefault(call, []).extend(faults)

    def _write(self, name: str, write: Call) -> None:
        self.calls[name] += 1
        queued = self._faults.get(name)
        queued.pop(0)(write) if queued else write()

    def put_if_absent(self, path: str, body: bytes) -> None:
        self._write("put_if_absent", partial(self.inner.put_if_absent, path, body))

    def put(self, path: str, body: bytes) -> None:
        self._write("put", partial(self.inner.put, path, body))

    def get(self, path: str) -> bytes:
        self._write("get", nothing)
        return self.inner.get(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        self._write("sizes", nothing)
        return self.inner.sizes(paths)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        self._write("list", nothing)
        listed = self.inner.list(folder, recursive=recursive, after=after, limit=limit)
        self.listed += len(listed)
        return listed

    def delete(self, paths: Collection[str]) -> None:
        self._write("delete", partial(self.inner.delete, paths))

    def open_write(self, path: str) -> ObjectWriter:
        return self.inner.open_write(path)

    def prune(self, folder: str) -> None:
        self._write("prune", partial(self.inner.prune, folder))

    def remove_stale_uploads(self) -> None:
        self._write("remove_stale_uploads", self.inner.remove_stale_uploads)

    def abandon(self, paths: Collection[str]) -> None:
        self._write("abandon", partial(self.inner.abandon, paths))


def nothing() -> None:
    """A call without effect, for the fault of a read."""


def no_answer(call: Call) -> None:
    """A fault: the call does not reach the store; the caller gets no answer."""
    raise StoreUnavailableError("no answer")


def lost_reply(call: Call) -> None:
    """A fault: the call takes effect, and its reply is lost."""
    call()
    raise StoreUnavailableError("the reply is lost")


def delayed(later: list[Call]) -> Fault:
    """A fault: the call seems to fail, and takes effect when `later` is run."""

    def fault(call: Call) -> None:
        later.append(call)
        raise StoreUnavailableError("no answer yet")

    return fault
