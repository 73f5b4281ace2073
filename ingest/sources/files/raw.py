"""The bytes of a file on a store, with the store's failures kept apart from those of the content.

A damaged file is a fact about the data: its rows go to the quarantine. A store that does not answer
must never look like a damaged file.
"""

from __future__ import annotations

import errno
import io
import os
from typing import BinaryIO, NoReturn, cast

from fsspec import AbstractFileSystem

from timeline.errors import SourceError, StoreUnavailableError

_FINAL = frozenset({errno.EIO, errno.ELOOP, errno.ENAMETOOLONG})
"""Permanent errors of a file system, besides those that have an exception class."""


class RawFile(io.RawIOBase):
    """A file of a store, for reading, that records the store's failure.

    Attributes:
        failure: the store's error, once a read or seek has failed.
    """

    def __init__(self, fs: AbstractFileSystem, path: str, until: int | None = None) -> None:
        """Open the file.

        Args:
            fs: the store.
            path: the file's path.
            until: end for the reader, whatever has been appended since; None: the file's end.
        """
        # Without fsspec's cache, exactly the bytes read are requested from an object store.
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
        """The current offset."""
        return self._file.tell()

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def require_store(self) -> None:
        """Raise the store's failure, if there was one.

        Raises:
            SourceError, StoreUnavailableError: a read failed; the content is not to blame. See `unavailable`.
        """
        if self.failure is not None:
            unavailable(self._path, self.failure)


def require_readable(path: str, failure: OSError) -> None:
    """Raise for a permanent failure to read a file, which a user must fix; return for a transient one.

    Raises:
        SourceError: its permissions, a loop of links, or a failing disk forbid reading: a retry does not help.
    """
    # Object stores raise the system's error numbers with messages of their own: those pass.
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
    """Translate the failure to read a file.

    Raises:
        SourceError: see `require_readable`.
        StoreUnavailableError: the file cannot be read now; a retry may succeed.
    """
    require_readable(path, failure)
    raise StoreUnavailableError(f"{path} cannot be read now: {failure}; start again once it can") from failure
