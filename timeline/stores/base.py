"""What Tideline asks of an object store, and how it reads an answer that did not arrive.

The safety of the whole protocol rests on one operation, `ObjectStore.put_if_absent`: of any number
of concurrent creators of one key exactly one succeeds, and the object appears whole. Everything
else may be slow, fail, or be answered twice.

An error is never taken for a loss: a put whose reply is lost may have landed, and a conflict may be
one's own retried write. `create_or_read` therefore always ends with the bytes that the key holds,
and a body carries a token that tells its author.
"""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from operator import attrgetter
from typing import BinaryIO, Protocol, TypeVar

from timeline.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    UntrustedStoreError,
)

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class ObjectInfo:
    """One object of a listing.

    Attributes:
        path: below the store's root.
        size: bytes.
        modified_ms: when it was last written, milliseconds since 1970 (UTC) by the store's clock; 0 where none tells.
            For people: no two clocks agree.
    """

    path: str
    size: int
    modified_ms: int = field(default=0, compare=False)


class ObjectWriter(Protocol):
    """A streaming upload of one object."""

    @property
    def sink(self) -> BinaryIO:
        """A writable file object; pyarrow writes into it."""

    def close(self) -> int:
        """Make the object durable and visible; returns its size in bytes. May raise StoreUnavailableError."""

    def discard(self) -> None:
        """Give the upload up and leave no object behind, as far as the store answers. Idempotent."""


class ObjectStore(Protocol):
    """Objects below one root. Paths are relative to it, with ``/`` and no leading slash.

    Every method may raise StoreUnavailableError: the call may or may not have taken effect.
    """

    @property
    def url(self) -> str:
        """The root as a URL without credentials, for messages."""

    @property
    def requests_at_once(self) -> int:
        """How many objects are best read or deleted at the same time; 1 where that waits for nothing."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        """Create one object whole, or fail leaving the existing one untouched.

        Atomic: of any number of concurrent callers exactly one returns normally.

        Args:
            path: key below the root.
            body: the whole object, at most 64 MiB.

        Raises:
            AlreadyExistsError: someone else won; read it before deciding anything.
        """

    def put(self, path: str, body: bytes) -> None:
        """Create or replace one object. A reader sees the old bytes or the new ones, never a mixture."""

    def get(self, path: str) -> bytes:
        """Read one object whole.

        Raises:
            NotFoundError: there is none.
        """

    def size(self, path: str) -> int | None:
        """Size in bytes, or None where there is no such object."""

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Sizes in bytes of those objects that exist; the others are not in the answer.

        As if `size` had been asked for each, in any order, in far fewer requests where they are many.
        """

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """Objects below a folder, sorted by path; an absent folder is empty.

        Args:
            folder: path of the folder, "" for the root.
            recursive: whether objects in deeper folders are included.
            after: only objects whose path sorts behind this one, which need not exist; what is before costs
                no request and no look at a file.
            limit: at most so many, those that sort first; 0: all.
        """

    def delete(self, path: str) -> None:
        """Remove one object; removing what is not there is no error."""

    def delete_all(self, paths: Collection[str]) -> None:
        """Remove many objects, in any order and far fewer requests; removing what is not there is no error.

        Raises:
            StoreUnavailableError: some of them may be left; the same call may be made again.
        """

    def open_write(self, path: str) -> ObjectWriter:
        """Start a streaming upload to `path`; a partial object may be visible on a file system until it is closed."""

    def prune(self, folder: str) -> None:
        """Remove what other programs leave where no objects are any more: empty folders, keys that end in ``/``.

        Args:
            folder: path of the folder; what is below it counts too.
        """

    def sweep(self) -> None:
        """Remove what killed processes left of unfinished puts; harmless beside live writers."""

    def abandon(self, paths: Collection[str]) -> None:
        """End every unfinished upload of these objects, whoever holds it: its writer can no longer close it.

        Finished objects and other uploads stay as they are. Where an unfinished upload is a visible
        object, deleting that is what ends it, and nothing is done here. A store that may not be asked
        for its uploads keeps them; they are invisible and only cost storage.
        """


@dataclass(frozen=True)
class Retry:
    """How often and for how long a call is tried again: bounded by count and by time, with jitter.

    Attributes:
        attempts: calls in all, at least 1.
        first_pause_s: the pause after the first failure; each further one doubles it.
        longest_pause_s: bound of a single pause.
        deadline_s: no further attempt starts later than this after the first.
    """

    attempts: int = 6
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    deadline_s: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random

    def call(self, action: Callable[[], T]) -> T:
        """Run `action` until it answers; the last StoreUnavailableError passes through, a refusal at once."""
        started = self.monotonic()
        pause_s = self.first_pause_s
        for attempt in range(1, self.attempts + 1):
            try:
                return action()
            except (StoreRefusedError, UntrustedStoreError):
                raise
            except StoreUnavailableError:
                if attempt == self.attempts or self.monotonic() - started + pause_s > self.deadline_s:
                    raise
            self.sleep(pause_s * (0.5 + self.jitter() / 2))
            pause_s = min(pause_s * 2, self.longest_pause_s)
        raise AssertionError("unreachable: the last attempt returns or raises")


def create_or_read(store: ObjectStore, path: str, body: bytes, retry: Retry) -> bytes:
    """Create the object, or learn what it already holds: the bytes returned are what the key holds for good.

    The caller has won exactly when the result equals `body`, so `body` must carry a token of its
    author. Holds for lost, late and repeated replies: a failed put is followed by a read, never by
    a conclusion.

    Raises:
        StoreUnavailableError: the store kept failing; the object may or may not exist now.
    """

    def attempt() -> bytes:
        try:
            store.put_if_absent(path, body)
            return body
        except (StoreRefusedError, UntrustedStoreError):
            raise
        except (AlreadyExistsError, StoreUnavailableError) as failure:
            try:
                return store.get(path)
            except NotFoundError:
                kind = StoreFullError if isinstance(failure, StoreFullError) else StoreUnavailableError
                raise kind(f"{store.url}/{path}: created or not, unknown: {failure}") from failure

    return retry.call(attempt)


def read_or_none(store: ObjectStore, path: str, retry: Retry) -> bytes | None:
    """The object's bytes, or None where it certainly does not exist at the time of the read."""
    try:
        return retry.call(lambda: store.get(path))
    except NotFoundError:
        return None


@dataclass
class MemoryStore:
    """A store in this process's memory: the reference for the contract, and what the explorer runs on."""

    url: str = "memory://"
    objects: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    requests_at_once = 1

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        with self.lock:
            if path in self.objects:
                raise AlreadyExistsError(f"{self.url}/{path} exists")
            self.objects[path] = body

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        with self.lock:
            self.objects[path] = body

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with self.lock:
            try:
                return self.objects[path]
            except KeyError:
                raise NotFoundError(f"{self.url}/{path} does not exist") from None

    def size(self, path: str) -> int | None:
        """See ObjectStore."""
        with self.lock:
            return len(self.objects[path]) if path in self.objects else None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore."""
        with self.lock:
            return {path: len(self.objects[path]) for path in paths if path in self.objects}

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore."""
        prefix = f"{folder}/" if folder else ""
        with self.lock:
            found = [
                ObjectInfo(path, len(body))
                for path, body in self.objects.items()
                if path > after and path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])
            ]
        return sorted(found, key=attrgetter("path"))[: limit or None]

    def delete(self, path: str) -> None:
        """See ObjectStore."""
        with self.lock:
            self.objects.pop(path, None)

    def delete_all(self, paths: Collection[str]) -> None:
        """See ObjectStore; one after another, as each is an object of its own to whoever looks meanwhile."""
        for path in paths:
            self.delete(path)

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore."""
        return BufferedWriter(self, path)

    def prune(self, folder: str) -> None:
        """See ObjectStore; a folder is nothing here."""

    def sweep(self) -> None:
        """See ObjectStore; nothing is ever left here."""

    def abandon(self, paths: Collection[str]) -> None:
        """See ObjectStore; nothing of an upload is here before it is closed."""


class BufferedWriter:
    """An upload that is collected in memory and put as one object when it is closed."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._buffer = io.BytesIO()

    @property
    def sink(self) -> BinaryIO:
        """See ObjectWriter."""
        return self._buffer

    def close(self) -> int:
        """See ObjectWriter."""
        body = self._buffer.getvalue()
        self._store.put(self._path, body)
        return len(body)

    def discard(self) -> None:
        """See ObjectWriter."""
        self._buffer.close()
