"""The bytes of a file on a store, with the store's failures kept apart from those of the content.

A damaged file is a fact about the data: its rows go to the quarantine. A store that does not answer
is not, and must never look like one.
"""

from __future__ import annotations

import errno
import io
import os
from typing import BinaryIO, NoReturn, cast

from fsspec import AbstractFileSystem

from timeline.errors import SourceError, StoreUnavailableError

_FINAL = frozenset({errno.EIO, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors of a file system that stay, besides those that have a class."""


class RawFile(io.RawIOBase):
    """A file of a store, for reading, that remembers whether the store failed.

    Attributes:
        failure: the store's error, once a read or seek has failed.
    """

    def __init__(self, fs: AbstractFileSystem, path: str, until: int | None = None) -> None:
        """Open it.

        Args:
            fs: the store.
            path: the file's.
            until: where it ends for the reader, whatever has been appended since; None: where it does.
        """
        # Without fsspec's cache an object store is asked for exactly what is read.
        self._file = cast(BinaryIO, fs.open(path, "rb", cache_type="none"))
        self._path = path
        self._until = until
        self.failure: OSError | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; empty at the end."""
        try:
            if self._until is not None:
                left = max(self._until - self._file.tell(), 0)
                size = left if size < 0 else min(size, left)
            return self._file.read(size)
        except OSError as failure:
            self.failure = failure
            raise

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to an offset."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The offset."""
        return self._file.tell()

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
        super().close()

    def require_store(self) -> None:
        """Raise what the store failed with, if it did.

        Raises:
            SourceError, StoreUnavailableError: a read failed; the content is not to blame. See `unavailable`.
        """
        if self.failure is not None:
            unavailable(self._path, self.failure)


def require_readable(path: str, failure: OSError) -> None:
    """Tell a file that cannot be read until a person has looked from one that cannot be read now.

    Raises:
        SourceError: its permissions, a loop of links, or a failing disk forbid it: trying again does not help.
    """
    # Object stores' own failures come with a number of the system's and words of theirs: those pass.
    is_systems = failure.errno is not None and failure.strerror == os.strerror(failure.errno)
    if isinstance(failure, PermissionError | IsADirectoryError | NotADirectoryError) or (
        is_systems and failure.errno in _FINAL
    ):
        said = failure.strerror or type(failure).__name__
        raise SourceError(
            f"source file {path} cannot be read: {said}; let the user of this process read it, or keep it out of "
            "source.path, then start again"
        ) from failure


def unavailable(path: str, failure: OSError) -> NoReturn:
    """Raise what a file that cannot be read means.

    Raises:
        SourceError: see `require_readable`.
        StoreUnavailableError: it cannot be read now; another attempt may.
    """
    require_readable(path, failure)
    raise StoreUnavailableError(f"{path} cannot be read now: {failure}; start again once it can") from failure
