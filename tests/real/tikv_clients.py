"""tikv-client, the client of other programs, with retries for a machine that may stall."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import tikv_client

TResult = TypeVar("TResult")

_TRIES = 8
_BETWEEN_S = 0.5


def patiently(call: Callable[[], TResult]) -> TResult:
    """The result of a tikv-client call, with retries: its timeout for PD is two seconds, too short for a slow machine.

    Raises:
        Exception: a lock blocks the call (raised without a retry), or the last try failed.
    """
    for _ in range(_TRIES - 1):
        try:
            return call()
        except Exception as error:  # any error of tikv-client, panics included
            if "lock" in str(error):
                raise
        time.sleep(_BETWEEN_S)
    return call()


def connected(pd: Sequence[str]) -> tikv_client.TransactionClient:
    """A client that has had an answer from PD."""

    def connect() -> tikv_client.TransactionClient:
        client = tikv_client.TransactionClient.connect(list(pd))
        client.current_timestamp()
        return client

    return patiently(connect)
