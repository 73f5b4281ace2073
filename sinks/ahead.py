"""What a commit will need, fetched while others are still waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """One call that runs in a thread until its result is wanted."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._running: Future[T] | None = None

    def start(self, call: Callable[[], T]) -> None:
        """Run a call; the result of an earlier one that nobody has taken is dropped."""
        self.settle()
        running: Future[T] = Future()

        def run() -> None:
            try:
                running.set_result(call())
            except BaseException as error:  # whatever it is, it is raised by `take`
                running.set_exception(error)

        self._running = running
        threading.Thread(target=run, name="tideline-ahead", daemon=True).start()

    def take(self, otherwise: Callable[[], T]) -> T:
        """The result of the call, or what it raised; each is had once. Where nothing was started: do it now."""
        running, self._running = self._running, None
        return otherwise() if running is None else running.result()

    def settle(self) -> None:
        """Return once nothing runs any more; what it brought, or raised, is dropped."""
        running, self._running = self._running, None
        if running is not None:
            running.exception()
