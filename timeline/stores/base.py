"""The object store protocol, and how Tideline treats a reply that did not arrive.

The safety of the whole protocol rests on one operation, `ObjectStore.put_if_absent`: of any number
of concurrent creators of one key exactly one succeeds, and the object appears whole. Every other
call may be slow, fail, or take effect twice.

An error never counts as a loss: a put whose reply is lost may have taken effect, and a conflict may be
the caller's own retried write. `create_or_read` therefore always ends with the bytes that the key holds,
and each body carries a token of its author.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import io
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

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
        modified_ms: time of the last write, milliseconds since 1970 (UTC) by the store's clock; 0 where unknown. Only
            for display: clocks differ.
    """

    path: str
    size: int
    modified_ms: int = field(default=0, compare=False)


class UnfinishedUpload(enum.Enum):
    """Location of a streaming upload's bytes before it is closed."""

    NOWHERE = "nowhere"
    """Not in the store."""

    AT_ITS_PATH = "at its path"
    """In a partial, visible object."""

    IN_PARTS = "in parts"
    """In invisible parts, which cost storage; the writer or `ObjectStore.abandon` removes them."""


@dataclass(frozen=True)
class StoreTraits:
    """Properties of a store.

    Attributes:
        medium: the bucket or file system below the root: exclusive creation is probed once for each medium.
        requests_at_once: how many objects are best read at the same time; 1 where a request waits for nothing.
        is_shared: whether processes on other machines reach the same objects; a job on a cluster needs that.
        longest_name_bytes: bound of a name between two slashes of a path, bytes of UTF-8; None where there is none.
        unfinished_upload: where the bytes of `ObjectStore.open_write` are before the upload is closed.
    """

    medium: str
    requests_at_once: int = 1
    is_shared: bool = True
    longest_name_bytes: int | None = None
    unfinished_upload: UnfinishedUpload = UnfinishedUpload.NOWHERE


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

    Every method may raise StoreUnavailableError: the call may or may not have taken effect. A new store extends
    `BaseStore`, which implements all but the five calls that only the store can answer.
    """

    @property
    def url(self) -> str:
        """The root as a URL without credentials, for messages."""

    @property
    def traits(self) -> StoreTraits:
        """Properties of the store."""

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

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Sizes in bytes of those objects that exist, in far fewer requests where they are many."""

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """Objects below a folder, sorted by path; an absent folder is empty.

        Args:
            folder: path of the folder, "" for the root.
            recursive: whether objects in deeper folders are included.
            after: only objects whose path sorts behind this one, which need not exist; objects before it cost no
                request and no stat.
            limit: most objects returned, those that sort first; 0: all.
        """

    def delete(self, paths: Collection[str]) -> None:
        """Remove objects, in any order, many by few requests; an object that does not exist is no error.

        Raises:
            StoreUnavailableError: some of them may remain; the same call may be made again.
        """

    def open_write(self, path: str) -> ObjectWriter:
        """Start a streaming upload to `path`; a partial object may be visible on a file system until it is closed."""

    def prune(self, folder: str) -> None:
        """Remove remains of other programs below a folder: empty folders, keys that end in ``/``.

        Args:
            folder: path of the folder; its subfolders are pruned too.
        """

    def remove_stale_uploads(self) -> None:
        """Remove unfinished puts of killed processes; harmless beside live writers."""

    def abandon(self, paths: Collection[str]) -> None:
        """End every unfinished upload of these objects: its writer can no longer close it.

        Finished objects and other uploads stay as they are. Where an unfinished upload is a visible
        object, deleting the object ends it, and this call does nothing. A store that refuses to list its
        uploads keeps them; they are invisible and only cost storage.
        """

    def make_durable(self, paths: Collection[str]) -> None:
        """Sync objects that another program wrote; does nothing where every finished object is durable.

        Args:
            paths: of objects and of their folders; "" is the root.

        Raises:
            StoreUnavailableError: one does not exist, or cannot be synced.
        """

    def clock(self) -> datetime | None:
        """Time of the store's clock, for display; None where it has no clock of its own."""

    def absent_folders(self) -> Sequence[str]:
        """Local folders that the first put would create, the deepest first; none where there are no folders.

        `tideline check-store` removes them when it ends.
        """


class BaseStore(abc.ABC):
    """An `ObjectStore` whose subclass provides five calls and a URL; the other calls are derived from them.

    The derived calls are correct everywhere and slow: one request for each object, whole objects in memory.
    Override those that the store answers faster: `sizes` first, then `open_write` (an upload in parts)
    and `traits`.
    """

    if TYPE_CHECKING:  # a dataclass would use a property of its base as the default of a field

        @property
        def url(self) -> str:
            """See ObjectStore; a field or a property of the subclass."""

    @property
    def traits(self) -> StoreTraits:
        """See ObjectStore; each root is a medium of its own."""
        return StoreTraits(self.url)

    @abc.abstractmethod
    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""

    @abc.abstractmethod
    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""

    @abc.abstractmethod
    def get(self, path: str) -> bytes:
        """See ObjectStore."""

    @abc.abstractmethod
    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore."""

    @abc.abstractmethod
    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore."""

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore; reads each object."""
        found: dict[str, int] = {}
        for path in paths:
            with contextlib.suppress(NotFoundError):
                found[path] = len(self.get(path))
        return found

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore; buffers the object in memory."""
        return BufferedWriter(self, path)

    def prune(self, folder: str) -> None:
        """See ObjectStore; there are no folders."""
        return

    def remove_stale_uploads(self) -> None:
        """See ObjectStore; there are no unfinished puts."""
        return

    def abandon(self, paths: Collection[str]) -> None:
        """See ObjectStore; an upload reaches the store only when it is closed."""
        return

    def make_durable(self, paths: Collection[str]) -> None:
        """See ObjectStore; every object is durable."""
        return

    def clock(self) -> datetime | None:
        """See ObjectStore; there is no clock."""
        return None

    def absent_folders(self) -> Sequence[str]:
        """See ObjectStore; there are no folders."""
        return ()


@dataclass(frozen=True)
class Retry:
    """Retries of a call: bounded by count and by time, with exponential back-off and jitter.

    Attributes:
        attempts: number of attempts, at least 1.
        first_pause_s: seconds between the first failure and the second attempt; doubles with each failure.
        longest_pause_s: longest pause in seconds.
        deadline_s: seconds after the first attempt beyond which no further attempt starts.
    """

    attempts: int = 6
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    deadline_s: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random

    def call(self, action: Callable[[], T]) -> T:
        """Run `action` until it succeeds; raises its last StoreUnavailableError, and a refusal at once."""
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
    """Create the object, or read the existing one: returns the bytes that the key holds for good.

    The caller has created it exactly when the result equals `body`, so `body` must carry a token of its
    author. Holds for lost, late and repeated replies: a failed put is followed by a read, never by
    a conclusion.

    Args:
        store: the store.
        path: key of the object.
        body: its bytes.
        retry: retry bounds.

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


def size_of(store: ObjectStore, path: str) -> int | None:
    """The object's size in bytes; None where it does not exist."""
    return store.sizes([path]).get(path)


def read_or_none(store: ObjectStore, path: str, retry: Retry) -> bytes | None:
    """The object's bytes; None where it does not exist at the time of the read.

    Args:
        store: the store.
        path: key of the object.
        retry: retry bounds.
    """
    try:
        return retry.call(lambda: store.get(path))
    except NotFoundError:
        return None


class BufferedWriter:
    """An upload that is buffered in memory and put as one object when it is closed."""

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
