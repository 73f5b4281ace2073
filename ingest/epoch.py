"""One epoch from plan to completed, by its own writer.

::

    open_instant ─► tasks write ─► prepare ─► claim ─► finish
          └────────────┴──────────────┴──── any error, signal or fence: settle by the rule

A writer that gives up does what a recovery would do with its instant: decision first, then delete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ingest.job import Job
from ingest.protocol import claim_commit, finish, open_instant, prepare, roll_back
from ingest.recovery import settle
from ingest.runner import Runner
from ingest.sources.base import Source
from ingest.task import TaskReport, TaskSpec, assign, merge_counts
from timeline import errors
from timeline.chain import Chain
from timeline.decision import Decision
from timeline.epoch import Manifest, OffsetRange, Plan, WriteReport
from timeline.errors import FencedError, TidelineError
from timeline.failpoints import reach
from timeline.lease import LeaseState, WriterLease

log = logging.getLogger(__name__)

_LONGEST_CAUSE = 300
"""Characters of an error's message that a rollback's reason keeps."""


@dataclass(frozen=True)
class Pipeline:
    """What turns offset ranges into rows of the targets.

    Attributes:
        source: where records come from.
        schema: the columns to decode.
        lineage: whether rows carry shard, offset and epoch.
        runner: runs the tasks.
    """

    source: Source
    schema: pa.Schema
    lineage: bool
    runner: Runner


@dataclass(frozen=True)
class EpochResult:
    """A completed epoch.

    Attributes:
        decision: what was decided (to commit).
        manifest: what was written.
    """

    decision: Decision
    manifest: Manifest


def run_epoch(
    job: Job,
    pipeline: Pipeline,
    chain: Chain,
    lease: WriterLease,
    ranges: tuple[OffsetRange, ...],
    *,
    stop: threading.Event,
    applied_through: int = -1,
) -> EpochResult:
    """Ingest the next epoch; afterwards it is completed, or settled and an error is raised.

    Args:
        job: timeline and targets.
        pipeline: source, schema and runner.
        chain: where ingestion stands.
        lease: this writer's lease.
        ranges: what the source planned.
        stop: set by a signal; an epoch that is not prepared yet is rolled back then.
        applied_through: epochs that every target is known to have applied.

    Raises:
        FencedError: another process decided this epoch or took over; nothing of this attempt is left.
        StoppedError: `stop` was set.
        TidelineError: what went wrong; the epoch is rolled back, or decided and pending.
    """
    plan = open_instant(job, chain, lease, ranges)
    try:
        manifest = _write(job, pipeline, plan, stop)
        lease.check()
        decision = claim_commit(job, plan, manifest, lease.generation, "written")
    except BaseException as error:
        _give_up(job, plan, lease, error)
        raise
    if not decision.commits(plan.ref.instant):
        roll_back(job, plan.ref, manifest, f"epoch {plan.ref.epoch} was decided by {decision.by}")
        raise FencedError(
            f"{plan.ref}: {decision.by} decided it first ({decision.outcome.value} of instant {decision.instant}: "
            f"{decision.reason}). What this process wrote is removed; it stops"
        )
    finish(job, decision, manifest, applied_through=applied_through)
    return EpochResult(decision, manifest)


def _write(job: Job, pipeline: Pipeline, plan: Plan, stop: threading.Event) -> Manifest:
    writers = tuple((sink.target, sink.begin(plan.ref)) for sink in job.sinks)
    reach("begun")
    template = TaskSpec(
        ranges=(),
        reader=pipeline.source.reader(),
        decoder=pipeline.source.decoder(pipeline.schema, lineage=pipeline.lineage),
        writers=tuple(pair for pair in writers if pair[0] != job.quarantine),
        quarantine=next(pair for pair in writers if pair[0] == job.quarantine),
        epoch=plan.ref.epoch,
        lineage=pipeline.lineage,
    )
    tasks = assign(plan.ranges, pipeline.source.split, pipeline.runner.slots)
    reports = pipeline.runner.run([replace(template, ranges=ranges) for ranges in tasks], stop)
    reach("written")
    _raise_failure(reports)
    return prepare(job, plan, merge_counts(reports), _by_target(job, reports))


def _raise_failure(reports: Sequence[TaskReport]) -> None:
    for report in reports:
        if report.failure is not None:
            name, message = report.failure
            kind = getattr(errors, name)
            assert issubclass(kind, TidelineError)
            raise kind(message)


def _by_target(job: Job, reports: Sequence[TaskReport]) -> dict[str, list[WriteReport]]:
    return {sink.target: [(report.reports or {})[sink.target] for report in reports] for sink in job.sinks}


def _give_up(job: Job, plan: Plan, lease: WriterLease, error: BaseException) -> None:
    """Settle the own epoch; what cannot be settled now stays pending for recovery, and says so."""
    first_line = next(iter(str(error).splitlines()), "")[:_LONGEST_CAUSE]
    cause = first_line if isinstance(error, TidelineError) else f"{type(error).__name__}: {first_line}"
    try:
        settled = settle(job, plan.ref.instant, LeaseState.MINE, lease.generation, cause=cause)
        log.warning("%s given up: %s: %s", plan.ref, settled.step.kind.value, settled.step.reason)
    except TidelineError as error:
        log.warning("%s given up and left pending, tideline recover settles it: %s", plan.ref, error)
