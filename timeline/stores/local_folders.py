"""Folders and locks of a file system: creation, fsync and removal beside other processes that do the same."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import time
from collections.abc import Iterator
from typing import IO

_LOCK_PAUSE_S = 0.001


def make_folder(folder: str) -> set[str]:
    """Create a folder and its parents; returns the folders with changed entries, which the caller makes durable."""
    missing, above = [folder], os.path.dirname(folder)
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    # In quick succession: a concurrent delete removes a folder as soon as it is empty.
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except (FileExistsError, FileNotFoundError):
            continue  # it exists, or a parent was removed, or a file is in the way: the caller's action fails then
    return {*missing[1:], above}


def lock(file: IO[bytes] | io.FileIO) -> bool:
    """Try to lock an open file; returns whether it is locked. The system releases the lock when the process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable; a missing folder is no error."""
    with contextlib.suppress(FileNotFoundError):
        sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync(path: str, flags: int) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def flocked(folder: str, operation: int, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Lock a folder within the context, which reports whether the lock was acquired in time.

    A file system without locks always reports True.

    Args:
        folder: path of the folder.
        operation: flags of `fcntl.flock`, LOCK_NB included.
        wait_s: longest wait in seconds.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _lock_in_time(descriptor, operation, time.monotonic() + wait_s)
    finally:
        os.close(descriptor)


def _lock_in_time(descriptor: int, operation: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_PAUSE_S)
            continue
        except OSError:
            pass
        return True


def remove_folder(folder: str) -> bool:
    """Remove a folder if it is empty; returns whether the folder is removed."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
            return False
        raise
    return True
