"""Recovery: evidence from storage, a pure decision, thin actions.

::

    gather(instant) ─► Evidence ─► next_step ─► RecoveryStep ─► settle
         ▲                ▲                         │ a claim, won or lost
         └────────────────┴── what is decided now ──┘

`next_step` is the whole policy and touches nothing. Recovery needs no engine and no JVM; it may be killed anywhere and
run again, by any process, also concurrently.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingest.protocol.events import Completed, EpochResult, LeftPending, Listener, PendingFound, RolledBack, no_listener
from ingest.protocol.evidence import Damaged, Evidence, Unknown, gather
from ingest.protocol.job import JobContext
from ingest.protocol.late_files import clean_late_files as clean_late_files
from ingest.protocol.missing_files import missing_files_error, missing_files_text
from ingest.protocol.steps import (
    claim_commit,
    claim_rollback,
    drive_rollback,
    finish,
    read_plan,
    read_rollback,
    roll_back,
    rollback_is_completed,
)
from timeline.active import ActiveTimeline
from timeline.decision import Decision, Outcome
from timeline.epoch import EpochRef, Manifest, Plan
from timeline.errors import HaltError, ReplayNeededError
from timeline.instant import Action, Instant
from timeline.lease import LeaseState, WriterLease
from timeline.units import count

log = logging.getLogger(__name__)

FULL_LISTING_EVERY = 16
"""Every 16th writer lists the whole timeline, to find instants that a late writer left before the settled mark."""


@dataclass(frozen=True)
class Cause:
    """The reason why a writer gave up its epoch.

    Attributes:
        text: the reason for the record; "" if it is unknown.
        is_crash: see `Decision`.
    """

    text: str
    is_crash: bool


DIED = Cause("", is_crash=True)
"""The cause for an epoch that another process finds open: its writer died."""


@dataclass(frozen=True)
class Settler:
    """The process that settles a pending instant.

    Attributes:
        lease: lease state of the timeline's latest writer.
        generation: its own writer generation.
        cause: why the instant's writer gave it up, if that is known.
    """

    lease: LeaseState
    generation: int
    cause: Cause = DIED


class StepKind(enum.Enum):
    """Kinds of steps that recovery takes with an instant."""

    RECOMMIT = "recommit"
    REPLAY = "replay"
    ROLLBACK = "rollback"
    CLAIM_COMMIT = "claim commit"
    CLAIM_ROLLBACK = "claim rollback"
    REFUSE = "refuse"
    WAIT = "wait"
    HALT = "halt"


@dataclass(frozen=True)
class RecoveryStep:
    """A step and the reason for it."""

    kind: StepKind
    reason: str


def next_step(evidence: Evidence, *, force: bool = False) -> RecoveryStep:
    """The next step for a pending commit instant. Pure: the same evidence gives the same answer.

    Args:
        evidence: evidence of the instant.
        force: do not wait for a writer that may be alive; it will lose its claim.
    """
    match evidence.decision:
        case Unknown(why):
            return RecoveryStep(StepKind.HALT, f"the decision cannot be read: {why}")
        case Decision() as decision if decision.commits(evidence.instant) and isinstance(evidence.manifest, Unknown):
            return RecoveryStep(StepKind.HALT, f"the prepared state cannot be checked: {evidence.manifest.why}")
        case Decision() as decision if decision.commits(evidence.instant) and evidence.gone:
            return RecoveryStep(
                StepKind.REFUSE,
                f"decided: commit, by {decision.by}; data files are gone: {missing_files_text(evidence.gone)}",
            )
        case Decision() as decision if decision.commits(evidence.instant) and evidence.lost:
            return RecoveryStep(
                StepKind.REPLAY, f"decided: commit, by {decision.by}; to be written again: {'; '.join(evidence.lost)}"
            )
        case Decision() as decision if decision.commits(evidence.instant):
            return RecoveryStep(StepKind.RECOMMIT, f"decided: commit, by {decision.by} ({decision.reason})")
        case Decision(outcome=Outcome.COMMIT) as decision:
            return RecoveryStep(StepKind.ROLLBACK, f"its epoch was committed by instant {decision.instant}")
        case Decision() as decision:
            return RecoveryStep(StepKind.ROLLBACK, f"decided: rollback, by {decision.by} ({decision.reason})")
        case None:
            pass
    if evidence.plan is None and isinstance(evidence.manifest, Manifest | Damaged):
        return RecoveryStep(StepKind.HALT, "it is prepared and undecided, and its plan was deleted: restore it")
    if evidence.plan is None:
        return RecoveryStep(StepKind.ROLLBACK, "it was rolled back before; a writer that woke up late left it")
    return _undecided_step(evidence, force)


def _undecided_step(evidence: Evidence, force: bool) -> RecoveryStep:
    match evidence.lease:
        case Unknown(why) if not force:
            return RecoveryStep(StepKind.HALT, f"the writer's lease cannot be read: {why}")
        case LeaseState.LIVE if not force:
            return RecoveryStep(StepKind.WAIT, "its writer may be alive; wait for the lease, or use --force")
        case _:
            pass
    match evidence.manifest:
        case Unknown(why):
            return RecoveryStep(StepKind.HALT, f"the prepared state cannot be checked: {why}")
        case Damaged(problems):
            return RecoveryStep(StepKind.CLAIM_ROLLBACK, f"prepared, but damaged: {'; '.join(problems[:3])}")
        case None:
            return RecoveryStep(StepKind.CLAIM_ROLLBACK, "not prepared")
        case Manifest() as manifest:
            files = sum(len(part.files) for part in manifest.parts)
            return RecoveryStep(
                StepKind.CLAIM_COMMIT,
                f"prepared: every target is ready, {count(files, 'file')} {'is' if files == 1 else 'are'} there",
            )


@dataclass(frozen=True)
class SettledInstant:
    """Result of recovery for one pending instant.

    Attributes:
        evidence: the evidence at the last step.
        step: the last step.
        is_done: whether the instant is settled now.
    """

    evidence: Evidence
    step: RecoveryStep
    is_done: bool


def settle(
    job: JobContext,
    instant: str,
    settler: Settler,
    *,
    notify: Listener = no_listener,
    checked: Manifest | None = None,
) -> SettledInstant:
    """Settle one pending commit instant, by the rule: decision first, then delete.

    Args:
        job: the job.
        instant: the pending instant.
        settler: this process.
        notify: called for an epoch that is completed, rolled back, or left pending by an error.
        checked: see `gather`.

    Raises:
        HaltError: storage gives no clear answer; nothing was touched.
        TargetRefusedError: data files of a decided epoch are missing; nothing was touched.
        ReplayNeededError: a decided epoch has to be written to a target again, which this process cannot do.
        TargetError: a decided epoch could not be applied; it stays pending and decided.
    """
    evidence: Evidence | None = None
    try:
        evidence = gather(job, instant, settler.lease, checked)
        while True:
            answer = _take_step(job, evidence, settler, notify)
            if isinstance(answer, SettledInstant):
                return answer
            # Reuse a verified manifest; read a missing one again.
            is_known = isinstance(evidence.manifest, Manifest)
            evidence = replace(evidence, decision=answer) if is_known else gather(job, instant, settler.lease)
    except BaseException:
        notify(_left(evidence, instant, settler.generation))
        raise


def _warn_of_forgotten(job: JobContext, plan: Plan | None) -> None:
    """Log targets that an epoch may have written to and that the job file no longer has."""
    if plan is None:
        return
    for target in sorted(set(plan.targets) - {sink.target for sink in job.sinks}):
        log.warning(
            "%s is rolled back, and the job file no longer has its target %s: unless that was only renamed, what was "
            "written there for it stays, invisible to readers",
            plan.ref,
            target,
        )


def _take_step(job: JobContext, evidence: Evidence, settler: Settler, notify: Listener) -> SettledInstant | Decision:
    """Take the step that follows from the evidence; after a claim, returns the decision, of any process."""
    step, generation, cause = next_step(evidence), settler.generation, settler.cause
    of = evidence.plan.ref if evidence.plan else f"instant {evidence.instant}"
    log.info("%s: %s: %s", of, step.kind.value, step.reason)
    manifest = evidence.manifest if isinstance(evidence.manifest, Manifest) else None
    match step.kind:
        case StepKind.HALT:
            raise HaltError(
                f"instant {evidence.instant}: {step.reason}. Nothing was touched. "
                "Check that the store can be reached, then run tideline recover again"
            )
        case StepKind.REFUSE:
            assert manifest is not None
            raise missing_files_error(manifest.ref, evidence.gone)
        case StepKind.WAIT:
            return SettledInstant(evidence, step, False)
        case StepKind.RECOMMIT | StepKind.REPLAY:
            assert isinstance(evidence.decision, Decision)
            finish(job, evidence.decision, manifest)
            if manifest is not None:
                ranges = evidence.plan.ranges if evidence.plan else ()
                notify(Completed(EpochResult(evidence.decision, manifest, ranges), is_recovered=True))
            return SettledInstant(evidence, step, True)
        case StepKind.ROLLBACK:
            ref = evidence.plan.ref if evidence.plan else EpochRef(-1, evidence.instant, generation)
            reason = _rollback_reason(evidence, step)
            _warn_of_forgotten(job, evidence.plan)
            roll_back(job, ref, manifest, reason)
            notify(RolledBack(ref, reason))
            return SettledInstant(evidence, step, True)
        case StepKind.CLAIM_COMMIT:
            assert evidence.plan is not None and manifest is not None
            return claim_commit(job, evidence.plan, manifest, generation, f"recovered: {step.reason}")
        case StepKind.CLAIM_ROLLBACK:
            assert evidence.plan is not None
            reason = f"{step.reason}: {cause.text}" if cause.text else step.reason
            # With a manifest, the epoch's tasks had ended.
            is_crash = cause.is_crash and evidence.manifest is None
            return claim_rollback(job, evidence.plan.ref, generation, reason, is_crash=is_crash)


def _left(evidence: Evidence | None, instant: str, generation: int) -> LeftPending:
    """The event for an instant that could not be settled; reads nothing, since the store may be the cause."""
    ref = evidence.plan.ref if evidence is not None and evidence.plan else EpochRef(-1, instant, generation)
    decision = evidence.decision if evidence is not None else None
    return LeftPending(ref, is_decided=isinstance(decision, Decision) and decision.commits(instant))


def _rollback_reason(evidence: Evidence, step: RecoveryStep) -> str:
    """Why the instant is rolled back: the decision's reason if its rollback was decided, else the step's."""
    match evidence.decision:
        case Decision(outcome=Outcome.ROLLBACK, instant=instant, reason=reason) if instant == evidence.instant:
            return reason
        case _:
            return step.reason


def pending_commits(job: JobContext, timeline: ActiveTimeline) -> list[str]:
    """Times of the pending commit instants, in the order in which they have to be settled: by epoch."""
    pending = timeline.pending().by_action(Action.COMMIT).instants
    if len(pending) < 2:
        return [instant.time for instant in pending]

    def order(instant: Instant) -> tuple[int, str]:
        plan = read_plan(job, instant.time)
        return (plan.ref.epoch if plan else -1, instant.time)

    return [instant.time for instant in sorted(pending, key=order)]


def recover(job: JobContext, lease: WriterLease, notify: Listener = no_listener) -> Sequence[SettledInstant]:
    """Settle all pending instants and delete late files. Every start of a writer runs it.

    Args:
        job: the job.
        lease: this writer's lease.
        notify: called for pending instants, and for their results.

    Raises:
        HaltError: storage gives no clear answer on an instant; earlier ones are settled.
        ReplayNeededError: an epoch has to be written to a target again, which this process cannot do; the others are
            settled, as far as order allows.
        TargetError: a decided epoch could not be applied.
    """
    settled = settle_all(job, lease, notify).settled
    for each in settled:
        if not each.is_done:
            raise ReplayNeededError(each.step.reason)
    return settled


@dataclass(frozen=True)
class PendingWork:
    """Pending commit instants, read before this process became the timeline's writer.

    Attributes:
        timeline: the listing that contains them.
        found: the evidence and the step of each, in the order in which they have to be settled.
    """

    timeline: ActiveTimeline
    found: Sequence[tuple[Evidence, RecoveryStep]] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the whole timeline was listed, and not only the instants behind the settled mark."""
        return self.timeline.settled is None

    @property
    def is_waiting(self) -> bool:
        """Whether an instant is left to a writer that may be alive."""
        return any(step.kind is StepKind.WAIT for _, step in self.found)

    def verified(self, instant: str) -> Manifest | None:
        """The verified manifest of an undecided instant; None if its files may have changed since.

        A process that waited for the lease verifies it again.
        """
        if self.is_waiting:
            return None
        manifests = (each.manifest for each, _ in self.found if each.instant == instant and each.decision is None)
        return next((manifest for manifest in manifests if isinstance(manifest, Manifest)), None)


@dataclass(frozen=True)
class Settlement:
    """Outcome of `settle_all`.

    Attributes:
        timeline: the listing that was used.
        settled: each instant that was pending in it, by epoch.
    """

    timeline: ActiveTimeline
    settled: Sequence[SettledInstant]

    @property
    def decisions(self) -> Sequence[Decision]:
        """Decisions of the instants that are settled now."""
        decisions = (each.evidence.decision for each in self.settled if each.is_done)
        return [decision for decision in decisions if isinstance(decision, Decision)]


def has_pending_work(timeline: ActiveTimeline) -> bool:
    """Whether a commit or a rollback of this listing is pending."""
    return bool(timeline.pending().by_action(Action.COMMIT, Action.ROLLBACK).instants)


def find_pending_work(
    job: JobContext, recent: ActiveTimeline, lease: LeaseState | Unknown, *, force: bool = False
) -> PendingWork:
    """Pending commit instants and the step that recovery would take with each; reads only.

    Lists the whole timeline if nothing is pending behind the settled mark: an instant of a late writer may be before
    it.

    Args:
        job: the job.
        recent: the timeline from the settled mark on.
        lease: lease state of the timeline's latest writer.
        force: see `next_step`.

    Raises:
        StoreUnavailableError: storage does not answer.
    """
    timeline = recent
    if not has_pending_work(timeline) and timeline.settled is not None:
        timeline = ActiveTimeline.load(job.store, job.retry)
    found = []
    for time in pending_commits(job, timeline):
        evidence = gather(job, time, lease)
        found.append((evidence, next_step(evidence, force=force)))
    return PendingWork(timeline, found)


def settle_all(
    job: JobContext, lease: WriterLease, notify: Listener = no_listener, seen: PendingWork | None = None
) -> Settlement:
    """As `recover`; an instant that has to be written to a target again stays pending, with `is_done` False.

    Epochs are applied in order, so decided epochs behind it wait as well. Lists the timeline from the settled mark on
    (`timeline.settled`); each `FULL_LISTING_EVERY`-th writer lists all of it, to find instants of late writers.

    Args:
        job: the job.
        lease: this writer's lease.
        notify: called for pending instants, and for their results.
        seen: pending work that this process read before it took the lease.
    """
    job.store.remove_stale_uploads()
    is_whole = lease.generation % FULL_LISTING_EVERY == 0 or (seen is not None and seen.is_whole)
    timeline = _load(job, is_whole=is_whole)
    pending = pending_commits(job, timeline)
    notify(PendingFound(tuple(pending)))
    settled: list[SettledInstant] = []
    settler = Settler(LeaseState.MINE, lease.generation)
    for time in pending:
        try:
            known = seen.verified(time) if seen is not None else None
            settled.append(settle(job, time, settler, notify=notify, checked=known))
        except ReplayNeededError as lost:
            log.warning("instant %s: %s: %s", time, StepKind.REPLAY.value, lost)
            step = RecoveryStep(StepKind.REPLAY, str(lost))
            settled.append(SettledInstant(gather(job, time, LeaseState.MINE), step, False))
    done = frozenset(each.evidence.instant for each in settled if each.is_done)
    for instant in timeline.pending().by_action(Action.ROLLBACK):
        rollback = read_rollback(job, instant.time)
        # Two processes may each have requested a rollback of one instant: settling it has ended one of them.
        is_ended = rollback is not None and rollback.plan.instant in done and rollback_is_completed(job, rollback)
        if rollback is not None and not is_ended:
            ref = EpochRef(rollback.plan.epoch, rollback.plan.instant, lease.generation)
            drive_rollback(job, rollback, ref, None)
            notify(RolledBack(ref, rollback.plan.reason))
    clean_late_files(job, timeline, just_settled=done)
    return Settlement(timeline, settled)


def _load(job: JobContext, *, is_whole: bool) -> ActiveTimeline:
    timeline = ActiveTimeline.load(job.store, job.retry) if is_whole else ActiveTimeline.recent(job.store, job.retry)
    if timeline.latest_time is not None:
        job.clock.observe(timeline.latest_time)
    return timeline
