"""Events of a run for its listeners: the progress line, metrics, callbacks, the exit message.

::

    loop, epoch, recovery ── notify(event) ──► EventBus ──► listener, listener, …

A run never waits for its listeners, and they cannot fail it: an error of a listener is logged and dropped.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from ingest.sources.base import SourcePlan
from sinks.base import DeletedFiles
from timeline.chain import Chain
from timeline.decision import Decision
from timeline.epoch import EpochRef, Manifest, OffsetRange, Plan, Position
from timeline.errors import FencedError
from timeline.lease import WriterLease

log = logging.getLogger(__name__)


class Phase(enum.Enum):
    """A part of a run that takes time; the members of an epoch in their order."""

    RECOVER = "recover"
    PLAN = "plan"
    OPEN = "open"
    WRITE = "write"
    PREPARE = "prepare"
    DECIDE = "decide"
    APPLY = "apply"


@dataclass(frozen=True)
class EpochResult:
    """A completed epoch.

    Attributes:
        decision: the decision to commit.
        manifest: the epoch's manifest.
        ranges: offset ranges read; empty if the plan was deleted.
    """

    decision: Decision
    manifest: Manifest
    ranges: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True)
class Leased:
    """The process has become the timeline's writer; `lease` tells whether it still is."""

    lease: WriterLease


@dataclass(frozen=True)
class Renewed:
    """A renewal of the lease has ended: the lease is renewed, or the store did not answer."""

    is_done: bool


@dataclass(frozen=True)
class PendingFound:
    """Commit instants that an earlier process has left pending."""

    instants: tuple[str, ...]


@dataclass(frozen=True)
class Resumed:
    """Pending instants are settled: ingestion continues from `chain`."""

    chain: Chain


@dataclass(frozen=True)
class PhaseBegan:
    """A phase begins. Listeners measure its duration with their own clock; the protocol has none."""

    phase: Phase


@dataclass(frozen=True)
class PhaseDone:
    """A phase has ended, successfully or not."""

    phase: Phase


@dataclass(frozen=True)
class Planned:
    """An epoch begins.

    Attributes:
        epoch: its number.
        plan: the source's records that the epoch takes.
        positions: positions of the shards before the epoch.
    """

    epoch: int
    plan: SourcePlan
    positions: Mapping[str, Position]


@dataclass(frozen=True)
class EpochOpened:
    """An epoch is on the timeline."""

    plan: Plan


@dataclass(frozen=True)
class Completed:
    """An epoch is in every target.

    Attributes:
        result: the epoch's result.
        is_recovered: whether recovery has completed it.
    """

    result: EpochResult
    is_recovered: bool = False


@dataclass(frozen=True)
class RolledBack:
    """An instant was rolled back; the epoch is -1 if it is no longer known."""

    ref: EpochRef
    reason: str


@dataclass(frozen=True)
class LeftPending:
    """An instant could not be settled now; the next start, or a recovery, settles it.

    Attributes:
        ref: the instant and its epoch.
        is_decided: whether the decision is to commit.
        is_applied: whether every target has the epoch.
    """

    ref: EpochRef
    is_decided: bool
    is_applied: bool = False


@dataclass(frozen=True)
class Fenced:
    """Another process decided this process's epoch, or took over."""

    error: FencedError


@dataclass(frozen=True)
class Idle:
    """The source has no new records; the loop checks it again after `wait_s`."""

    wait_s: float


Event: TypeAlias = (
    Leased
    | Renewed
    | PendingFound
    | Resumed
    | PhaseBegan
    | PhaseDone
    | Planned
    | EpochOpened
    | Completed
    | RolledBack
    | LeftPending
    | DeletedFiles
    | Fenced
    | Idle
)
Listener: TypeAlias = Callable[[Event], None]


def no_listener(event: Event) -> None:
    """The `Listener` that ignores events."""


@contextmanager
def within(phase: Phase, notify: Listener) -> Iterator[None]:
    """Notify of a phase's begin and end, however it ends."""
    notify(PhaseBegan(phase))
    try:
        yield
    finally:
        notify(PhaseDone(phase))


class EventBus:
    """Notifies several listeners; a `Listener` itself."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        """Notify these listeners, in this order."""
        self._listeners = tuple(listeners)
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Notify all listeners; a failing listener is logged once, and still gets later events."""
        for number, listener in enumerate(self._listeners):
            try:
                listener(event)
            except Exception:  # any error: an epoch does not depend on its listeners
                if number not in self._failed:
                    self._failed.add(number)
                    log.warning("%r failed at %s; ingestion goes on", listener, type(event).__name__, exc_info=True)
