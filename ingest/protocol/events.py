"""What happens in a run, told to those that watch it: the progress line, metrics, callbacks, the exit message.

::

    loop, epoch, recovery ── notify(event) ──► EventBus ──► listener, listener, …

Whoever watches is never waited for and cannot fail the run: what a listener raises ends there.
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
        decision: what was decided (to commit).
        manifest: what was written.
        ranges: what was read; none where the plan is gone.
    """

    decision: Decision
    manifest: Manifest
    ranges: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True)
class Leased:
    """This process is the timeline's writer; the lease shows at any time whether it still is."""

    lease: WriterLease


@dataclass(frozen=True)
class Renewed:
    """The lease was to be renewed: it was, or the store did not answer."""

    is_done: bool


@dataclass(frozen=True)
class PendingFound:
    """Commit instants that an earlier process has left pending."""

    instants: tuple[str, ...]


@dataclass(frozen=True)
class Resumed:
    """What was pending is settled: ingestion goes on from here."""

    chain: Chain


@dataclass(frozen=True)
class PhaseBegan:
    """A phase begins. Who wants to know how long it takes has a clock; the protocol has none."""

    phase: Phase


@dataclass(frozen=True)
class PhaseDone:
    """A phase is over, well or not."""

    phase: Phase


@dataclass(frozen=True)
class Planned:
    """An epoch begins.

    Attributes:
        epoch: its number.
        plan: what it takes of what the source has.
        positions: where the shards stand before it.
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
        result: what is in it.
        is_recovered: whether recovery has brought it to its end.
    """

    result: EpochResult
    is_recovered: bool = False


@dataclass(frozen=True)
class RolledBack:
    """An instant was rolled back; the epoch is -1 where it is no longer known."""

    ref: EpochRef
    reason: str


@dataclass(frozen=True)
class LeftPending:
    """An instant could not be settled now; the next start, or a recovery, does that."""

    ref: EpochRef
    is_decided: bool


@dataclass(frozen=True)
class Fenced:
    """Another process decided this one's epoch, or took over."""

    error: FencedError


@dataclass(frozen=True)
class Idle:
    """Nothing new is there; the loop looks again after this time."""

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
    """The `Listener` of those that nobody watches."""


@contextmanager
def within(phase: Phase, notify: Listener) -> Iterator[None]:
    """Notify of a phase's begin and end, however it ends."""
    notify(PhaseBegan(phase))
    try:
        yield
    finally:
        notify(PhaseDone(phase))


class EventBus:
    """Tells several listeners; a `Listener` itself."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        """Tell these, in this order."""
        self._listeners = tuple(listeners)
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Tell all; one that fails is named once, and told of what comes all the same."""
        for number, listener in enumerate(self._listeners):
            try:
                listener(event)
            except Exception:  # whatever it is: an epoch does not depend on who watches
                if number not in self._failed:
                    self._failed.add(number)
                    log.warning("%r failed at %s; ingestion goes on", listener, type(event).__name__, exc_info=True)
