"""Late files, written by tasks after their instant was decided: found by the remaining markers, and deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, partial

from ingest.protocol.job import JobContext
from ingest.protocol.names import has_files_of, part_of, under_current_names
from ingest.protocol.steps import read_manifest, read_rollback
from timeline.active import ActiveTimeline
from timeline.concurrency import map_concurrently
from timeline.epoch import EpochRef, Manifest
from timeline.instant import Action, State, commit_requested, parse_time
from timeline.stores.base import size_of

MARKERS_KEPT_MS = 24 * 3600 * 1000
"""How long markers of unreported files stay: a frozen task may wake up and close a file much later."""

_LOOKED_AT = 10
"""A start checks this many instants with markers, the newest, and each older one once when its markers expire."""


def clean_late_files(job: JobContext, timeline: ActiveTimeline, just_settled: Collection[str] = ()) -> None:
    """Delete late files of decided instants, and markers that are no longer needed.

    Args:
        job: the job.
        timeline: loaded before; an instant that is missing in it is looked up once more, because a requested file is
            always put before the first marker.
        just_settled: instants whose late files were just deleted.
    """
    left = [(sink, time) for sink in job.sinks for time in sink.unreleased()]
    now = parse_time(job.clock.next())
    final = {time for _, time in left if now - parse_time(time) > MARKERS_KEPT_MS}
    recent = sorted({time for _, time in left} - final)[-_LOOKED_AT:]
    left = [(sink, time) for sink, time in left if time in final or time in recent]
    timeline = _reaching_back(job, timeline, [time for _, time in left])
    unknown = [time for _, time in left if timeline.find(time) is None]
    rolled_back = _rolled_back(job, timeline, unknown)
    committed = cache(partial(_committed, job))  # once for all targets that have markers of an instant
    for sink, time in left:
        instant = timeline.find(time)
        is_final = time in final
        if time in just_settled and not is_final:
            continue
        if instant is None:
            # An instant that this timeline never rolled back belongs to another job of this table.
            if time in rolled_back and job.retry.call(partial(size_of, job.store, commit_requested(time).path)) is None:
                ref = EpochRef(-1, time, 0)
                sink.abort(ref, None)
                sink.release(ref, None, final=is_final)
        elif instant.state is State.COMPLETED:
            manifest = committed(time)
            part = part_of(manifest, sink.target) if manifest is not None else None
            # Without the part, committed and late files look alike, and so they do with the part of another table, to
            # which its name or place may lead.
            if manifest is not None and part is not None and (not part.files or has_files_of(job, sink.target, part)):
                sink.release(manifest.ref, part, final=is_final)


def _committed(job: JobContext, time: str) -> Manifest | None:
    manifest = read_manifest(job, time)
    return under_current_names(job, manifest) if manifest is not None else None


def _reaching_back(job: JobContext, timeline: ActiveTimeline, times: Sequence[str]) -> ActiveTimeline:
    """The view, loaded again if it does not reach back to all of these times."""
    is_short = timeline.settled is not None and any(time < timeline.settled.time for time in times)
    return ActiveTimeline.since(job.store, min(times), job.retry) if is_short else timeline


def _rolled_back(job: JobContext, timeline: ActiveTimeline, of: Sequence[str]) -> frozenset[str]:
    """Commit instants that this timeline has rolled back since the first of these; a rollback follows its instant."""
    later = [each for each in timeline.by_action(Action.ROLLBACK) if of and each.time > min(of)]
    rollbacks = map_concurrently(
        lambda instant: read_rollback(job, instant.time), later, job.store.traits.requests_at_once
    )
    return frozenset(rollback.plan.instant for rollback in rollbacks if rollback is not None)
