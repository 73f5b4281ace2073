"""The steps of an epoch, each a thin action on storage. Writer and recovery take the same steps.

::

    open_instant   requested ─► inflight
    prepare        targets durable ─► manifest
    claim_*        decision object: the commit point, or someone else's
    finish         apply: targets commit in order ─► complete: completed ─► markers
    roll_back      rollback requested ─► targets abort ─► rollback completed ─► commit's files removed

Everything after the claim is idempotent and works from storage alone; any process may do it, any number of times, also
concurrently.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from ingest.protocol.counts import check_counts, check_part, left_out, rows_by_target
from ingest.protocol.job import JobContext
from ingest.protocol.missing_files import missing_files_error, without_files
from ingest.protocol.names import under_current_names
from timeline.active import ActiveTimeline
from timeline.chain import Chain
from timeline.concurrency import map_concurrently
from timeline.decision import Decision, Outcome, decide, read_decision
from timeline.epoch import (
    MANIFEST,
    PLAN,
    EpochRef,
    Manifest,
    OffsetRange,
    Part,
    Plan,
    ShardCount,
    WriteReport,
)
from timeline.errors import InvariantError, ReplayNeededError, StoreUnavailableError
from timeline.failpoints import reach
from timeline.holes import lost
from timeline.hudi.layout import commit_body, ensure_partition_files, rollback_body
from timeline.instant import (
    Action,
    Instant,
    State,
    commit_completed,
    commit_inflight,
    commit_requested,
    parse_time,
)
from timeline.lease import WriterLease
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan
from timeline.stores.base import create_or_read, read_or_none, size_of
from timeline.units import count

log = logging.getLogger(__name__)

_MOST_TIMES = 100
"""Number of times tried for one instant; of two writers each takes one, so a second is hardly ever needed."""

_MOST_REPLAYS = 3
"""Number of times that one process writes a lost part again, before it reports that the target keeps losing it."""


@dataclass(frozen=True)
class Rollback:
    """A rollback instant and its plan."""

    time: str
    plan: RollbackPlan


def open_instant(job: JobContext, chain: Chain, lease: WriterLease, ranges: tuple[OffsetRange, ...]) -> Plan:
    """Put the next epoch on the timeline; once this returns, its data may be written.

    Args:
        job: the job.
        chain: the committed epochs that the next one follows.
        lease: this writer's lease.
        ranges: offsets that the epoch reads.

    Raises:
        InvariantError: the ranges do not continue the chain.
        StoreUnavailableError: no time is free for the instant, or the store does not answer.
    """
    chain.check(ranges)
    if chain.last is not None:
        # The settled mark relies on this: an epoch's instant is later than those of the epochs before it.
        job.clock.observe(chain.last.completion_time)
    for _ in range(_MOST_TIMES):
        plan = Plan(
            ref=EpochRef(chain.next_epoch, job.clock.next(), lease.generation),
            job=job.name,
            writer=job.by,
            ranges=ranges,
            targets=tuple(sink.target for sink in job.sinks),
            schema=job.identity.schema,
            token=job.token(),
            reading=job.reading,
        )
        reach("planned")
        if _open(job, plan):
            return plan
    raise StoreUnavailableError(_taken(job, "commit instant"))


def _open(job: JobContext, plan: Plan) -> bool:
    """Put both files of an instant, one after the other; False if it belongs to another writer.

    So an inflight file alone was left by a writer whose instant is rolled back already: a process that finds it deletes
    the announced files without a decision.
    """
    body = PLAN.dump(plan)
    if create_or_read(job.store, commit_requested(plan.ref.instant).path, body, job.retry) != body:
        return False
    _log_transition(plan.ref, "none", "requested")
    reach("requested")
    # Created, not put: a late duplicate of an empty put must never replace the manifest.
    create_or_read(job.store, commit_inflight(plan.ref.instant).path, b"", job.retry)
    _log_transition(plan.ref, "requested", "inflight")
    reach("inflight")
    return True


def prepare(
    job: JobContext, plan: Plan, counts: Sequence[ShardCount], reports: Mapping[str, Sequence[WriteReport]]
) -> Manifest:
    """Make every target's share durable and put the manifest: from then on the writer is not needed.

    Args:
        job: the job.
        plan: the epoch's plan.
        counts: read, accepted and rejected records of each shard.
        reports: by target, one report for each task.

    Raises:
        RowCountError: rows read are not rows accepted + rejected, or a target took another number.
    """
    check_counts(plan, job.quarantine, counts, reports)
    parts: list[Part] = []
    for sink in job.sinks:
        part = sink.prepare(plan.ref, reports[sink.target])
        check_part(sink.target, plan.ref, part, reports[sink.target])
        parts.append(part)
        reach("part-prepared")
    manifest = Manifest(plan.ref, tuple(counts), tuple(parts))
    job.retry.call(partial(job.store.put, commit_inflight(plan.ref.instant).path, MANIFEST.dump(manifest)))
    left = left_out(rows_by_target(manifest))
    log.info("%s prepared: %s, %d rejected%s", plan.ref, count(manifest.rows, "row"), manifest.rejected, left)
    reach("manifest")
    return manifest


def claim_commit(job: JobContext, plan: Plan, manifest: Manifest, generation: int, reason: str) -> Decision:
    """Try to decide that an epoch is committed; returns the decision, of any process.

    Args:
        job: the job.
        plan: the epoch's plan.
        manifest: the epoch's manifest.
        generation: writer generation of this process.
        reason: human-readable reason.
    """
    wanted = _wanted(job, plan.ref, generation, Outcome.COMMIT, reason)
    return _claim(
        job,
        plan.ref,
        replace(wanted, rows=manifest.rows, rejected=manifest.rejected, positions=plan.positions),
    )


def claim_rollback(job: JobContext, ref: EpochRef, generation: int, reason: str, *, is_crash: bool = False) -> Decision:
    """Try to decide that an epoch is rolled back; returns the decision, of any process.

    Args:
        job: the job.
        ref: the epoch and its instant.
        generation: writer generation of this process.
        reason: human-readable reason.
        is_crash: see `Decision`.
    """
    return _claim(job, ref, replace(_wanted(job, ref, generation, Outcome.ROLLBACK, reason), is_crash=is_crash))


def _wanted(job: JobContext, ref: EpochRef, generation: int, outcome: Outcome, reason: str) -> Decision:
    return Decision(
        epoch=ref.epoch,
        outcome=outcome,
        instant=ref.instant,
        completion_time=job.clock.next(),
        generation=generation,
        by=job.by,
        reason=reason,
        token=job.token(),
    )


def _claim(job: JobContext, ref: EpochRef, wanted: Decision) -> Decision:
    decision = decide(job.store, wanted, job.retry)
    log.info("%s decided: %s by %s (%s)", ref, decision.outcome.value, decision.by, decision.reason)
    reach("decided")
    return decision


def read_plan(job: JobContext, instant: str) -> Plan | None:
    """The plan of a commit instant; None if its requested file was deleted."""
    path = commit_requested(instant).path
    body = read_or_none(job.store, path, job.retry)
    return None if body is None else PLAN.load(path, body)


def read_manifest(job: JobContext, instant: str) -> Manifest | None:
    """The manifest of a commit instant; None while the instant has none."""
    path = commit_inflight(instant).path
    body = read_or_none(job.store, path, job.retry)
    return MANIFEST.load(path, body) if body else None


def finish(job: JobContext, decision: Decision, manifest: Manifest | None = None, *, applied_through: int = -1) -> None:
    """Complete a committed epoch: targets in order, completed file, markers. Idempotent.

    Args:
        job: the job.
        decision: a decision to commit.
        manifest: the epoch's manifest, if the caller has it; read from storage otherwise.
        applied_through: every target is known to have applied all epochs up to this one.

    Raises:
        TargetError: a target did not take its part; the epoch stays pending and decided.
        ReplayNeededError: a target has lost its part, and this process cannot write it again.
    """
    manifest = manifest or under_current_names(job, manifest_of(job, decision))
    apply_in_order(job, decision, manifest, applied_through=applied_through)
    complete(job, decision, manifest)


def apply_in_order(job: JobContext, decision: Decision, manifest: Manifest, *, applied_through: int = -1) -> None:
    """The first half of `finish`: commit the epoch's parts to their targets, behind all epochs before it.

    Args:
        job: the job.
        decision: a decision to commit.
        manifest: the epoch's manifest, under the names of today.
        applied_through: every target is known to have applied all epochs up to this one.

    Raises:
        TargetRefusedError: data files of an earlier epoch are missing.
        ReplayNeededError: a target has lost its part, and this process cannot write it again.
    """
    for earlier in decided_before(job, decision.epoch, applied_through):
        lagging = under_current_names(job, manifest_of(job, earlier))
        gone = without_files(job, lagging)
        if gone:
            raise missing_files_error(lagging.ref, gone)
        for part in lagging.parts:
            _commit(job, lagging, part)
    reach("applying")
    for part in manifest.parts:
        _commit(job, manifest, part)
    reach("applied")


def complete(job: JobContext, decision: Decision, manifest: Manifest) -> None:
    """The second half of `finish`: put the completed file, and delete the epoch's markers. Idempotent.

    Args:
        job: the job.
        decision: a decision to commit.
        manifest: the epoch's manifest, under the names of today.
    """
    files = next((part.files for part in manifest.parts if part.target == job.base_target), ())
    ensure_partition_files(job.store, files, decision.instant, job.retry, job.partitions)
    completed = commit_completed(decision.instant, decision.completion_time)
    create_or_read(job.store, completed.path, commit_body(files, _extra_metadata(job, decision, manifest)), job.retry)
    _log_transition(manifest.ref, "inflight", "completed", since=decision.instant, until=decision.completion_time)
    reach("completed")

    def release(part: Part) -> None:
        job.sink(part.target).release(manifest.ref, part)
        reach("part-released")

    map_concurrently(release, manifest.parts, job.store.traits.requests_at_once)


def _commit(job: JobContext, manifest: Manifest, part: Part) -> None:
    """Commit one part; if its target has lost the prepared data, write the part again."""
    sink, gap = job.sink(part.target), job.gaps.get(part.target)
    if gap is not None:
        bridged = gap.bridged(sink, part)
        if bridged is None:
            return
        part = bridged
    for attempt in itertools.count(1):
        try:
            sink.commit(part, job.parallel)
            break
        except ReplayNeededError as lost:
            if job.rewrite is None or attempt > _MOST_REPLAYS:
                raise
            log.warning(
                "%s is written to %s again (%d of %d): %s", part.epoch, part.target, attempt, _MOST_REPLAYS, lost
            )
            part = job.rewrite(job, manifest, part)
    reach("part-committed")


def roll_back(job: JobContext, ref: EpochRef, manifest: Manifest | None, reason: str) -> None:
    """Remove a commit instant that is decided to be rolled back, and record the deleted files. Idempotent.

    Args:
        job: the job.
        ref: the epoch and its instant.
        manifest: the instant's manifest; None if it has none.
        reason: human-readable reason.
    """
    rollback = _find_rollback(job, ref.instant) or _request_rollback(job, ref, reason)
    drive_rollback(job, rollback, ref, manifest)


def drive_rollback(job: JobContext, rollback: Rollback, ref: EpochRef, manifest: Manifest | None) -> None:
    """Complete a requested rollback. Idempotent.

    The order makes it safe to be killed anywhere: the record of deleted files is complete before the commit's own files
    are deleted, its requested file last.

    Args:
        job: the job.
        rollback: the rollback.
        ref: the epoch and the instant to roll back.
        manifest: the instant's manifest; None if it has none.
    """
    plan = rollback.plan
    inflight = Instant(rollback.time, Action.ROLLBACK, State.INFLIGHT)
    create_or_read(job.store, inflight.path, b"", job.retry)
    reach("rollback-inflight")
    parts = {part.target: part for part in manifest.parts} if manifest else {}
    deleted: list[str] = []
    for sink in job.sinks:
        gone = sink.abort(ref, parts.get(sink.target))
        deleted += gone if sink.target == job.base_target else [f"{sink.target}: {path}" for path in gone]
        reach("part-aborted")
    completed = Instant(rollback.time, Action.ROLLBACK, State.COMPLETED, plan.completion_time)
    took_ms = parse_time(plan.completion_time) - parse_time(rollback.time)
    extra = {"tideline.reason": plan.reason, "tideline.by": plan.by, "tideline.instant": ref.instant}
    if plan.epoch >= 0:
        extra["tideline.epoch"] = str(plan.epoch)
    body = rollback_body(ref.instant, rollback.time, took_ms, deleted, extra)
    create_or_read(job.store, completed.path, body, job.retry)
    reach("rollback-completed")
    job.retry.call(partial(job.store.delete, [commit_inflight(ref.instant).path]))
    reach("rollback-inflight-removed")
    job.retry.call(partial(job.store.delete, [commit_requested(ref.instant).path]))
    _log_transition(ref, "inflight", "rolled back", since=ref.instant, until=plan.completion_time)
    reach("rollback-requested-removed")
    for sink in job.sinks:
        # Without the part, even if there is one: a store may execute a request late that its client gave up, so even a
        # reported file that nothing writes any more may be created again.
        sink.release(ref, None)


def read_rollback(job: JobContext, time: str) -> Rollback | None:
    """A rollback instant that Tideline requested; None for another writer's."""
    path = Instant(time, Action.ROLLBACK, State.REQUESTED).path
    body = read_or_none(job.store, path, job.retry)
    return Rollback(time, ROLLBACK_PLAN.load(path, body)) if body else None


def rollback_is_completed(job: JobContext, rollback: Rollback) -> bool:
    """Whether a rollback is completed."""
    completed = Instant(rollback.time, Action.ROLLBACK, State.COMPLETED, rollback.plan.completion_time)
    return job.retry.call(partial(size_of, job.store, completed.path)) is not None


def _find_rollback(job: JobContext, instant: str) -> Rollback | None:
    """The latest rollback requested for a commit instant, in any state; None if there is none."""
    # A rollback's time is later than the time of its commit instant.
    timeline = ActiveTimeline.since(job.store, instant, job.retry)
    job.clock.observe(timeline.latest_time or instant)
    for candidate in reversed(timeline.by_action(Action.ROLLBACK).instants):
        rollback = read_rollback(job, candidate.time)
        if rollback is not None and rollback.plan.instant == instant:
            return rollback
    return None


def _taken(job: JobContext, what: str) -> str:
    return (
        f"{job.store.url}: no time is free for a {what}, {_MOST_TIMES} were tried: the store says of each that another "
        "process created it first. tideline check-store tells whether it keeps what it promises"
    )


def _request_rollback(job: JobContext, ref: EpochRef, reason: str) -> Rollback:
    for _ in range(_MOST_TIMES):
        time = job.clock.next()
        plan = RollbackPlan(ref.instant, ref.epoch, job.clock.next(), reason, job.by, job.token())
        path = Instant(time, Action.ROLLBACK, State.REQUESTED).path
        body = ROLLBACK_PLAN.dump(plan)
        if create_or_read(job.store, path, body, job.retry) == body:
            log.info("%s: rollback %s requested: %s", ref, time, reason)
            reach("rollback-requested")
            return Rollback(time, plan)
    raise StoreUnavailableError(_taken(job, "rollback"))


def decided_before(job: JobContext, epoch: int, applied_through: int) -> list[Decision]:
    """Decisions to commit earlier epochs that a target may lack, oldest first.

    A completed epoch was applied to every target, after all epochs before it: the search ends there.

    Args:
        job: the job.
        epoch: a decided epoch.
        applied_through: every target is known to have applied all epochs up to this one; -1 for none.

    Raises:
        InvariantError: an earlier epoch has no decision.
    """
    lagging: list[Decision] = []
    for earlier in range(epoch - 1, applied_through, -1):
        decision = read_decision(job.store, earlier, job.retry)
        if decision is None:
            raise InvariantError(f"epoch {epoch} is decided, epoch {earlier} is not: a decision was deleted")
        if decision.outcome is Outcome.ROLLBACK:
            continue
        completed = commit_completed(decision.instant, decision.completion_time)
        if job.retry.call(partial(size_of, job.store, completed.path)) is not None:
            break
        lagging.append(decision)
    return lagging[::-1]


def manifest_of(job: JobContext, decision: Decision) -> Manifest:
    """The manifest of a decision to commit.

    Raises:
        InvariantError: the manifest is missing; only a person can have deleted it.
    """
    manifest = read_manifest(job, decision.instant)
    if manifest is None:
        raise InvariantError(
            f"epoch {decision.epoch} is decided to commit instant {decision.instant}, but its manifest "
            f"{commit_inflight(decision.instant).path} is gone: restore it, then recover"
        )
    return manifest


def _extra_metadata(job: JobContext, decision: Decision, manifest: Manifest) -> dict[str, str]:
    holes = {shard: [asdict(hole) for hole in each] for shard, each in lost(decision.positions).items()}
    return {
        "schema": job.identity.avro_schema,
        "tideline.epoch": str(decision.epoch),
        "tideline.generation": str(manifest.ref.generation),
        "tideline.rows": str(manifest.rows),
        "tideline.rejected": str(manifest.rejected),
        "tideline.offsets": json.dumps({shard: asdict(at) for shard, at in decision.positions.items()}),
        "tideline.targets": json.dumps({part.target: _target_metadata(part) for part in manifest.parts}),
        **({"tideline.lost": json.dumps(holes)} if holes else {}),
    }


def _target_metadata(part: Part) -> dict[str, int]:
    return {
        "rows": part.rows,
        "bytes": part.bytes,
        "files": len(part.files),
        "dropped": part.dropped,
        "rejected": part.rejected,
    }


def _log_transition(ref: EpochRef, before: str, after: str, since: str | None = None, until: str | None = None) -> None:
    elapsed_ms = parse_time(until) - parse_time(since) if since and until else 0
    log.info("%s: %s → %s, elapsed_ms=%d", ref, before, after, elapsed_ms)
