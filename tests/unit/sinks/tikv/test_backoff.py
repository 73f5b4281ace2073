"""Back-off is bounded, grows for each retry reason, and ends in an error message."""

from __future__ import annotations

import pytest

from sinks.tikv.backoff import Backoff, RetryReason
from timeline.errors import StoreUnavailableError


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def backoff(self, limit_s: float) -> Backoff:
        return Backoff(limit_s, sleep=self.sleep, monotonic=lambda: self.now_s)


@pytest.mark.parametrize("reason", RetryReason)
def test_waits_double_up_to_the_longest_with_jitter(reason: RetryReason) -> None:
    clock = Clock()
    backoff = clock.backoff(1000.0)
    for _ in range(15):
        backoff.wait(reason, "why")
    shortest, longest = reason.value
    for number, slept in enumerate(clock.slept):
        whole = min(longest, shortest * 2**number)
        assert whole / 2 <= slept <= whole


def test_each_reason_has_its_own_growth() -> None:
    clock = Clock()
    backoff = clock.backoff(1000.0)
    for _ in range(10):
        backoff.wait(RetryReason.BUSY, "why")
    backoff.wait(RetryReason.REGION_MOVED, "why")
    assert clock.slept[-1] <= RetryReason.REGION_MOVED.value[0]


def test_server_is_given_the_time_that_it_asks_for() -> None:
    clock = Clock()
    clock.backoff(60.0).wait(RetryReason.BUSY, "why", at_least_s=7.0)
    assert clock.slept == [7.0]


def test_backoff_never_waits_beyond_its_limit_and_names_the_reason() -> None:
    clock = Clock()
    backoff = clock.backoff(5.0)
    with pytest.raises(StoreUnavailableError, match=r"within 5 s: the store is on fire"):
        for _ in range(1000):
            backoff.wait(RetryReason.UNREACHABLE, "the store is on fire")
    assert clock.now_s <= 5.0


def test_server_that_asks_for_too_much_time_ends_the_backoff_at_once() -> None:
    clock = Clock()
    with pytest.raises(StoreUnavailableError):
        clock.backoff(5.0).wait(RetryReason.BUSY, "why", at_least_s=6.0)
    assert clock.slept == []


def test_success_starts_the_backoff_anew() -> None:
    clock = Clock()
    backoff = clock.backoff(2.0)
    for _ in range(50):
        backoff.wait(RetryReason.BUSY, "why", at_least_s=0.9)
        backoff.renew()
    assert backoff.left_s == 2.0
    backoff.wait(RetryReason.BUSY, "why")
    assert clock.slept[-1] <= RetryReason.BUSY.value[0]
