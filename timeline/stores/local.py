"""Objects as files: exclusive creation by `os.link`, replacement by `os.replace`, both of a finished temporary file.

::

    put_if_absent   .tideline-tmp/<unique>  lock, write, fsync ── link ────▶ <path>   fsync the folder
    put             .tideline-tmp/<unique>  lock, write, fsync ── replace ─▶ <path>   fsync the folder
    open_write                                       stream ───────────────▶ <path>   fsync both on close

A file becomes visible under its name only when its bytes are on disk, so a process may die, and the
machine may lose power, at any point. "Check that it does not exist, then write" lets two writers win
often enough to be measured; link(2) fails with EEXIST atomically, on NFS as well.

Folders are created with their first file and removed with their last one. A folder that another
process removes between its creation and its use is created again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from operator import itemgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from timeline.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
)
from timeline.stores.base import BaseStore, ObjectInfo, ObjectWriter, StoreTraits, UnfinishedUpload
from timeline.stores.local_folders import flocked, lock, make_folder, remove_folder, sync, sync_folder
from timeline.stores.refusals import store_error

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

T = TypeVar("T")

TEMPORARY_FOLDER = ".tideline-tmp"
"""Folder of unfinished puts below the root: on the file system of the objects, and hidden from listings."""

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_FOLDER_ATTEMPTS = 2000  # of some 20 µs: concurrent deletes can win many times in a row, not this often
_FOLDERS_IN_A_ROW = 100
_LOCK_WAIT_S = 1.0
"""Longest wait for a folder's lock: removing a folder takes far less, and a stopped process never releases it."""
_BUFFER_BYTES = 1 << 20
_LONGEST_NAME_BYTES = 255
"""Longest name of a file or folder on Linux file systems (NAME_MAX)."""


@dataclass(frozen=True)
class LocalStore(BaseStore):
    """An `ObjectStore` on a file system with hard links.

    Attributes:
        root: absolute path of the root folder; it need not exist.
    """

    root: str

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return f"file://{self.root}"

    @cached_property
    def traits(self) -> StoreTraits:
        """See ObjectStore; the medium is the file system, found once: the constants are read for every epoch."""
        folder = self.root
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        return StoreTraits(
            medium=f"device {os.stat(folder).st_dev}",
            is_shared=False,
            longest_name_bytes=_LONGEST_NAME_BYTES,
            unfinished_upload=UnfinishedUpload.AT_ITS_PATH,
        )

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        target = self._file(path)
        with self._temporary(path, body) as temporary:
            try:
                self._place(lambda: os.link(temporary, target), target)
            except FileExistsError as error:
                raise AlreadyExistsError(f"{self.url}/{path} exists") from error
            except OSError as error:
                if error.errno in _NO_HARD_LINKS:
                    raise ConfigError(
                        f"{self.url}: {path!r} cannot be linked into place ({error.strerror}), so nothing can be "
                        "created exclusively here; use one file system with hard links, or an object store"
                    ) from error
                raise

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        target = self._file(path)
        with self._temporary(path, body) as temporary:
            self._place(lambda: os.replace(temporary, target), target)

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with _translated(f"{self.url}/{path}"), open(self._file(path), "rb") as file:
            return file.read()

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore; one stat each, which is faster than listing a folder."""
        found: dict[str, int] = {}
        for path in paths:
            file = self._file(path)
            with contextlib.suppress(NotFoundError), _translated(f"{self.url}/{path}"):
                if not os.path.isdir(file):
                    found[path] = os.stat(file).st_size
        return found

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore; of files before `after` only the folder's entries are read."""
        start = self._file(folder) if folder else self.root
        with _translated(f"{self.url}/{folder}"):
            return list(islice(_scan(start, f"{folder}/" if folder else "", recursive, after), limit or None))

    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore; also removes folders that become empty, each checked once."""
        files = [self._file(path) for path in paths]  # all of them are keys, or none is deleted
        for path, file in zip(paths, files, strict=True):
            with (
                _translated(f"{self.url}/{path}"),
                contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError),
            ):
                os.unlink(file)
        # A deleted file may still have its folders, where an earlier delete was killed in between.
        with _translated(self.url):
            self._remove_empty_folders({os.path.dirname(file) for file in files})

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore; the partial file is visible at its final path."""
        file = self._file(path)
        with _translated(f"{self.url}/{path}", writing=True):
            raw = self._in_folder(lambda: _TranslatingFile(file, "wb"), os.path.dirname(file))
        return LocalWriter(self, path, raw)

    def prune(self, folder: str) -> None:
        """See ObjectStore."""
        self._remove_empty_folders([found for found, _, _ in os.walk(self._file(folder), topdown=False)])

    def remove_stale_uploads(self) -> None:
        """See ObjectStore: the writer of an unlocked temporary file has ended."""
        folder = os.path.join(self.root, TEMPORARY_FOLDER)
        with _translated(folder, writing=True), contextlib.suppress(FileNotFoundError):
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
                    if lock(file):
                        os.unlink(file.name)
            self._remove_empty_folders([folder])

    def abandon(self, paths: Collection[str]) -> None:
        """See ObjectStore; an unfinished upload is a visible file, and cannot be closed once the file is deleted."""

    def make_durable(self, paths: Collection[str]) -> None:
        """See ObjectStore; delta-rs and Spark do not sync their files."""
        for path in paths:
            try:
                sync(os.path.join(self.root, path), os.O_RDONLY)
            except OSError as error:
                what = f"{self.url}/{path}: cannot be made durable"
                raise store_error(what, error, str(error)) from error

    def absent_folders(self) -> Sequence[str]:
        """See ObjectStore."""
        folders = [self.root, *map(str, PurePosixPath(self.root).parents)]
        return list(takewhile(lambda folder: not os.path.exists(folder), folders))

    def _file(self, path: str) -> str:
        """The file of a key; a key may come from a manifest, so one that leads out of the root is refused."""
        parts = PurePosixPath(path).parts
        if not parts or path != "/".join(parts) or ".." in parts or "\0" in path or parts[0] == TEMPORARY_FOLDER:
            raise StoreError(f"{path!r} is no key below {self.url}: allowed are names joined by '/', without '..'")
        return os.path.join(self.root, path)

    @contextlib.contextmanager
    def _temporary(self, path: str, body: bytes) -> Iterator[str]:
        """A durable temporary file with the body; removed afterwards in any case."""
        folder = os.path.join(self.root, TEMPORARY_FOLDER)
        with _translated(f"{self.url}/{path}", writing=True):
            temporary, file = self._in_folder(lambda: _open_locked(folder), folder)
            try:
                with file:
                    view = memoryview(body)
                    while view:
                        view = view[file.write(view) :]
                    os.fsync(file.fileno())
                    yield temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)

    def _place(self, place: Callable[[], None], target: str) -> None:
        """Give the temporary file its final name, durably."""
        folder = os.path.dirname(target)
        self._in_folder(place, folder)
        sync_folder(folder)

    def _in_folder(self, action: Callable[[], T], folder: str) -> T:
        """Run an action that needs a folder. While a folder is created and used, no `LocalStore` removes any."""
        with contextlib.suppress(FileNotFoundError):
            return action()
        changed = set() if os.path.isdir(self.root) else make_folder(self.root)
        with flocked(self.root, fcntl.LOCK_SH | fcntl.LOCK_NB, wait_s=_LOCK_WAIT_S):
            # Again and again all the same: other programs remove folders too, and who holds the lock may be stopped.
            for _ in range(_FOLDER_ATTEMPTS):
                changed |= make_folder(folder)
                with contextlib.suppress(FileNotFoundError):
                    result = action()
                    break
            else:
                raise StoreUnavailableError(f"{folder}: removed by another process each time it was made; not written")
        # Only now: no process waits for the disk while the folders are locked.
        for above in changed:
            sync_folder(above)
        return result

    def _remove_empty_folders(self, folders: Collection[str]) -> None:
        """Remove empty folders, and empty ones above them up to the root; none while a folder is being created.

        The lock is released after every few folders: a process that creates a folder waits for it.
        """
        deepest_first = sorted(folders, reverse=True)
        for first in range(0, len(deepest_first), _FOLDERS_IN_A_ROW):
            with contextlib.suppress(FileNotFoundError), flocked(self.root, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_mine:
                for folder in deepest_first[first : first + _FOLDERS_IN_A_ROW] if is_mine else ():
                    while folder != self.root and remove_folder(folder):
                        folder = os.path.dirname(folder)


class LocalWriter:
    """A streaming upload to the final path; see ObjectWriter."""

    def __init__(self, store: LocalStore, path: str, raw: _TranslatingFile) -> None:
        self._store = store
        self._path = path
        self._raw = raw
        self._sink = io.BufferedWriter(raw, _BUFFER_BYTES)
        self._done = False

    @property
    def sink(self) -> BinaryIO:
        """See ObjectWriter."""
        return self._sink

    def close(self) -> int:
        """See ObjectWriter.

        Raises:
            StoreUnavailableError: also when another process deleted the file while it was written.
        """
        name = f"{self._store.url}/{self._path}"
        with _translated(name, writing=True):
            self._sink.flush()
            os.fsync(self._raw.fileno())
            status = os.fstat(self._raw.fileno())
            self._sink.close()
            if status.st_nlink == 0:
                raise StoreUnavailableError(f"{name}: deleted by another process while it was written")
            sync_folder(os.path.dirname(self._raw.name))
        self._done = True
        return status.st_size

    def discard(self) -> None:
        """See ObjectWriter."""
        if self._done:
            return
        self._done = True
        # What is still in the buffer need not arrive; the descriptor is closed even when the flush fails.
        with contextlib.suppress(StoreUnavailableError):
            self._sink.close()
        self._store.delete([self._path])


class _TranslatingFile(io.FileIO):
    """A file whose write errors (disk full, I/O error) reach the Parquet writer's caller as Tideline's own."""

    name: str

    def write(self, data: ReadableBuffer, /) -> int:
        with _translated(self.name, writing=True):
            return super().write(data)


def _open_locked(folder: str) -> tuple[str, io.FileIO]:
    """A new temporary file, locked while it is open, so that clean-up knows that its writer is alive."""
    while True:
        temporary = os.path.join(folder, uuid.uuid4().hex)
        file = io.FileIO(temporary, "x")
        # Clean-up may have locked and removed it before it was locked here: then it has no name any more.
        if lock(file) and os.fstat(file.fileno()).st_nlink > 0:
            return temporary, file
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _scan(folder: str, prefix: str, recursive: bool, after: str) -> Iterator[ObjectInfo]:
    """Files below a folder by path; a file that vanishes meanwhile counts as deleted, an absent folder as empty."""
    try:
        with os.scandir(folder) as opened:
            entries = list(opened)
    except (FileNotFoundError, NotADirectoryError):
        return
    wanted: list[tuple[str, os.DirEntry[str]]] = []
    for entry in entries:
        below = f"{prefix}{entry.name}/"
        if below <= after and not after.startswith(below):
            continue  # the file of this name, or all that is in the folder of this name, is before
        if not entry.is_dir():
            if below[:-1] > after:
                wanted.append((below[:-1], entry))
        elif recursive and (prefix or entry.name != TEMPORARY_FOLDER):
            wanted.append((below, entry))
    wanted.sort(key=itemgetter(0))  # a folder by its name and a slash: that is where its files sort
    for path, entry in wanted:
        if path.endswith("/"):
            yield from _scan(entry.path, path, recursive, after)
            continue
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat()
            yield ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


@contextlib.contextmanager
def _translated(name: str, *, writing: bool = False) -> Iterator[None]:
    """Translate operating system errors into store errors; a write that finds no folder may still have happened."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SUCH_FILE and not writing:
            raise NotFoundError(f"{name} does not exist") from error
        raise store_error(name, error, error.strerror or str(error)) from error
