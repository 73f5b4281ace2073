"""The body of a rollback's request."""

from __future__ import annotations

from dataclasses import dataclass

from timeline.body import BodyFormat


@dataclass(frozen=True)
class RollbackPlan:
    """Body of ``<r>.rollback.requested``.

    Attributes:
        instant: the commit instant to roll back.
        epoch: its epoch; -1 if no longer known (an earlier rollback deleted its plan).
        completion_time: the rollback's completion time, pinned so that every process completes it alike.
        reason: the reason, human-readable.
        by: the process that requested the rollback, human-readable.
        token: distinguishes this process's request from another's.
    """

    instant: str
    epoch: int
    completion_time: str
    reason: str
    by: str
    token: str


ROLLBACK_PLAN = BodyFormat("rollback plan", RollbackPlan)
