"""What a rollback is for: the body of its request."""

from __future__ import annotations

from dataclasses import dataclass

from timeline.body import BodyFormat


@dataclass(frozen=True)
class RollbackPlan:
    """Body of ``<r>.rollback.requested``.

    Attributes:
        instant: the commit instant that goes.
        epoch: its epoch; -1 where it is no longer known (its plan went with an earlier rollback).
        completion_time: the rollback's completion time, pinned so that every process completes it alike.
        reason: why, for people.
        by: who asked for it, for people.
        token: tells this process's request from another's.
    """

    instant: str
    epoch: int
    completion_time: str
    reason: str
    by: str
    token: str


ROLLBACK_PLAN = BodyFormat("rollback plan", RollbackPlan)
