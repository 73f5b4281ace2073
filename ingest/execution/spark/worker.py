"""Avoids work that Spark's Python worker repeats for each task, although one process runs many tasks.

::

    before a task   importlib.invalidate_caches()   reads the directories of pyspark.zip and the others again: 80 ms
    in a task       memory of blocks that are done  goes back to the system and comes anew, emptied: a tenth of its CPU
    after a task    gc.collect()                    visits every object of every module again: 14 ms and more

Measured with PySpark 4.1.3: a job of two empty tasks took 272 ms, and 106 ms without the first and the last.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import zipimport
from typing import TypeAlias

import pyarrow as pa

_MIB = 1 << 20
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_MEMORY = {_M_TRIM_THRESHOLD: 256 * _MIB, _M_TOP_PAD: 64 * _MIB, _M_MMAP_THRESHOLD: 32 * _MIB}
"""Bytes, for glibc's mallopt(3): free memory to keep; memory to fetch at once; size below which blocks use the two."""

_Stamp: TypeAlias = tuple[int, int, int]


@functools.cache
def reduce_task_overhead() -> None:
    """Reduce the overhead of later tasks of this process; call it in a task, once modules are loaded.

    Only the first call in a process has an effect.
    """
    _read_changed_zips_only()
    _keep_memory()
    gc.collect()
    gc.freeze()


def _keep_memory() -> None:
    """Keep free memory in this process, because the next block needs as much. No effect without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for parameter, size in _KEPT_MEMORY.items():
        mallopt(parameter, size)
    # Arrow's own allocator returns memory that is free for 10 ms.
    pa.set_memory_pool(pa.system_memory_pool())


def _read_changed_zips_only() -> None:
    """Make importers read a zip's directory again only where the zip was replaced."""
    read_again = zipimport.zipimporter.invalidate_caches
    read: dict[zipimport.zipimporter, _Stamp | None] = {}

    def invalidate_caches(importer: zipimport.zipimporter) -> None:
        stamp = _stamp_of(importer.archive)
        if stamp is None or read.get(importer) != stamp:
            read_again(importer)
            read[importer] = stamp

    setattr(zipimport.zipimporter, "invalidate_caches", invalidate_caches)  # noqa: B010 - mypy takes it for a plain method


def _stamp_of(archive: str) -> _Stamp | None:
    """Inode, size and modification time of a file, to detect its replacement; None where there is no file."""
    try:
        status = os.stat(archive)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
