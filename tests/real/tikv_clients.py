"""tikv-client, through which others see what Tideline wrote, on a machine that may stand still."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import tikv_client

TResult = TypeVar("TResult")

_TRIES = 8
_BETWEEN_S = 0.5


def patiently(call: Callable[[], TResult]) -> TResult:
    """What a call of tikv-client gives. It waits two seconds for PD, no longer on a slow machine, and is asked again.

    Raises:
        Exception: a lock is in the way, at once; or what the last try raised.
    """
    for _ in range(_TRIES - 1):
        try:
            return call()
        except Exception as error:  # all that it raises, some of it a panic
            if "lock" in str(error):
                raise
        time.sleep(_BETWEEN_S)
    return call()


def connected(pd: Sequence[str]) -> tikv_client.TransactionClient:
    """A client that PD has answered."""

    def connect() -> tikv_client.TransactionClient:
        client = tikv_client.TransactionClient.connect(list(pd))
        client.current_timestamp()
        return client

    return patiently(connect)
