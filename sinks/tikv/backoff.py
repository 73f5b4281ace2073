"""Back-off between retries of a request, by reason, and the deadline of the retries."""

from __future__ import annotations

import enum
import random
import time
from collections import Counter
from collections.abc import Callable

from timeline.errors import StoreUnavailableError


class RetryReason(enum.Enum):
    """Why a request is retried: shortest and longest wait in seconds, as in TiKV's own clients."""

    UNREACHABLE = (0.1, 3.0)
    """No answer from a server, or the connection broke."""

    REGION_MOVED = (0.002, 0.5)
    """The region was split, merged or moved; the next attempt asks PD."""

    NO_LEADER = (0.02, 1.0)
    """The region has no leader now."""

    BUSY = (0.2, 3.0)
    """The store is overloaded."""

    LOCKED = (0.02, 1.0)
    """Another transaction, which may be alive, has locked a key."""


class Backoff:
    """Back-off of one operation: bounded by a deadline, exponential for each reason, with jitter."""

    def __init__(
        self,
        limit_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock.

        Args:
            limit_s: seconds without success until the last failure is raised.
            sleep: waits for a number of seconds.
            monotonic: a clock in seconds.
        """
        self._limit_s = limit_s
        self._sleep = sleep
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._times: Counter[RetryReason] = Counter()

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._began_s + self._limit_s - self._monotonic())

    def wait(self, reason: RetryReason, why: str, *, at_least_s: float = 0.0) -> None:
        """Wait before the next attempt.

        Args:
            reason: why the request is retried.
            why: a text for the error that ends the retries.
            at_least_s: shortest wait that the server asks for.

        Raises:
            StoreUnavailableError: the wait would end after the deadline.
        """
        shortest, longest = reason.value
        pause = min(longest, shortest * 2.0 ** self._times[reason])
        self._times[reason] += 1
        pause = max(at_least_s, random.uniform(pause / 2, pause))
        if pause > self.left_s:
            raise StoreUnavailableError(f"TiKV did not do as asked within {self._limit_s:g} s: {why}")
        self._sleep(pause)

    def renew(self) -> None:
        """Restart the deadline and the waits after progress."""
        self._began_s = self._monotonic()
        self._times.clear()
