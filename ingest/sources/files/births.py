"""When local files were born: an inode and a birth are those of one file, however often the inode is given again.

Python tells births on macOS and the BSDs; on Linux `statx(2)` does, for file systems that keep them (ext4, XFS,
Btrfs, ZFS, tmpfs, NFS 4, overlays of these).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from functools import lru_cache

from ingest.sources.files.listing import FileInfo, is_local

_AT_FDCWD = -100
_STATX_BTIME = 0x800
# Of `struct statx` (linux/stat.h): the mask of what is known; the inode; seconds and nanoseconds of the birth.
_BUFFER_BYTES = 256
_MASK, _INODE, _BIRTH = (0, "I"), (32, "Q"), (80, "qI")


def birth_s(file: FileInfo) -> float | None:
    """When a file was made, seconds since 1970; None of an object, where nobody tells, or if it moved since.

    Args:
        file: as listed.
    """
    if not is_local(file):
        return None
    try:
        inode, born_s = _born(file.path)
    except (OSError, ValueError):
        return None
    return born_s if f"ino:{inode}" == file.identity else None


def _born(path: str) -> tuple[int, float | None]:
    """Inode and birth of what is at a path, through links."""
    found = os.stat(path)
    born_s = getattr(found, "st_birthtime", None)
    if born_s is not None:
        return found.st_ino, float(born_s)
    ask = _statx()
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    if ask is None or ask(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return found.st_ino, None
    mask, inode = (struct.unpack_from(kind, buffer, at)[0] for at, kind in (_MASK, _INODE))
    seconds, nanoseconds = struct.unpack_from(_BIRTH[1], buffer, _BIRTH[0])
    is_known = mask & _STATX_BTIME and (seconds or nanoseconds)
    return inode, seconds + nanoseconds / 1e9 if is_known else None


@lru_cache(maxsize=1)
def _statx() -> Callable[..., int] | None:
    """The C library's function; None where it has none (before glibc 2.28, other systems)."""
    try:
        found = ctypes.CDLL(None).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    found.restype = ctypes.c_int
    return found
