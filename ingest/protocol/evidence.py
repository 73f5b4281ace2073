"""The evidence of a pending commit instant, gathered from storage. Reads only.

::

    plan ─► decision ─┬─ open ───► manifest ─► is every target ready?           else Damaged
                      └─ commit ─► manifest ─► does a target lack its part, and
                                               what the part is made of?        lost: a transaction, gone: data files
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.protocol.job import JobContext
from ingest.protocol.missing_files import without_files
from ingest.protocol.names import under_current_names
from ingest.protocol.steps import read_manifest, read_plan
from sinks.base import Lookup
from timeline.decision import Decision, read_decision
from timeline.epoch import Manifest, Plan
from timeline.errors import StoreUnavailableError
from timeline.lease import LeaseState


@dataclass(frozen=True)
class Unknown:
    """The store gave no answer; conclude nothing."""

    why: str


@dataclass(frozen=True)
class Damaged:
    """The manifest exists, but data that it names is missing or damaged."""

    problems: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """Evidence of one pending commit instant, from storage.

    Attributes:
        instant: its time.
        plan: its plan; None if an earlier rollback has removed it.
        decision: the decision of its epoch, None while that is open.
        lease: lease state of the timeline's latest writer.
        manifest: its manifest, checked against the targets; None while there is none.
        lost: targets that have lost prepared and decided data, with the lost data, as far as it is visible.
        gone: by target that lacks the decided epoch, problems of the data files of its part.
    """

    instant: str
    plan: Plan | None
    decision: Decision | Unknown | None
    lease: LeaseState | Unknown
    manifest: Manifest | Damaged | Unknown | None
    lost: tuple[str, ...] = ()
    gone: Mapping[str, Sequence[str]] = field(default_factory=dict)


def gather(job: JobContext, instant: str, lease: LeaseState | Unknown, checked: Manifest | None = None) -> Evidence:
    """The evidence of a pending commit instant; reads only. A store that does not answer is evidence too.

    Args:
        job: the job.
        instant: the pending instant.
        lease: lease state of the timeline's latest writer.
        checked: a manifest whose data this process has just verified; the data is not checked again.
    """
    try:
        plan = read_plan(job, instant)
    except StoreUnavailableError as error:
        return Evidence(instant, None, Unknown(f"the plan of {instant} cannot be read: {error}"), lease, None)
    decision: Decision | Unknown | None = None
    try:
        # A manifest alone may be a late writer's, or its plan was deleted by hand: the decision tells.
        epoch = plan.ref.epoch if plan is not None else _epoch_of_manifest(job, instant)
        decision = None if epoch is None else read_decision(job.store, epoch, job.retry)
    except StoreUnavailableError as error:
        decision = Unknown(str(error))
    manifest = _check_manifest(job, instant, decision is not None, checked)
    is_commit = isinstance(decision, Decision) and decision.commits(instant)
    if not is_commit or not isinstance(manifest, Manifest):
        return Evidence(instant, plan, decision, lease, manifest)
    try:
        return Evidence(instant, plan, decision, lease, manifest, _lost(job, manifest), without_files(job, manifest))
    except StoreUnavailableError as error:
        return Evidence(instant, plan, decision, lease, Unknown(str(error)))


def _epoch_of_manifest(job: JobContext, instant: str) -> int | None:
    manifest = read_manifest(job, instant)
    return None if manifest is None else manifest.ref.epoch


def _check_manifest(
    job: JobContext, instant: str, is_decided: bool, checked: Manifest | None
) -> Manifest | Damaged | Unknown | None:
    try:
        found = read_manifest(job, instant)
        manifest = under_current_names(job, found) if found is not None else None
        if manifest is None or is_decided or manifest == checked:
            return manifest
        problems = [
            f"{part.target}: {problem}" for part in manifest.parts for problem in job.problems_of(part.target, part)
        ]
    except StoreUnavailableError as error:
        return Unknown(str(error))
    return Damaged(tuple(problems)) if problems else manifest


def _lost(job: JobContext, manifest: Manifest) -> tuple[str, ...]:
    """Targets without files that can no longer commit their prepared part; only the commit itself is sure of it."""
    lost: list[str] = []
    for part in manifest.parts:
        if part.rows and not part.files:
            sink = job.sink(part.target)
            with contextlib.suppress(StoreUnavailableError):
                if sink.lookup(part.epoch) is Lookup.NOT_COMMITTED:
                    lost += [f"{part.target}: {problem}" for problem in job.problems_of(part.target, part)]
    return tuple(lost)
