"""Callbacks after each completed epoch: an HTTP POST or a command. They never delay or fail the job.

::

    Completed ─► Call ─► queue of each callback ─► its thread ── deliver ─┬ done
                           full: given up                                 ├ failed: again, after a growing wait
                                                                          └ refused, or too often: given up

Delivery is at least once while the process lives; a killed process loses undelivered calls, and only the
timeline has those epochs. Each call carries job, epoch and instant as an idempotency key.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from ingest.config.models import CallbackConfig
from ingest.listeners.webhook import CallbackTransport, CommandTransport, NotDeliveredError, UrlTransport
from ingest.protocol.counts import rows_read
from ingest.protocol.events import Completed, Event, Phase, PhaseBegan
from timeline.clock import wall_clock_ms
from timeline.epoch import Json
from timeline.instant import parse_time
from timeline.units import count, iso_utc

log = logging.getLogger(__name__)

MOST_WAITING = 100
"""Calls of one callback that may wait; further ones are given up."""

MOST_OFFSETS = 1000
"""Most shards whose offsets a call lists."""

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_END_GRACE_S = 2.0


@dataclass(frozen=True)
class Call:
    """One call about an epoch.

    Attributes:
        epoch: the epoch.
        instant: its instant.
        key: the idempotency key, the same for every call about this epoch.
        body: a JSON object.
        environment: environment variables of a command: ids and counts.
    """

    epoch: int
    instant: str
    key: str
    body: bytes = field(repr=False)
    environment: dict[str, str] = field(repr=False)


class CallCounter(Protocol):
    """Counts calls by result."""

    def called(self, callback: str, *, is_delivered: bool | None) -> None:
        """Count a call: delivered, given up, or (None) retried."""

    def expect_calls(self, callback: str) -> None:
        """Announce a callback before its first call."""


def call_of(job: str, completed: Completed, now_ms: int, elapsed_s: float | None) -> Call:
    """The call about an epoch.

    Args:
        job: the job's name.
        completed: the event of its completion.
        now_ms: when it was completed, milliseconds since 1970.
        elapsed_s: since it was opened; None where recovery completed it.
    """
    result = completed.result
    epoch, instant = result.decision.epoch, result.decision.instant
    key = f"{job}/{epoch}/{instant}"
    told = _told(job, key, completed, now_ms, elapsed_s)
    environment = {
        "TIDELINE_JOB": job,
        "TIDELINE_EPOCH": str(epoch),
        "TIDELINE_INSTANT": instant,
        "TIDELINE_IDEMPOTENCY_KEY": key,
        "TIDELINE_ROWS": str(result.manifest.rows),
        "TIDELINE_REJECTED": str(result.manifest.rejected),
    }
    return Call(epoch, instant, key, json.dumps(told, ensure_ascii=False).encode(), environment)


def _told(job: str, key: str, completed: Completed, now_ms: int, elapsed_s: float | None) -> dict[str, Json]:
    result = completed.result
    manifest, decision = result.manifest, result.decision
    targets: dict[str, Json] = {
        part.target: {
            "rows": part.rows,
            "dropped": part.dropped,
            "rejected": part.rejected,
            "files": len(part.files),
            "bytes": part.bytes,
        }
        for part in manifest.parts
    }
    offsets: dict[str, Json] = {
        each.shard: {"from": each.start, "until": each.until} for each in result.ranges[:MOST_OFFSETS]
    }
    return {
        "job": job,
        "epoch": decision.epoch,
        "instant": decision.instant,
        "idempotency_key": key,
        "recovered": completed.is_recovered,
        "read": rows_read(manifest),
        "rows": manifest.rows,
        "rejected": manifest.rejected,
        "files": sum(len(part.files) for part in manifest.parts),
        "bytes": sum(part.bytes for part in manifest.parts),
        "targets": targets,
        "offsets": offsets,
        "offsets_left_out": len(result.ranges) - len(offsets),
        "times": {
            "requested": _iso(parse_time(decision.instant)),
            "decided": _iso(parse_time(decision.completion_time)),
            "completed": _iso(now_ms),
        },
        "seconds": None if elapsed_s is None else round(elapsed_s, 3),
    }


def _iso(epoch_ms: int) -> str:
    return iso_utc(datetime.fromtimestamp(epoch_ms / 1000, UTC))


class Deliveries:
    """One callback: a bounded queue of calls, and a thread that delivers them in order."""

    def __init__(
        self,
        name: str,
        transport: CallbackTransport,
        *,
        retries: int,
        counter: CallCounter | None = None,
        first_wait_s: float = _FIRST_WAIT_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """Start no thread before the first call.

        Args:
            name: the callback's name in logs and metrics.
            transport: delivers a call.
            retries: most retries of a failed call.
            counter: counts the result of each call.
            first_wait_s: back-off before the first retry; it doubles, up to 30 s, with a jitter of ±50 %.
            most_waiting: calls that may wait.
        """
        self._name = name
        self._transport = transport
        self._retries = retries
        self._counter = counter
        self._first_wait_s = first_wait_s
        self._waiting: queue.Queue[Call | None] = queue.Queue(most_waiting + 1)
        self._most_waiting = most_waiting
        self._cut = threading.Event()
        self._thread: threading.Thread | None = None
        if counter is not None:
            counter.expect_calls(name)

    def add(self, call: Call) -> None:
        """Queue a call; returns at once. With a full queue the call is given up."""
        if self._waiting.qsize() >= self._most_waiting:
            self._give_up(call, f"{count(self._most_waiting, 'call')} waiting already")
            return
        self._waiting.put_nowait(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tideline-on-commit", daemon=True)
            self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a call is being delivered or waits."""
        return self._waiting.unfinished_tasks > 0

    def end(self, deadline: float) -> None:
        """Deliver waiting calls until `deadline` (monotonic clock, seconds); the rest is given up."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._cut.set()
            self._transport.cut()
            self._thread.join(_END_GRACE_S)

    def _run(self) -> None:
        left: list[Call] = []
        while (call := self._next()) is not None:
            if self._cut.is_set():
                left.append(call)
            else:
                self._deliver(call)
            self._waiting.task_done()
        if left:
            epochs = f"{left[0].epoch} to {left[-1].epoch}" if len(left) > 1 else str(left[0].epoch)
            log.warning("%s was not told of epoch %s: the job ended before", self._name, epochs)
            for _ in left:
                self._count(is_delivered=False)

    def _next(self) -> Call | None:
        if not self._cut.is_set():
            return self._waiting.get()
        with contextlib.suppress(queue.Empty):
            return self._waiting.get_nowait()
        return None

    def _deliver(self, call: Call) -> None:
        for attempt in range(self._retries + 1):
            try:
                self._transport.deliver(call.key, call.body, call.environment)
            except NotDeliveredError as error:
                failed = error
            except Exception as error:
                # Any error: this thread still has later calls to deliver. The error's text may hold a secret.
                failed = NotDeliveredError(f"unforeseen {type(error).__name__}")
            else:
                self._count(is_delivered=True)
                log.debug("%s was told of epoch %d", self._name, call.epoch)
                return
            if failed.is_final or attempt == self._retries or self._cut.is_set():
                tries = f" ({attempt + 1} tries)" if attempt else ""
                self._give_up(call, f"{failed}{tries}")
                return
            self._count(is_delivered=None)
            wait_s = min(_LONGEST_WAIT_S, self._first_wait_s * 2**attempt) * random.uniform(0.5, 1.5)
            log.debug("%s: epoch %d: %s; again in %.1f s", self._name, call.epoch, failed, wait_s)
            if self._cut.wait(wait_s):
                self._give_up(call, f"{failed}, and the job ended before another try")
                return

    def _give_up(self, call: Call, reason: str) -> None:
        self._count(is_delivered=False)
        log.warning(
            "%s was not told of epoch %d (instant %s): %s. The epoch is committed all the same",
            self._name,
            call.epoch,
            call.instant,
            reason,
            extra={"epoch": call.epoch, "instant": call.instant},
        )

    def _count(self, *, is_delivered: bool | None) -> None:
        if self._counter is not None:
            self._counter.called(self._name, is_delivered=is_delivered)


class CommitCallbacks:
    """All callbacks of a job; a `Listener` that queues a call to each of them per completed epoch."""

    def __init__(
        self,
        job: str,
        deliveries: Sequence[Deliveries],
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make no call yet."""
        self._job = job
        self._monotonic = monotonic
        self._began_s = 0.0
        self._now_ms = now_ms
        self._deliveries = tuple(deliveries)

    def __call__(self, event: Event) -> None:
        """See `ingest.protocol.events.Listener`."""
        if isinstance(event, PhaseBegan) and event.phase is Phase.OPEN:
            self._began_s = self._monotonic()
        if isinstance(event, Completed) and self._deliveries:
            elapsed_s = None if event.is_recovered else self._monotonic() - self._began_s
            call = call_of(self._job, event, self._now_ms(), elapsed_s)
            for each in self._deliveries:
                each.add(call)

    def end(self, wait_s: float) -> None:
        """Wait at most `wait_s` for undelivered calls."""
        deadline = time.monotonic() + wait_s
        waiting = sum(each.is_busy for each in self._deliveries)
        if waiting:
            log.info(
                "on_commit: not everything is told by %s yet; waiting up to %g s", count(waiting, "callback"), wait_s
            )
        for each in self._deliveries:
            each.end(deadline)


@contextmanager
def delivering(
    job: str, callbacks: Sequence[CallbackConfig], counter: CallCounter | None = None
) -> Iterator[CommitCallbacks]:
    """The callbacks of a job; at the end, waiting calls are delivered within the longest ``drain``.

    Args:
        job: the job's name.
        callbacks: the job file's blocks.
        counter: counts the result of each call.

    Raises:
        ConfigError: a command's program does not exist, or may not be run.
    """
    deliveries = [
        Deliveries(f"on_commit[{number}] {each.place}", transport_of(each), retries=each.retries, counter=counter)
        for number, each in enumerate(callbacks)
    ]
    calls = CommitCallbacks(job, deliveries)
    try:
        yield calls
    finally:
        calls.end(max((each.drain for each in callbacks), default=0.0))


def transport_of(config: CallbackConfig) -> CallbackTransport:
    """Transport for the calls of a job file's block.

    Raises:
        ConfigError: its command's program does not exist, or may not be run.
    """
    if config.url is not None:
        return UrlTransport(config.url, config.headers, timeout_s=config.timeout)
    assert config.command is not None
    return CommandTransport.found(config.command, timeout_s=config.timeout)
