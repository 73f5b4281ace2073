"""Cost of a process and all below it, measured from outside: CPU seconds, and memory at its peak.

CPU seconds of processes that have ended are counted: the kernel hands them to the parent that waits for them, so the
sum over a tree loses none while its root lives. Python workers are the exception, as Spark's daemon waits for none of
them: CPU time of a worker is lost once it ends, and Spark ends workers that were idle for a minute. Memory is PSS, the
sum of which counts a page that several processes share once; forked Python workers share most of their pages.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_LOOK_S = 0.25
_MOST_LOOKS = 100
_TICKS = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""utime, stime, cutime, cstime behind the command's name in /proc/<pid>/stat; see proc(5)."""


@dataclass(frozen=True)
class Taken:
    """Cost of some work.

    Attributes:
        wall_s: wall-clock time.
        cpu_s: user and system time of the tree, including processes that ended meanwhile.
        peak_mb: largest PSS of the tree in samples taken four times a second, in 10^6 bytes.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float


class Meter:
    """Measures work of another process and of all below it."""

    def __init__(self, pid: int) -> None:
        """Measure nothing yet.

        Args:
            pid: the root of the tree; it has to live as long as the meter is used.
        """
        self._root = psutil.Process(pid)
        self._taken: Taken | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block; `taken` has the result."""
        self._taken = None
        done = threading.Event()
        peaks = [self.pss_bytes()]
        watch = threading.Thread(target=self._watch, args=(done, peaks), name="bench-memory", daemon=True)
        watch.start()
        cpu, began = self.cpu_s(), time.perf_counter()
        try:
            yield
            wall_s = time.perf_counter() - began
            cpu_s = self.cpu_s() - cpu
        finally:
            done.set()
            watch.join()
        self._taken = Taken(wall_s, cpu_s, max(*peaks, self.pss_bytes()) / 1e6)

    @property
    def taken(self) -> Taken:
        """Cost of the last block."""
        assert self._taken is not None, "nothing was measured"
        return self._taken

    def cpu_s(self) -> float:
        """CPU seconds of the tree since it was started."""
        for _ in range(_MOST_LOOKS):
            pids = self._pids()
            taken = [_cpu_s(pid) for pid in pids]
            # A process that ends meanwhile may be missing, its CPU time not yet in its parent's: then read again.
            if None not in taken and self._pids() == pids:
                break
        return sum(each for each in taken if each is not None)

    def pss_bytes(self) -> int:
        """PSS of the tree now, in bytes."""
        return sum(_pss_bytes(pid) for pid in self._pids())

    def _watch(self, done: threading.Event, peaks: list[int]) -> None:
        while not done.wait(_LOOK_S):
            peaks.append(self.pss_bytes())

    def _pids(self) -> list[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._root.pid, *(child.pid for child in self._root.children(recursive=True))]
        return []


def written_bytes(folder: Path) -> int:
    """Size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cpu_s(pid: int) -> float | None:
    with contextlib.suppress(OSError):
        # The command's name is in brackets and may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[_TIMES]) / _TICKS
    return None


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
