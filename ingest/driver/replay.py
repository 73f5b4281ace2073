"""Rewrites a decided epoch to one target that has lost its prepared part.

::

    commit(part) ── ReplayNeededError ─► begin ─► read the plan's ranges ─► same rows? ─► prepare ─► commit(new part)
                                                  nothing for the others    no: a person has to look

A transactional target can lose a part that is prepared and decided: a reader that meets a lock behind its
time to live rolls the transaction back. The plan still names the epoch's records, so they are read again and
given to that target alone; all others, and the quarantine, have the records or get them from their own
parts. The manifest stays as it is: after a kill in here, the next process starts over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ingest.driver.epoch import EpochWriter, raise_failure
from ingest.execution.task import Outputs, TaskReport, merge_counts
from ingest.protocol.counts import TargetRows, check_counts, check_part
from ingest.protocol.job import JobContext
from ingest.protocol.steps import read_plan
from sinks.base import TaskAttempt
from timeline.epoch import Manifest, Part, Plan, ShardCount, WriteReport
from timeline.errors import InvariantError
from timeline.failpoints import reach
from timeline.instant import commit_requested


@dataclass(frozen=True)
class Replay:
    """Rewrites lost parts, with a pipeline made on demand. See `ingest.protocol.job.Rewrite`.

    Attributes:
        open_writer: returns the pipeline; starts the engine where it does not run yet.
        stop: set by a signal; the epoch stays decided and pending then.
    """

    open_writer: Callable[[], EpochWriter]
    stop: threading.Event

    def __call__(self, job: JobContext, manifest: Manifest, part: Part) -> Part:
        """See Rewrite.

        Raises:
            InvariantError: the same ranges do not give the same rows, the plan is missing, or the lost part is the
                quarantine's.
            SourceError: the ranges cannot be read any more.
            StoppedError: `stop` was set; the epoch stays decided and pending.
        """
        plan = read_plan(job, manifest.ref.instant)
        if plan is None:
            raise InvariantError(
                f"{manifest.ref} is decided and has to be written to {part.target} again, but its plan "
                f"{commit_requested(manifest.ref.instant).path} is gone: restore it, then run again"
            )
        changed = changed_reading(job, plan)
        if changed:
            raise InvariantError(f"{_says(manifest, part)}: {changed}. Nothing was touched")
        if part.target == job.quarantine:
            raise InvariantError(
                f"{manifest.ref}: the quarantine {part.target} lost what was prepared; what targets had rejected "
                "cannot be made again from the source. Nothing was touched"
            )
        writer = self.open_writer()
        sink = job.sink(part.target)
        begun = sink.begin(plan)
        reach("begun")
        outputs = Outputs.of({part.target: begun, job.quarantine: Discarding()}, job.quarantine)
        reports = writer.write(plan, outputs, self.stop)
        reach("written")
        raise_failure(reports)
        mine = reports_of(part.target, reports)
        counts = merge_counts(reports)
        check_counts(
            plan, job.quarantine, counts, {part.target: mine, job.quarantine: reports_of(job.quarantine, reports)}
        )
        check_same(manifest, part, counts, mine)
        again = sink.prepare(plan.ref, mine)
        check_part(part.target, plan.ref, again, mine)
        reach("part-prepared")
        return again


@dataclass(frozen=True)
class Discarding:
    """A `PartitionWriter` for rows that are written elsewhere: counts the rows and drops them."""

    def open(self, attempt: TaskAttempt) -> DiscardingBatches:
        """See PartitionWriter."""
        return DiscardingBatches()


class DiscardingBatches:
    """See `Discarding`."""

    def __init__(self) -> None:
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See BatchWriter."""
        self._rows += batch.num_rows

    def close(self) -> WriteReport:
        """See BatchWriter."""
        return WriteReport(self._rows, 0)

    def abort(self) -> None:
        """See BatchWriter; there is nothing to remove."""


def reports_of(target: str, reports: Sequence[TaskReport]) -> list[WriteReport]:
    """Write reports of one target."""
    return [report.reports[target] for report in reports if report.reports and target in report.reports]


def check_same(manifest: Manifest, part: Part, counts: Sequence[ShardCount], reports: Sequence[WriteReport]) -> None:
    """Require that the rows read and written again are those decided, so that an epoch has one content.

    Args:
        manifest: the decided epoch.
        part: the lost part of one target.
        counts: records read again, by shard.
        reports: rows written again to the part's target.

    Raises:
        InvariantError: row counts differ; names the shard or the target, and both counts.
    """
    check_counts_same(manifest, part, counts)
    prepared, now = TargetRows.of(part), TargetRows.of(reports)
    if prepared != now:
        raise InvariantError(
            f"{_says(manifest, part)}: its part was {prepared}, now it is {now}. "
            f"{_LOOK}: has someone else written these keys, or has the target's block in the job file changed?"
        )


def check_counts_same(manifest: Manifest, part: Part, counts: Sequence[ShardCount]) -> None:
    """The first half of `check_same`: require that the records read again are those decided.

    Args:
        manifest: the decided epoch.
        part: the lost part of one target.
        counts: records read again, by shard.

    Raises:
        InvariantError: record counts differ; names the shard, and both counts.
    """
    before = {count.shard: count for count in manifest.counts}
    for count in counts:
        then = before[count.shard]
        # Not the reasons: a report keeps only some of many, and which depends on how tasks were split.
        if replace(count, reasons={}) != replace(then, reasons={}):
            raise InvariantError(
                f"{_says(manifest, part)}: shard {count.shard} was {_numbers(then)}, now it is {_numbers(count)}. "
                f"{_LOOK}: has the source changed below what was committed, or has another version of Tideline decided "
                "it, which takes other records (its changelog tells)? That version can write it again"
            )


_LOOK = "Nothing of it is visible there; a person has to look"


def changed_reading(job: JobContext, plan: Plan) -> str:
    """A message naming the keys of the job file that would change the values of an epoch's records; "" if none.

    Args:
        job: the job, as its file is today.
        plan: the epoch's plan; plans of older versions do not record these keys, so the answer is "".
    """
    then, now = plan.reading, job.reading
    if then is None or then == now:
        return ""
    changes = [
        f"{key} was {then.get(key, 'left out')!r}, now it is {now.get(key, 'left out')!r}"
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
    ]
    return f"the job file reads records otherwise than when the epoch was written: {', '.join(changes)}. Put that back"


def _says(manifest: Manifest, part: Part) -> str:
    return f"{manifest.ref} is decided, {part.target} lost it, and writing it again does not give the same rows"


def _numbers(count: ShardCount) -> str:
    return f"{count.read} read = {count.accepted} accepted + {count.rejected} rejected"
