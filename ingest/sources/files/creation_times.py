"""Creation times of local files: inode and creation time identify one file, however often the inode is reused.

Conversely, a file keeps its creation time, with one exception: an overlay (overlayfs) copies a file of a lower layer up
when it is first changed or renamed, which keeps its inode and modification time and sets the copy's creation time.

Python reports creation times on macOS and the BSDs; on Linux `statx(2)` does, for file systems that keep them (ext4,
XFS, Btrfs, ZFS, tmpfs, NFS 4, overlays of these).
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from ingest.sources.files.listing import FileInfo, is_local

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")

_AT_FDCWD = -100
_STATX_BTIME = 0x800
# Fields of `struct statx` (linux/stat.h): mask of known fields; inode; creation time in seconds and nanoseconds.
_BUFFER_BYTES = 256
_MASK, _INODE, _BIRTH = (0, "I"), (32, "Q"), (80, "qI")


def creation_time_s(file: FileInfo) -> float | None:
    """Creation time of a file, seconds since 1970; None for an object, where unknown, or if the file moved since.

    Args:
        file: as listed.
    """
    if not is_local(file):
        return None
    try:
        inode, created_s = _born(file.path)
    except (OSError, ValueError):
        return None
    return created_s if f"ino:{inode}" == file.identity else None


def keeps_creation_times(file: FileInfo) -> bool:
    """Whether a file keeps its creation time as long as it exists; False on an overlay.

    Args:
        file: a local file, as listed.
    """
    try:
        return filesystem_of(os.path.realpath(file.path), _MOUNTS.read_text()) != "overlay"
    except (OSError, ValueError):
        return True


def filesystem_of(path: str, mounts: str) -> str | None:
    """The type of the file system that a path lies on.

    Args:
        path: absolute, without links.
        mounts: `/proc/self/mountinfo`; see proc_pid_mountinfo(5).
    """
    found, longest = None, -1
    for line in mounts.splitlines():
        mount, _, system = line.partition(" - ")
        point = _ESCAPED.sub(lambda octal: chr(int(octal.group(1), 8)), mount.split(" ")[4]).rstrip("/")
        # Of several mounts on one mount point the last one is visible.
        if (path == point or path.startswith(f"{point}/")) and len(point) >= longest:
            found, longest = system.split(" ")[0], len(point)
    return found


def _born(path: str) -> tuple[int, float | None]:
    """Inode and creation time of the file at a path; follows links."""
    found = os.stat(path)
    created_s = getattr(found, "st_birthtime", None)
    if created_s is not None:
        return found.st_ino, float(created_s)
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
    """The C library's `statx`; None where missing (before glibc 2.28, other systems)."""
    try:
        found = ctypes.CDLL(None).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    found.restype = ctypes.c_int
    return found
