"""Completes an epoch that every target has, while the next epoch is planned.

::

    epoch e     … decide ─ apply ┐
                                 ├─ completed file ─ markers ─┐     a thread
    epoch e+1                    └─ plan ─────────────────────┴─ requested ─ inflight ─ write …

Completion and plan are independent: a plan depends on decisions alone. They join before the next instant is
opened, so that a crash leaves one pending instant, and listeners are notified of one epoch after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ingest.protocol.events import Completed, EpochResult, LeftPending, Listener
from timeline.errors import InvariantError, TidelineError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Running:
    """An epoch that is being completed."""

    result: EpochResult
    future: Future[None]


class Completions:
    """Completes epochs, one at a time; as a context, it waits for the last one at the end."""

    def __init__(self, notify: Listener, *, beside: bool, check: Callable[[], None] = lambda: None) -> None:
        """Nothing runs yet.

        Args:
            notify: called for each epoch, in the caller's thread, once the epoch is completed or left pending.
            beside: whether `start` returns before the epoch is completed.
            check: called after each epoch, beside the next plan, if `beside`; `wait` raises its errors.
        """
        self.notify = notify
        self._check = check
        self._checking: Future[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tideline-completion") if beside else None
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except TidelineError as unfinished:
            if error is None:
                raise
            log.info("left pending beside that: %s", unfinished)
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def start(self, complete: Callable[[], None], result: EpochResult) -> None:
        """Complete an epoch, while no other one is being completed.

        Raises:
            TidelineError: the epoch could not be completed, where this call waits for it.
            InvariantError: another epoch is being completed.
        """
        if self._running is not None:
            raise InvariantError(
                f"{result.manifest.ref}: {self._running.result.manifest.ref} is still being completed; report this"
            )
        if self._pool is None:
            future: Future[None] = Future()
            try:
                complete()
                future.set_result(None)
            except BaseException as error:  # `wait` raises any error
                future.set_exception(error)
            self._running = _Running(result, future)
            self.wait()
        else:
            self._running = _Running(result, self._pool.submit(complete))
            self._checking = self._pool.submit(self._check)

    def wait(self) -> None:
        """Return once the epoch is completed.

        Raises:
            TidelineError: the epoch could not be completed: it is decided and pending. Or the check failed.
        """
        running, self._running = self._running, None
        if running is None:
            return
        try:
            running.future.result()
        except BaseException:
            self.notify(LeftPending(running.result.manifest.ref, is_decided=True, is_applied=True))
            raise
        self.notify(Completed(running.result))
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.result()
