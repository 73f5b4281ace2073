"""Runs one epoch from plan to completed, in its own writer.

::

    open_instant ─► tasks write ─► prepare ─► claim ─► apply ─► complete
          └────────────┴──────────────┴──── any error, signal or fence: settle by the rule

A writer that gives up settles its instant as a recovery would: decision first, then delete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from ingest.driver.completion import Completions
from ingest.execution.isolated import IsolatedDecoder, is_crash
from ingest.execution.runner import Runner
from ingest.execution.task import Outputs, TaskReport, TaskSpec, assign, error_of, merge_counts
from ingest.protocol.events import (
    EpochOpened,
    EpochResult,
    LeftPending,
    Listener,
    Phase,
    RolledBack,
    no_listener,
    within,
)
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import Cause, Settler, settle
from ingest.protocol.steps import apply_in_order, claim_commit, complete, open_instant, prepare, roll_back
from ingest.sources.base import Decoder, Source
from timeline.chain import Chain
from timeline.decision import Decision
from timeline.epoch import Manifest, OffsetRange, Plan, WriteReport
from timeline.errors import FencedError, OutrunError, TidelineError
from timeline.failpoints import reach
from timeline.formatting import shortened
from timeline.lease import LeaseState, WriterLease
from timeline.redact import shown_error

__all__ = ["EpochResult", "EpochWriter", "NextEpoch", "Pipeline", "raise_failure", "run_epoch"]

log = logging.getLogger(__name__)

_LONGEST_CAUSE = 300
"""Maximum characters of an error's message in a rollback's reason."""


class EpochWriter(Protocol):
    """Turns an epoch's offset ranges into rows of the targets."""

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """Write every record of the plan; one report for each task, of the attempt that counts.

        Args:
            plan: the epoch's plan.
            outputs: writers of the targets and of the quarantine.
            stop: set by a signal to end the write.

        Raises:
            StoppedError: `stop` was set before every record was written.
        """


@dataclass(frozen=True)
class Pipeline:
    """Tasks read, decode and write each record once, in one pass; keyed rows are shuffled. See EpochWriter.

    Attributes:
        source: where records come from.
        schema: the columns to decode.
        lineage: whether rows carry shard, offset and epoch.
        runner: runs the tasks.
        is_isolated: whether records are decoded in child processes; see `ingest.execution.isolated`.
    """

    source: Source
    schema: pa.Schema
    lineage: bool
    runner: Runner
    is_isolated: bool = False
    _isolated: dict[bool, IsolatedDecoder] = field(default_factory=dict, init=False, repr=False, compare=False)

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """See EpochWriter."""
        split_size = self.source.split_size
        is_small = sum(offsets.until - offsets.start for offsets in plan.ranges) <= split_size.smallest
        template = TaskSpec(
            ranges=(),
            reader=self.source.reader(self.schema),
            # A row that a target refuses is quarantined under its offset.
            decoder=self._decoder(lineage=self.lineage or outputs.may_refuse),
            outputs=outputs,
            epoch=plan.ref.epoch,
            lineage=self.lineage,
            is_small=is_small,
        )
        # A small epoch is one task, whatever the engine's slots: the engine need not be asked or started.
        tasks = assign(plan.ranges, self.source.split, 1 if is_small else self.runner.slots, split_size)
        return self.runner.run([replace(template, ranges=ranges) for ranges in tasks], stop)

    def _decoder(self, *, lineage: bool) -> Decoder:
        """The decoder; an isolated one is reused: where tasks run in this process, its child serves many epochs."""
        if not self.is_isolated:
            return self.source.decoder(self.schema, lineage=lineage)
        if lineage not in self._isolated:
            self._isolated[lineage] = IsolatedDecoder(self.source.decoder(self.schema, lineage=lineage))
        return self._isolated[lineage]


@dataclass(frozen=True)
class NextEpoch:
    """The epoch that a writer is about to ingest.

    Attributes:
        chain: the decided epochs before it, with the committed positions.
        ranges: offset ranges of the source's plan.
        applied_through: every target is known to have the epochs up to this one; -1: none.
    """

    chain: Chain
    ranges: tuple[OffsetRange, ...]
    applied_through: int = -1


def run_epoch(
    job: JobContext,
    writer: EpochWriter,
    epoch: NextEpoch,
    lease: WriterLease,
    *,
    stop: threading.Event,
    completions: Completions | None = None,
) -> EpochResult:
    """Ingest the next epoch; afterwards it is applied and being completed, or settled and an error is raised.

    Args:
        job: timeline and targets.
        writer: turns offset ranges into rows.
        epoch: the epoch to ingest.
        lease: this writer's lease.
        stop: set by a signal; an epoch that is not prepared yet is rolled back then.
        completions: completes the epoch; None: completed before this returns.

    Raises:
        FencedError: another process decided this epoch or took over; nothing of this attempt is left.
        OutrunError: an earlier writer that woke up late decided this epoch; nothing of this attempt is left.
        StoppedError: `stop` was set.
        TargetBusyError: another writer writes the same rows; the epoch is rolled back, or decided and pending.
        TidelineError: any other failure; the epoch is rolled back, or decided and pending.
    """
    completions = completions or Completions(no_listener, beside=False)
    notify = completions.notify
    with within(Phase.OPEN, notify):
        plan = open_instant(job, epoch.chain, lease, epoch.ranges)
    notify(EpochOpened(plan))
    try:
        manifest = _write(job, writer, plan, stop, notify)
        lease.check()
        with within(Phase.DECIDE, notify):
            decision = claim_commit(job, plan, manifest, lease.generation, "written")
    except BaseException as error:
        _give_up(job, plan, lease, error, notify)
        raise
    lease.note_generation(decision.generation)
    if not decision.commits(plan.ref.instant):
        raise _lost_to(job, plan, manifest, decision, lease, notify)
    try:
        with within(Phase.APPLY, notify):
            apply_in_order(job, decision, manifest, applied_through=epoch.applied_through)
    except BaseException:
        notify(LeftPending(plan.ref, is_decided=True))
        raise
    result = EpochResult(decision, manifest, plan.ranges)
    completions.start(partial(complete, job, decision, manifest), result)
    return result


def _lost_to(
    job: JobContext, plan: Plan, manifest: Manifest, decision: Decision, lease: WriterLease, notify: Listener
) -> FencedError:
    """Roll back an epoch that another process decided first; returns the error to raise."""
    reason = f"epoch {plan.ref.epoch} was decided by {decision.by}"
    roll_back(job, plan.ref, manifest, reason)
    notify(RolledBack(plan.ref, reason))
    first = (
        f"{plan.ref}: {decision.by} decided it first ({decision.outcome.value} of instant {decision.instant}: "
        f"{decision.reason}). What this process wrote is removed"
    )
    if decision.generation < lease.generation:
        return OutrunError(f"{first}, and read again if that one did not commit it")
    return FencedError(f"{first}; it stops")


def _write(job: JobContext, writer: EpochWriter, plan: Plan, stop: threading.Event, notify: Listener) -> Manifest:
    with within(Phase.WRITE, notify):
        begun = {sink.target: sink.begin(plan) for sink in job.sinks}
        reach("begun")
        reports = writer.write(plan, Outputs.of(begun, job.quarantine), stop)
        reach("written")
        raise_failure(reports)
    with within(Phase.PREPARE, notify):
        return prepare(job, plan, merge_counts(reports), _by_target(job, reports))


def raise_failure(reports: Sequence[TaskReport]) -> None:
    """Raise the first error among the task reports, in its original class."""
    for report in reports:
        if report.failure is not None:
            raise error_of(report.failure)


def _by_target(job: JobContext, reports: Sequence[TaskReport]) -> dict[str, list[WriteReport]]:
    """Write reports of the tasks, by target; not every task writes to every target."""
    written = [report.reports or {} for report in reports]
    return {sink.target: [each[sink.target] for each in written if sink.target in each] for sink in job.sinks}


def _give_up(job: JobContext, plan: Plan, lease: WriterLease, error: BaseException, notify: Listener) -> None:
    """Settle this writer's epoch; an epoch that cannot be settled now stays pending for recovery.

    The caller raises the error that a person reads, so this function logs at INFO only.
    """
    first_line = next(iter(shown_error(error).splitlines()), "")
    cause = Cause(shortened(first_line, _LONGEST_CAUSE), is_crash(error))
    try:
        settle(job, plan.ref.instant, Settler(LeaseState.MINE, lease.generation, cause), notify=notify)
    except TidelineError as error:
        log.info("%s: left pending, tideline recover settles it: %s", plan.ref, error)
