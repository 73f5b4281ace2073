"""Instant times never repeat and never go back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from timeline.clock import InstantClock, wall_clock_ms
from timeline.errors import FormatError
from timeline.instant import format_time, parse_time

NOON = 1_709_208_000_000


def test_a_clock_that_stands_still_still_gives_new_times() -> None:
    clock = InstantClock(lambda: NOON)
    assert [parse_time(clock.next()) - NOON for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_wall_clock_that_goes_back_does_not_take_the_times_with_it() -> None:
    wall = iter([NOON, NOON - 3_600_000, NOON - 1, NOON + 10])
    clock = InstantClock(lambda: next(wall))
    assert [parse_time(clock.next()) - NOON for _ in range(4)] == [0, 1, 2, 10]


def test_times_continue_after_an_instant_observed_from_the_future() -> None:
    clock = InstantClock(lambda: NOON)
    clock.observe(format_time(NOON + 3_600_000))
    assert parse_time(clock.next()) == NOON + 3_600_001
    clock.observe(format_time(NOON))
    assert parse_time(clock.next()) == NOON + 3_600_002


def test_the_latest_time_is_the_one_drawn_or_observed_last() -> None:
    clock = InstantClock(lambda: NOON)
    clock.observe(format_time(NOON - 5))
    assert clock.latest == format_time(NOON - 5)
    assert clock.next() == clock.latest == format_time(NOON)


def test_what_is_no_time_cannot_be_observed() -> None:
    with pytest.raises(FormatError):
        InstantClock().observe("tomorrow")


def test_threads_never_draw_the_same_time() -> None:
    jumps: Iterator[int] = itertools.cycle([0, -50, 3, 1])
    clock = InstantClock(lambda: NOON + next(jumps))
    start = threading.Barrier(8)
    drawn: list[list[str]] = [[] for _ in range(8)]

    def draw(mine: list[str]) -> None:
        start.wait()
        mine.extend(clock.next() for _ in range(500))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(set(mine)) for mine in drawn)
    assert len({time for mine in drawn for time in mine}) == 8 * 500


def test_two_machines_an_hour_apart_take_turns_without_going_back() -> None:
    ahead, behind = InstantClock(lambda: NOON + 3_600_000), InstantClock(lambda: NOON)
    times: list[str] = []
    for clock in (behind, ahead, behind, ahead, behind):
        if times:
            clock.observe(times[-1])
        times.append(clock.next())
    assert times == sorted(set(times))


def test_the_default_is_this_machines_wall_clock() -> None:
    before = wall_clock_ms()
    assert before <= parse_time(InstantClock().next()) <= wall_clock_ms()
