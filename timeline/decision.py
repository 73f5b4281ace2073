"""The decision: the one immutable object that fixes an epoch's outcome.

Commit and rollback compete for ``.hoodie/decisions/<epoch>.json``, which can be created once. The process
that creates it decides for all; every other process reads the decision and acts on it.
A decision carries all that the next plan needs, so planning reads decisions and no data.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from timeline.body import BodyFormat
from timeline.epoch import Position
from timeline.errors import InvariantError
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

DECISIONS_FOLDER = ".hoodie/decisions"
"""Folder of the decisions, below the timeline's base path."""


class Outcome(enum.Enum):
    """Outcome of an epoch."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Decision:
    """The final outcome of one epoch.

    Attributes:
        epoch: the epoch decided.
        outcome: commit or rollback.
        instant: the instant that it commits or rolls back; any other instant of the epoch is rolled back.
        completion_time: the commit's completion time, pinned here so that every process completes it alike.
        generation: writer generation of the process that decided.
        by: that process, human-readable.
        reason: the reason, human-readable.
        token: distinguishes this process's body from another's.
        rows: rows committed (0 for a rollback).
        rejected: rows quarantined (0 for a rollback).
        positions: positions that the epoch changed; empty for a rollback.
        is_crash: for a rollback: whether the epoch's writer, or a process that worked for it, died during the epoch
            without reporting a cause, or failed with an unexpected error.
    """

    epoch: int
    outcome: Outcome
    instant: str
    completion_time: str
    generation: int
    by: str
    reason: str
    token: str
    rows: int = 0
    rejected: int = 0
    positions: Mapping[str, Position] = field(default_factory=dict)
    is_crash: bool = False

    def commits(self, instant: str) -> bool:
        """Whether this decision makes the given instant visible."""
        return self.outcome is Outcome.COMMIT and self.instant == instant


DECISION = BodyFormat("decision", Decision)


def decision_path(epoch: int) -> str:
    """Path of an epoch's decision, below the timeline's base path."""
    return f"{DECISIONS_FOLDER}/{epoch:020d}.json"


def read_decision(store: ObjectStore, epoch: int, retry: Retry) -> Decision | None:
    """The epoch's decision, or None while the epoch is open.

    Args:
        store: the timeline's store.
        epoch: number of the epoch.
        retry: retry bounds.

    Raises:
        StoreUnavailableError: unknown; conclude nothing.
        InvariantError: the object belongs to another epoch.
    """
    path = decision_path(epoch)
    body = read_or_none(store, path, retry)
    return None if body is None else _checked(epoch, DECISION.load(path, body))


def decide(store: ObjectStore, wanted: Decision, retry: Retry) -> Decision:
    """Create the decision; returns the epoch's decision, which is `wanted` only if no other process was faster.

    Args:
        store: the timeline's store.
        wanted: the decision to create.
        retry: retry bounds.

    Raises:
        StoreUnavailableError: the epoch may be decided either way now; read the decision before anything else.
    """
    path = decision_path(wanted.epoch)
    return _checked(wanted.epoch, DECISION.load(path, create_or_read(store, path, DECISION.dump(wanted), retry)))


def _checked(epoch: int, decision: Decision) -> Decision:
    if decision.epoch != epoch:
        raise InvariantError(f"{decision_path(epoch)} holds the decision of epoch {decision.epoch}")
    return decision
