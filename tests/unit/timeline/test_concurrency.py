from __future__ import annotations

import threading
import time

import pytest

from timeline.concurrency import map_concurrently

PATIENCE_S = 20.0


@pytest.mark.parametrize("most", [1, 2, 5, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 20])
def test_results_come_in_the_order_of_the_items(count: int, most: int) -> None:
    assert map_concurrently(lambda number: number * number, range(count), most) == [n * n for n in range(count)]


@pytest.mark.parametrize("most", [2, 3])
def test_so_many_run_at_the_same_time_and_never_more(most: int) -> None:
    met, lock, running, highest = threading.Barrier(most), threading.Lock(), 0, 0

    def action(number: int) -> None:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        met.wait(PATIENCE_S)
        with lock:
            running -= 1

    map_concurrently(action, range(4 * most), most)
    assert highest == most


def test_the_first_error_in_order_passes_through_once_what_runs_has_ended_and_the_rest_is_left() -> None:
    begun: list[int] = []
    ended: list[int] = []
    second_has_failed = threading.Event()

    def action(number: int) -> None:
        begun.append(number)
        if number == 0:
            assert second_has_failed.wait(PATIENCE_S)
            raise ValueError("the first")
        if number == 1:
            second_has_failed.set()
            raise ValueError("the second")
        time.sleep(0.001)
        ended.append(number)

    with pytest.raises(ValueError, match="the first"):
        map_concurrently(action, range(2000), 2)
    assert sorted(begun) == [0, 1, *sorted(ended)]
    assert len(begun) < 2000
