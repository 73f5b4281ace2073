"""One instant with all that is stored about it: the bodies of its states, and its epoch's decision.

For reports: the protocol never reads entries. An unreadable body leaves only its own field empty, with a
message in `Entry.problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from timeline.body import BodyFormat
from timeline.decision import Decision, Outcome, read_decision
from timeline.epoch import MANIFEST, PLAN, Manifest, Part, Plan
from timeline.errors import FormatError, InvariantError, NotFoundError
from timeline.hudi.archived import Archived
from timeline.hudi.bodies import parse_body
from timeline.instant import Action, Instant, State, TimelineLayout, commit_inflight
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan
from timeline.stores.base import ObjectStore, Retry, read_or_none

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One instant with all that is stored about it.

    Attributes:
        instant: the instant.
        plan: a commit's plan.
        manifest: a commit's manifest.
        decision: its epoch's decision.
        completed: body of the completed instant, under Hudi's names.
        request: another writer's plan, the body of the requested instant, under Hudi's names.
        rollback: a rollback's request.
        prepared_ms: put time of its manifest, milliseconds since 1970 by the store's clock; 0 if unknown.
        completed_ms: put time of its completed file, milliseconds since 1970 by the store's clock; 0 if unknown.
        problems: read errors, one message each.
        is_archived: whether its writer has moved the instant out of the active timeline.
        is_claimed: whether a body has Tideline's format, readable or not.
    """

    instant: Instant
    plan: Plan | None = None
    manifest: Manifest | None = None
    decision: Decision | None = None
    completed: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    rollback: RollbackPlan | None = None
    prepared_ms: int = 0
    completed_ms: int = 0
    problems: tuple[str, ...] = ()
    is_archived: bool = False
    is_claimed: bool = False

    @property
    def epoch(self) -> int | None:
        """The instant's epoch; None if unknown."""
        if self.plan is not None:
            return self.plan.ref.epoch
        if self.rollback is not None and self.rollback.epoch >= 0:
            return self.rollback.epoch
        found = self.extra.get("tideline.epoch", "")
        return int(found) if found.isdecimal() else None

    @property
    def undone(self) -> list[str]:
        """Instant times that a rollback undid, by its request or another writer's body; none for other actions."""
        if self.rollback is not None:
            return [self.rollback.instant]
        planned = ((self.request or {}).get("instantToRollback") or {}).get("commitTime")
        return list((self.completed or {}).get("commitsRollback") or ([planned] if planned else []))

    @property
    def extra(self) -> Mapping[str, str]:
        """The writer's extra metadata in the completed body."""
        return (self.completed or {}).get("extraMetadata") or {}

    @property
    def is_tideline(self) -> bool:
        """Whether Tideline wrote the instant."""
        found = (self.plan, self.rollback, "tideline.epoch" in self.extra, "tideline.reason" in self.extra)
        return self.is_claimed or any(found)

    @property
    def parts(self) -> Sequence[Part]:
        """Each target's share of a commit."""
        return self.manifest.parts if self.manifest is not None else ()

    @property
    def outcome(self) -> Outcome | None:
        """The instant's outcome, reached or decided; None while the outcome is open."""
        if self.instant.action is Action.ROLLBACK:
            return Outcome.ROLLBACK
        if self.decision is not None:
            return Outcome.COMMIT if self.decision.commits(self.instant.time) else Outcome.ROLLBACK
        return None if self.instant.is_pending else Outcome.COMMIT


def read_entry(
    store: ObjectStore, instant: Instant, retry: Retry, modified_ms: Mapping[str, int] | None = None
) -> Entry:
    """All that is stored about one instant; reads at most four objects.

    Args:
        store: the timeline's store.
        instant: the instant to read.
        retry: retry bounds.
        modified_ms: modification time of each file of the timeline folder by name, in milliseconds since 1970.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    reading = _Reading(store, retry)
    completed = None if instant.is_pending else reading.completed(instant.path)
    found = _read_states(reading, instant)
    modified = modified_ms or {}
    entry = Entry(
        instant,
        completed=completed,
        prepared_ms=modified.get(commit_inflight(instant.time).file_name, 0) if found.get("manifest") else 0,
        completed_ms=0 if instant.is_pending else modified.get(instant.file_name, 0),
        is_claimed=reading.found_ours,
        **found,
    )
    if not entry.is_tideline and instant.completion_time is not None:
        # Hudi's instant times may be in its writer's time zone: the request and completion times must share one clock.
        entry = replace(entry, completed_ms=0)
    decision = reading.decision(entry.epoch) if entry.epoch is not None else None
    return replace(entry, decision=decision, problems=tuple(reading.problems))


def archived_entry(archived: Archived) -> Entry:
    """The entry of an archived instant; always another writer's, as Tideline archives none."""
    return Entry(
        archived.instant,
        completed=archived.completed,
        request=archived.request,
        completed_ms=archived.completed_ms,
        problems=archived.problems,
        is_archived=True,
    )


def _read_states(reading: _Reading, instant: Instant) -> dict[str, Any]:
    """Bodies of the instant's earlier states, as fields of its entry."""
    requested = replace(instant, state=State.REQUESTED, completion_time=None)
    match instant.action:
        case Action.COMMIT if instant.layout is TimelineLayout.TWO:
            return {
                "plan": reading.ours(requested.path, PLAN),
                "manifest": reading.ours(commit_inflight(instant.time).path, MANIFEST),
            }
        case Action.COMMIT | Action.DELTACOMMIT | Action.SAVEPOINT:
            # Hudi plans nothing for these: their requested files are empty or missing.
            return {}
        case Action.ROLLBACK if instant.layout is TimelineLayout.TWO:
            rollback = reading.ours(requested.path, ROLLBACK_PLAN)
            return {"rollback": rollback} if reading.found_ours else {"request": reading.foreign(requested.path)}
        case _:
            return {"request": reading.foreign(requested.path)}


class _Reading:
    """Reads the bodies of one instant and collects read errors."""

    def __init__(self, store: ObjectStore, retry: Retry) -> None:
        self._store = store
        self._retry = retry
        self._bodies: dict[str, bytes | None] = {}
        self.problems: list[str] = []
        self.found_ours = False

    def ours(self, path: str, kind: BodyFormat[T]) -> T | None:
        def read() -> T | None:
            body = self._read(path)
            # Another writer's files of these names are Avro, or empty.
            if not body or not body.startswith(b"{"):
                return None
            self.found_ours = True
            return kind.load(path, body)

        return self._tried(read)

    def completed(self, path: str) -> Mapping[str, Any] | None:
        def read() -> Mapping[str, Any]:
            where = f"{self._store.url}/{path}"
            fields = parse_body(where, self._retry.call(lambda: self._store.get(path)))
            if fields is None:
                raise FormatError(f"{where}: is empty, which tells that it was completed, and no more")
            return fields

        return self._tried(read)

    def foreign(self, path: str) -> Mapping[str, Any] | None:
        def read() -> Mapping[str, Any] | None:
            body = self._read(path)
            return None if body is None else parse_body(f"{self._store.url}/{path}", body)

        return self._tried(read)

    def decision(self, epoch: int) -> Decision | None:
        return self._tried(lambda: read_decision(self._store, epoch, self._retry))

    def _read(self, path: str) -> bytes | None:
        if path not in self._bodies:
            self._bodies[path] = read_or_none(self._store, path, self._retry)
        return self._bodies[path]

    def _tried(self, read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except (FormatError, InvariantError, NotFoundError) as error:
            self.problems.append(str(error))
            return None
