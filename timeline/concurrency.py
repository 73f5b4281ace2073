"""Small requests at the same time: waiting for storage one by one is most of what they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST_REQUESTS = 8
"""Requests at the same time: below the 10 connections that botocore keeps in its pool."""


def map_concurrently(action: Callable[[T], R], items: Sequence[T], most: int = MOST_REQUESTS) -> list[R]:
    """The action's results in the order of the items; a single item, or `most` = 1, takes no thread.

    Args:
        action: what is done with each; the first error, in order, passes through, and what has not begun is left.
        items: what it is done with.
        most: how many at the same time.
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
