"""One instant with everything that storage says about it: the bodies of its states, and its epoch's decision.

For people and their tools: nothing that decides reads this. A body that cannot be read costs its own
part of the entry only, and the entry says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from timeline.body import BodyFormat
from timeline.decision import Decision, Outcome, read_decision
from timeline.epoch import MANIFEST, PLAN, Manifest, Part, Plan
from timeline.errors import FormatError, InvariantError, NotFoundError
from timeline.hudi import read_completed
from timeline.instant import Action, Instant, State, commit_inflight, commit_requested
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan
from timeline.store import ObjectStore, Retry, read_or_none

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One instant with everything that storage says about it.

    Attributes:
        instant: it.
        plan: a commit's plan.
        manifest: a commit's manifest.
        decision: what its epoch's decision says.
        completed: body of the completed instant, as Hudi's readers find it.
        rollback: a rollback's request.
        prepared_ms: when its manifest was put, by the store's clock; 0 where nothing tells.
        completed_ms: when its completed file was put, by the store's clock; 0 where nothing tells.
        problems: what could not be read of it, and why.
        is_archived: whether its writer has moved it out of the active timeline.
    """

    instant: Instant
    plan: Plan | None = None
    manifest: Manifest | None = None
    decision: Decision | None = None
    completed: Mapping[str, Any] | None = None
    rollback: RollbackPlan | None = None
    prepared_ms: int = 0
    completed_ms: int = 0
    problems: tuple[str, ...] = ()
    is_archived: bool = False

    @property
    def epoch(self) -> int | None:
        """The epoch that it belongs to."""
        if self.plan is not None:
            return self.plan.ref.epoch
        if self.rollback is not None and self.rollback.epoch >= 0:
            return self.rollback.epoch
        found = self.extra.get("tideline.epoch", "")
        return int(found) if found.isdecimal() else None

    @property
    def extra(self) -> Mapping[str, str]:
        """What the writer has put into the completed body for its own use."""
        return (self.completed or {}).get("extraMetadata") or {}

    @property
    def is_tideline(self) -> bool:
        """Whether Tideline has written it."""
        return any((self.plan, self.rollback, "tideline.epoch" in self.extra, "tideline.reason" in self.extra))

    @property
    def parts(self) -> Sequence[Part]:
        """Each target's share of a commit."""
        return self.manifest.parts if self.manifest is not None else ()

    @property
    def outcome(self) -> Outcome | None:
        """What became, or will become, of this instant; None while that is open."""
        if self.instant.action is Action.ROLLBACK:
            return Outcome.ROLLBACK
        if self.decision is not None:
            return Outcome.COMMIT if self.decision.commits(self.instant.time) else Outcome.ROLLBACK
        return None if self.instant.is_pending else Outcome.COMMIT


def read_entry(
    store: ObjectStore, instant: Instant, retry: Retry, modified_ms: Mapping[str, int] | None = None
) -> Entry:
    """Everything that storage says about one instant: at most four objects are read.

    Args:
        store: the timeline's store.
        instant: which one.
        retry: bounds of retries.
        modified_ms: when each file of the timeline folder was last written, by name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    reading = _Reading(store, retry)
    completed = None if instant.is_pending else reading.completed(instant)
    found: dict[str, Any] = {}
    match instant.action:
        case Action.COMMIT:
            found = reading.commit(instant.time)
        case Action.ROLLBACK:
            request = Instant(instant.time, Action.ROLLBACK, State.REQUESTED)
            found = {"rollback": reading.body(request.path, ROLLBACK_PLAN)}
        case _:
            pass
    modified = modified_ms or {}
    entry = Entry(
        instant,
        completed=completed,
        prepared_ms=modified.get(commit_inflight(instant.time).file_name, 0) if found.get("manifest") else 0,
        completed_ms=0 if instant.is_pending else modified.get(instant.file_name, 0),
        **found,
    )
    decision = reading.decision(entry.epoch) if entry.epoch is not None else None
    return replace(entry, decision=decision, problems=tuple(reading.problems))


class _Reading:
    """Reads the bodies of one instant and collects what is wrong with them."""

    def __init__(self, store: ObjectStore, retry: Retry) -> None:
        self._store = store
        self._retry = retry
        self.problems: list[str] = []

    def commit(self, time: str) -> dict[str, Any]:
        return {
            "plan": self.body(commit_requested(time).path, PLAN),
            "manifest": self.body(commit_inflight(time).path, MANIFEST),
        }

    def body(self, path: str, kind: BodyFormat[T]) -> T | None:
        def read() -> T | None:
            body = read_or_none(self._store, path, self._retry)
            # Another writer's bodies of these names are Avro, or empty.
            return kind.load(path, body) if body and body.startswith(b"{") else None

        return self._tried(read)

    def completed(self, instant: Instant) -> Mapping[str, Any] | None:
        return self._tried(lambda: read_completed(self._store, instant, self._retry))

    def decision(self, epoch: int) -> Decision | None:
        return self._tried(lambda: read_decision(self._store, epoch, self._retry))

    def _tried(self, read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except (FormatError, InvariantError, NotFoundError) as error:
            self.problems.append(str(error))
            return None
