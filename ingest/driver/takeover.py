"""`tideline recover`: examine pending instants, take the timeline over if allowed, settle them. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ingest.driver.build import TimelineHandle, build_job, require_whole
from ingest.driver.losses import lost_epochs, refuse_ahead
from ingest.driver.stores import probe_stores
from ingest.protocol.evidence import Evidence, Unknown
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import (
    PendingWork,
    RecoveryStep,
    SettledInstant,
    find_pending_work,
    has_pending_work,
    settle_all,
)
from timeline.active import ActiveTimeline
from timeline.errors import StoreUnavailableError, WriterBusyError
from timeline.lease import LeaseObserver, LeaseState, WriterRecord


@dataclass(frozen=True)
class Recovery:
    """Findings and results of a recovery.

    Attributes:
        found: initial evidence and step for each pending commit instant, by epoch.
        settled: last evidence and step for each settled instant.
        replays: instants with an epoch that has to be written to a target again, which `tideline run` does; and
            those that wait behind it.
        writer: the timeline's latest writer before this one.
        unreleased: settled instants with markers: recovery checks them for late files.
        is_waiting: whether instants are left to a writer that may be alive.
        losses: messages on epochs that targets have lost, or have beyond the timeline.
    """

    found: Sequence[tuple[Evidence, RecoveryStep]] = ()
    settled: Sequence[SettledInstant] = ()
    replays: Sequence[SettledInstant] = ()
    writer: WriterRecord | None = None
    unreleased: Sequence[str] = ()
    is_waiting: bool = False
    losses: Sequence[str] = ()


def examine(opened: TimelineHandle, *, force: bool = False, observer: LeaseObserver | None = None) -> Recovery:
    """The recovery that would run now; reads only.

    The lease is read once: a writer on another machine that has just died still counts as live.

    Args:
        opened: the job's timeline.
        force: see `next_step`.
        observer: watches the timeline's latest writer; None: a new observer.

    Raises:
        ConfigError: the timeline belongs to another job.
        InvariantError: an object of the timeline is missing.
        TargetRefusedError: a target has epochs that the timeline does not have.
    """
    examined = _examine(opened, force, observer or LeaseObserver(opened.store, opened.retry))
    return examined.recovery if examined is not None else Recovery()


def run_recovery(
    opened: TimelineHandle, *, force: bool = False, on_wait: Callable[[WriterRecord], None] | None = None
) -> Recovery:
    """Settle all pending instants, as this timeline's writer; lost rows are not written again here, see `replays`.

    Args:
        opened: the job's timeline.
        force: do not wait for a writer that may be alive.
        on_wait: called before the lease of a silent writer is watched, which takes up to its TTL.

    Raises:
        ConfigError: a store does not create objects exclusively, or the timeline belongs to another job; nothing was
            touched.
        InvariantError: an object of the timeline is missing; nothing was touched.
        HaltError: storage gives no clear answer; nothing was touched.
        TargetError: a decided epoch could not be applied; it stays pending and decided. Or a target has epochs that
            the timeline does not have; nothing was touched.
    """
    observer = LeaseObserver(opened.store, opened.retry)
    examined = _examine(opened, force, observer)
    if examined is None:
        return Recovery()
    job, seen, before = examined.job, examined.seen, examined.recovery
    if not before.unreleased and not has_pending_work(seen.timeline):
        return before
    if before.is_waiting and observer.writer is not None and on_wait is not None:
        on_wait(observer.writer)
    probe_stores(opened)
    try:
        lease = opened.take_lease(observer, force=force)
    except WriterBusyError:
        return replace(before, is_waiting=True)
    lease.start_heartbeats()
    try:
        done = settle_all(job, lease, seen=seen)
        losses = lost_epochs(job, done.timeline, done.decisions)
    finally:
        lease.release()
    return replace(
        before,
        losses=losses,
        settled=[each for each in done.settled if each.is_done],
        replays=[each for each in done.settled if not each.is_done],
        is_waiting=False,
    )


@dataclass(frozen=True)
class _Examined:
    """A job, its pending work, and the recovery to report."""

    job: JobContext
    seen: PendingWork
    recovery: Recovery


def _examine(opened: TimelineHandle, force: bool, observer: LeaseObserver) -> _Examined | None:
    """The recovery that would run now; None where the timeline has not been created."""
    recent = ActiveTimeline.recent(opened.store, opened.retry)
    require_whole(opened, recent)
    opened.require_owner()
    if opened.identity is None:
        return None
    job = build_job(opened)
    refuse_ahead(job)
    seen = find_pending_work(job, recent, _look(observer), force=force)
    recovery = Recovery(
        found=seen.found,
        writer=observer.writer,
        unreleased=_unreleased(job, seen.timeline),
        is_waiting=seen.is_waiting,
        losses=lost_epochs(job, seen.timeline),
    )
    return _Examined(job, seen, recovery)


def _look(observer: LeaseObserver) -> LeaseState | Unknown:
    try:
        return observer.look()
    except StoreUnavailableError as error:
        return Unknown(str(error))


def _unreleased(job: JobContext, timeline: ActiveTimeline) -> list[str]:
    """Instants with markers that are not pending: late files may exist."""
    times = {time for sink in job.sinks for time in sink.unreleased()}
    pending = {instant.time for instant in timeline.pending()}
    return sorted(times - pending)
