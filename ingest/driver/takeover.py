"""`tideline recover`: look at what is pending, take the timeline over if that is allowed, settle it. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ingest.driver.build import Opened, build_job, require_whole
from ingest.driver.losses import lost_epochs, refuse_ahead
from ingest.driver.stores import probe_stores
from ingest.protocol.evidence import Evidence, Unknown, gather
from ingest.protocol.job import Job
from ingest.protocol.recovery import RecoveryStep, Settled, StepKind, next_step, pending_commits, settle_all
from timeline.active import ActiveTimeline
from timeline.epoch import Manifest
from timeline.errors import StoreUnavailableError, WriterBusyError
from timeline.instant import Action
from timeline.lease import LeaseObserver, LeaseState, WriterRecord


@dataclass(frozen=True)
class Recovery:
    """What recovery found and did.

    Attributes:
        found: evidence and step for each pending commit instant, as they were at first, by epoch.
        settled: the last evidence and step for each instant that was brought to its end.
        replays: instants with an epoch that has to be written to a target again, which `tideline run` does; and
            those that wait behind it.
        writer: the timeline's latest writer before this one.
        leftovers: instants of which late files or markers were looked after.
        is_waiting: whether something is left for a writer that may be alive.
        losses: what targets have lost, or have more than the timeline, in words.
    """

    found: Sequence[tuple[Evidence, RecoveryStep]] = ()
    settled: Sequence[Settled] = ()
    replays: Sequence[Settled] = ()
    writer: WriterRecord | None = None
    leftovers: Sequence[str] = ()
    is_waiting: bool = False
    losses: Sequence[str] = ()


def examine(opened: Opened, *, force: bool = False, observer: LeaseObserver | None = None) -> Recovery:
    """What recovery would do; reads only.

    The lease is looked at once: a writer on another machine that has just died still counts as live. Where nothing
    is found behind the settled mark, the whole timeline is looked at.

    Raises:
        ConfigError: the timeline is another job's.
        InvariantError: something of the timeline is gone.
        TargetRefusedError: a target has epochs that the timeline has not.
    """
    require_whole(opened)
    opened.require_owner()
    if opened.identity is None:
        return Recovery()
    refuse_ahead(build_job(opened))
    return _examine(opened, force, observer or LeaseObserver(opened.store, opened.retry))[0]


def run_recovery(
    opened: Opened, *, force: bool = False, on_wait: Callable[[WriterRecord], None] | None = None
) -> Recovery:
    """Settle everything that is pending, as this timeline's writer; rows are not written again here, see `replays`.

    Args:
        opened: the job's timeline.
        force: do not wait for a writer that may be alive.
        on_wait: told before the lease of a silent writer is watched, which takes up to its TTL.

    Raises:
        ConfigError: a store does not create objects exclusively, or the timeline is another job's; nothing was touched.
        InvariantError: something of the timeline is gone; nothing was touched.
        HaltError: storage gives no clear answer; nothing was touched.
        TargetError: a decided epoch could not be applied; it stays pending and decided. Or a target has epochs that
            the timeline has not; nothing was touched.
    """
    require_whole(opened)
    opened.require_owner()
    if opened.identity is None:
        return Recovery()
    refuse_ahead(build_job(opened))
    observer = LeaseObserver(opened.store, opened.retry)
    before, timeline = _examine(opened, force, observer)
    if not before.leftovers and not len(_unsettled(timeline)):
        return before
    if before.is_waiting and observer.writer is not None and on_wait is not None:
        on_wait(observer.writer)
    probe_stores(opened)
    try:
        lease = opened.take_lease(observer, force=force)
    except WriterBusyError:
        return replace(before, is_waiting=True)
    lease.keep()
    try:
        checked = {} if before.is_waiting else _checked(before)  # whoever waited for the lease looks again
        job = build_job(opened)
        settled = settle_all(job, lease, whole=timeline.settled is None, checked=checked)
        losses = lost_epochs(job)
    finally:
        lease.release()
    return replace(
        before,
        losses=losses,
        settled=[each for each in settled if each.is_done],
        replays=[each for each in settled if not each.is_done],
        is_waiting=False,
    )


def _examine(opened: Opened, force: bool, observer: LeaseObserver) -> tuple[Recovery, ActiveTimeline]:
    """What recovery would do, and the view of the timeline that shows it."""
    job = build_job(opened)
    lease = _look(observer)
    timeline = ActiveTimeline.recent(job.store, job.retry)
    if not len(_unsettled(timeline)):
        # Whoever asks has a reason: something that woke up late may have been left before the mark.
        timeline = ActiveTimeline.load(job.store, job.retry)
    found = []
    for time in pending_commits(job, timeline):
        evidence = gather(job, time, lease)
        found.append((evidence, next_step(evidence, force=force)))
    recovery = Recovery(
        found=found,
        writer=observer.writer,
        leftovers=_leftovers(job, timeline),
        is_waiting=any(step.kind is StepKind.WAIT for _, step in found),
        losses=lost_epochs(job),
    )
    return recovery, timeline


def _checked(before: Recovery) -> dict[str, Manifest]:
    """Manifests of which everything was there a moment ago."""
    manifests = {evidence.instant: evidence.manifest for evidence, _ in before.found if evidence.decision is None}
    return {instant: manifest for instant, manifest in manifests.items() if isinstance(manifest, Manifest)}


def _unsettled(timeline: ActiveTimeline) -> ActiveTimeline:
    return timeline.pending().by_action(Action.COMMIT, Action.ROLLBACK)


def _look(observer: LeaseObserver) -> LeaseState | Unknown:
    try:
        return observer.look()
    except StoreUnavailableError as error:
        return Unknown(str(error))


def _leftovers(job: Job, timeline: ActiveTimeline) -> list[str]:
    """Instants with markers that are not pending: something may have been written late."""
    times = {time for sink in job.sinks for time in sink.leftovers()}
    pending = {instant.time for instant in timeline.pending()}
    return sorted(times - pending)
