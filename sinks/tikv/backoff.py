"""How long to wait before a request is made again, by what went wrong, and when to give up."""

from __future__ import annotations

import enum
import random
import time
from collections import Counter
from collections.abc import Callable

from timeline.errors import StoreUnavailableError


class RetryReason(enum.Enum):
    """Why a request has to be made again: shortest and longest wait in seconds, as TiKV's own clients have them."""

    UNREACHABLE = (0.1, 3.0)
    """No answer from a server, or the connection broke."""

    REGION_MOVED = (0.002, 0.5)
    """The region was split, merged or moved; the next attempt asks PD."""

    NO_LEADER = (0.02, 1.0)
    """The region has no leader now."""

    BUSY = (0.2, 3.0)
    """The store has more to do than it can."""

    LOCKED = (0.02, 1.0)
    """Another transaction, which may be alive, holds a key."""


class Backoff:
    """The waits of one piece of work: bounded by time, growing for each reason, with jitter."""

    def __init__(
        self,
        limit_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock.

        Args:
            limit_s: after this time without success the last failure is raised.
            sleep: waits.
            monotonic: measures.
        """
        self._limit_s = limit_s
        self._sleep = sleep
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._times: Counter[RetryReason] = Counter()

    @property
    def left_s(self) -> float:
        """Seconds until it gives up."""
        return max(0.0, self._began_s + self._limit_s - self._monotonic())

    def wait(self, reason: RetryReason, why: str, *, at_least_s: float = 0.0) -> None:
        """Wait before the next attempt.

        Args:
            reason: what went wrong.
            why: in words, for the error that ends the attempts.
            at_least_s: what the server asked for.

        Raises:
            StoreUnavailableError: there is no time left.
        """
        shortest, longest = reason.value
        pause = min(longest, shortest * 2.0 ** self._times[reason])
        self._times[reason] += 1
        pause = max(at_least_s, random.uniform(pause / 2, pause))
        if pause > self.left_s:
            raise StoreUnavailableError(f"TiKV did not do as asked within {self._limit_s:g} s: {why}")
        self._sleep(pause)

    def renew(self) -> None:
        """Something was achieved: the time begins again."""
        self._began_s = self._monotonic()
        self._times.clear()
