"""Instant times that never repeat and never go back, whatever the wall clock does.

One process gets strictly increasing times from its `InstantClock`. Between processes, `observe`
feeds the timeline's times to the clock, so a machine whose wall clock is an hour behind continues
after the newest instant. If two processes draw the same time, put-if-absent on the requested file
decides, and the loser draws again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from timeline.instant import format_time, parse_time


def wall_clock_ms() -> int:
    """Milliseconds since 1970 by this machine's wall clock."""
    return time.time_ns() // 1_000_000


class InstantClock:
    """Draws instant times. Thread-safe."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._last_ms = 0
        self._lock = threading.Lock()

    def observe(self, instant_time: str) -> None:
        """Make every time drawn from now on later than this one."""
        with self._lock:
            self._last_ms = max(self._last_ms, parse_time(instant_time))

    @property
    def latest(self) -> str:
        """The latest time drawn or observed."""
        with self._lock:
            return format_time(self._last_ms)

    def next(self) -> str:
        """A time later than all drawn and observed times; the wall clock's time unless that is behind."""
        with self._lock:
            self._last_ms = max(self._last_ms + 1, self._now_ms())
            return format_time(self._last_ms)
