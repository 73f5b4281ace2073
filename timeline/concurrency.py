"""Concurrent small requests, which spend most of their time waiting for storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST_REQUESTS = 8
"""Concurrent requests: fewer than the 10 connections in botocore's pool."""


def map_concurrently(action: Callable[[T], R], items: Sequence[T], most: int = MOST_REQUESTS) -> list[R]:
    """The action's results in the order of the items; a single item, or `most` = 1, starts no thread.

    Args:
        action: called with each item; the first error, in item order, passes through and cancels calls not started.
        items: arguments of the calls.
        most: most concurrent calls.
    """
    if len(items) < 2 or most < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(min(most, len(items)), thread_name_prefix="tideline-requests") as pool:
        running = [pool.submit(action, item) for item in items]
        try:
            return [each.result() for each in running]
        finally:
            for each in running:
                each.cancel()
