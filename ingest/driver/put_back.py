"""`tideline replay`: puts back epochs that a target has lost, or was left out of, each once, or gives them up for good.

::

    lease ─► losses ─► what is pending is settled ─► one epoch of the shard tideline:replay
                                                        ├ data files that are there: named again
                                                        ├ those of another table: copied
                                                        ├ others: read again by their offsets, written anew
                                                        └ --accept-loss: the rest, as a hole

A replay is an epoch (`ingest.sources.replays`): after a kill anywhere the next start settles it like any other, and
of two concurrent replays one is decided. One log entry puts back all lost epochs of a target, so no reader sees a
part of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ingest.driver.build import TimelineHandle, build_job, require_whole
from ingest.driver.epoch import EpochWriter, NextEpoch, raise_failure, run_epoch
from ingest.driver.losses import TargetLoss, find_losses, newest_commit, newest_completed, refuse_ahead
from ingest.driver.replay import Discarding, check_counts_same, check_same, reports_of
from ingest.driver.stores import probe_stores
from ingest.driver.ways_back import Lost, ReplayWorld, RowOrigin, pieces_of, way_back
from ingest.driver.with_gaps import with_gaps, with_pending
from ingest.execution.task import Outputs, TaskReport, merge_counts
from ingest.protocol.committed import (
    CommittedEpoch,
    CommittedRows,
    given_up,
    read_committed,
    settled_for,
)
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import recover
from ingest.sources.replays import REPLAY_SHARD, replay_range
from sinks.base import PartitionWriter
from sinks.held import Span, contents_of, copies_of, in_spans, span_text, spans
from timeline.active import ActiveTimeline
from timeline.chain import load_chain
from timeline.decision import Decision
from timeline.epoch import Part, Plan, ShardCount, WriteReport
from timeline.errors import ConfigError, TargetRefusedError
from timeline.failpoints import reach
from timeline.lease import LeaseObserver, WriterLease
from timeline.units import count


@dataclass(frozen=True)
class ReplayRequest:
    """Request on lost epochs.

    Attributes:
        epochs: first and last epoch to put back; None: all, or with `accept_loss` none.
        accept_loss: whether the other lost epochs are given up.
    """

    epochs: Span | None = None
    accept_loss: bool = False


@dataclass(frozen=True)
class ReplayResult:
    """Findings and results of a replay, done or only planned.

    Attributes:
        losses: epochs that the targets have lost.
        back: lost epochs that are put back.
        given_up: lost epochs that are not put back.
        refused: message on why the replay is refused; "" where it is not.
        epoch: number of the replay's own epoch; None where there is none.
        before: by target, epochs that were given up earlier; only where nothing is lost now.
        not_compared: targets whose sinks do not record their epochs, so that losses cannot be found.
    """

    losses: Sequence[TargetLoss] = ()
    back: Sequence[Lost] = ()
    given_up: Sequence[Lost] = ()
    refused: str = ""
    epoch: int | None = None
    before: Mapping[str, Sequence[CommittedRows]] = field(default_factory=dict)
    not_compared: Sequence[str] = ()


def examine_losses(opened: TimelineHandle, wanted: ReplayRequest) -> ReplayResult:
    """The replay that would run now; reads only.

    Raises:
        InvariantError: an object of the timeline is missing.
        TargetRefusedError: a target has epochs that the timeline does not have, or its log names missing data files.
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    require_whole(opened)
    opened.require_owner()
    if opened.identity is None:
        return ReplayResult()
    job = build_job(opened)
    refuse_ahead(job)
    newest = newest_completed(job)
    past = _past(job, newest)
    found = _planned(ReplayWorld(opened, job, past), with_pending(job, find_losses(job, newest, past)), wanted)
    return found if found.losses else _without_losses(job, found, past)


def put_back(
    opened: TimelineHandle, wanted: ReplayRequest, open_writer: Callable[[], EpochWriter], stop: threading.Event
) -> ReplayResult:
    """Put back, or give up, the epochs that targets have lost, as this timeline's writer.

    Args:
        opened: the job's timeline.
        wanted: the epochs to put back, and whether others may be given up.
        open_writer: returns the writer that reads the source; called only where epochs are read again.
        stop: set by a signal; the epoch is rolled back then.

    Raises:
        InvariantError: an object of the timeline is missing; nothing was touched.
        WriterBusyError: another process writes this timeline.
        ConfigError: lost epochs are neither named nor given up, or cannot be put back.
        TargetRefusedError: a target has epochs that the timeline does not have, its log names missing data files, or
            it was changed meanwhile.
        SourceError: the source does not have the records any more; the epoch is rolled back.
        TidelineError: any other failure; the next start settles the epoch.
    """
    require_whole(opened)
    opened.require_owner()
    if opened.identity is None:
        return ReplayResult()
    probe_stores(opened)
    lease = opened.take_lease(LeaseObserver(opened.store, opened.retry))
    lease.start_heartbeats()
    try:
        reach("lease-taken")
        return _put_back(opened, lease, wanted, open_writer, stop)
    finally:
        lease.release()


def _put_back(
    opened: TimelineHandle,
    lease: WriterLease,
    wanted: ReplayRequest,
    open_writer: Callable[[], EpochWriter],
    stop: threading.Event,
) -> ReplayResult:
    job = build_job(opened)
    refuse_ahead(job)
    newest = newest_completed(job)
    past = _past(job, newest)
    found = _planned(ReplayWorld(opened, job, past), with_pending(job, find_losses(job, newest, past)), wanted)
    if found.refused:
        raise ConfigError(found.refused)
    recover(with_gaps(job, found.losses), lease)
    chain = load_chain(opened.store, ActiveTimeline.recent(opened.store, opened.retry), opened.retry, repair=True)
    # Again: epochs that were pending count now, and those of a killed, decided replay are back.
    newest = newest_commit(job, chain.committed, chain.next_epoch)
    past = _past(job, newest)
    found = _planned(ReplayWorld(opened, job, past), _still_lost(job, newest, past, found.losses), wanted)
    if found.refused:
        raise ConfigError(found.refused)
    if not found.losses:
        return _without_losses(job, found, past)
    offsets = replay_range(
        chain,
        _by_target(found.back),
        _by_target(found.given_up),
        "; ".join(f"{loss.target} {loss.how}" for loss in found.losses),
    )
    writer = LostRows(job, found.back, open_writer)
    result = run_epoch(job, writer, NextEpoch(chain, (offsets,)), lease, stop=stop)
    return replace(found, epoch=result.decision.epoch)


def _past(job: JobContext, newest: Decision | None) -> Sequence[CommittedEpoch]:
    """All committed epochs; missing objects are reported only where a target had rows of their epoch."""
    return read_committed(job, 0, newest.epoch, is_strict=False) if newest is not None else ()


def _without_losses(job: JobContext, found: ReplayResult, past: Sequence[CommittedEpoch]) -> ReplayResult:
    _refuse_named_and_gone(job)
    return replace(found, before=given_up(job, past))


def _refuse_named_and_gone(job: JobContext) -> None:
    """Refuse a table that has all epochs by its log, but whose log names missing data files.

    The epochs of the files are unknown: other writers may have compacted them.

    Raises:
        TargetRefusedError: naming the table, one file and the number of others, and the next step.
    """
    for sink in job.sinks:
        contents = contents_of(sink)
        gone = contents.missing_files() if contents is not None else ()
        if gone:
            more = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
            raise TargetRefusedError(
                f"{sink.target} has all epochs, and its log names a data file that is gone: {gone[0]}{more}. Nothing "
                "was written. Restore it from the store's versions or a backup; where that is not possible, remove "
                "the table's _delta_log (the other data files stay), and tideline replay CONF makes the table anew, "
                "with the epochs of these files from the source. What others changed in the table is undone by that"
            )


def _still_lost(
    job: JobContext, newest: Decision | None, past: Sequence[CommittedEpoch], first: Sequence[TargetLoss]
) -> list[TargetLoss]:
    """Losses after recovery, with nothing pending.

    Epochs lost before the recovery still are, unless a pending replay has settled them: after an epoch applied on a
    gap, a table may show no more than the gap; after one that created the table anew, no earlier epoch.
    """
    told = {loss.target: loss.how for loss in first if not loss.is_left_out}
    found = [
        loss if loss.is_left_out else replace(loss, how=told.get(loss.target, loss.how))
        for loss in find_losses(job, newest, past)
    ]
    known = {(loss.target, each.part.epoch.epoch) for loss in found for each in loss.epochs}
    for loss in first:
        settled = settled_for(loss.target, past)
        numbers = ((each, each.part.epoch.epoch) for each in loss.epochs)
        left = tuple(
            each for each, number in numbers if (loss.target, number) not in known and not in_spans(number, settled)
        )
        if left:
            found.append(replace(loss, epochs=left, pending=()))
    return found


def _by_target(lost: Sequence[Lost]) -> dict[str, tuple[Span, ...]]:
    targets = dict.fromkeys(each.target for each in lost)
    return {target: spans(each.number for each in lost if each.target == target) for target in targets}


def _planned(world: ReplayWorld, losses: Sequence[TargetLoss], wanted: ReplayRequest) -> ReplayResult:
    """The lost epochs to put back, with the way for each, and those to give up; or why the replay is refused."""
    ways = [way_back(world, loss.target, each) for loss in losses for each in loss.epochs]
    asked = [each for each in ways if wanted.epochs is None or in_spans(each.number, [wanted.epochs])]
    back = [each for each in asked if each.way is not RowOrigin.NONE]
    if wanted.epochs is None and wanted.accept_loss:
        back = []
    given_up = [each for each in ways if each not in back]
    refused = "; ".join(_refused(losses, ways, given_up, wanted))
    not_compared = [sink.target for sink in world.job.sinks if contents_of(sink) is None]
    return ReplayResult(losses, back, given_up, refused, not_compared=not_compared)


def _refused(
    losses: Sequence[TargetLoss], ways: Sequence[Lost], given_up: Sequence[Lost], wanted: ReplayRequest
) -> Iterator[str]:
    for loss in losses:
        if loss.doubt and not wanted.accept_loss:
            without = "tideline replay CONF --accept-loss"
            yield f"{loss}. Restore the table to a version that has them, or go on without: {without}"
    if wanted.epochs is not None and losses and not any(in_spans(each.number, [wanted.epochs]) for each in ways):
        yield f"--epochs {wanted.epochs[0]}..{wanted.epochs[1]}: none of them is lost"
    if given_up and not wanted.accept_loss:
        for each in given_up:
            if each.way is RowOrigin.NONE:
                yield f"{each.target}: epoch {each.number} {each.way.value}: {each.why}"
        names = ", ".join(f"{target}: {span_text(among)}" for target, among in _by_target(given_up).items())
        back = [each.number for each in ways if each not in given_up]
        kept = wanted.epochs or ((min(back), max(back)) if back else None)
        epochs = f" --epochs {kept[0]}..{kept[1]}" if kept is not None else ""
        yield (
            f"this leaves {names} behind, and nothing may be added behind a gap: tideline replay CONF{epochs} "
            "--accept-loss gives them up for good"
        )


@dataclass(frozen=True)
class LostRows:
    """Writes the epoch of a replay. See `ingest.driver.epoch.EpochWriter`.

    Attributes:
        job: timeline and targets.
        back: the lost epochs to put back.
        open_writer: returns the writer that reads the source.
    """

    job: JobContext
    back: Sequence[Lost]
    open_writer: Callable[[], EpochWriter]

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """See EpochWriter: existing data files are reported as they are, others are written.

        Raises:
            InvariantError: the same offsets do not give the same rows.
            SourceError: the source does not have the records any more.
            TargetRefusedError: a target refuses rows that were not refused at the commit.
        """
        written: dict[str, list[WriteReport]] = {sink.target: [] for sink in self.job.sinks}
        pieces = [piece for each in self.back for piece in pieces_of(each)]
        for each in pieces:
            if each.way is RowOrigin.FILES:
                part = each.epoch.part
                written[each.target].append(WriteReport(part.rows, part.bytes, part.files, part.dropped))
            elif each.origin is not None:
                written[each.target].append(self._copied(plan, each, each.origin))
        for number in sorted({each.number for each in pieces if each.way is RowOrigin.SOURCE}):
            again = [each for each in pieces if each.way is RowOrigin.SOURCE and each.number == number]
            for target, reports in self._read_again(plan, outputs, again, stop).items():
                written[target] += reports
        return _reports(written, self.job.quarantine)

    @cached_property
    def _writer(self) -> EpochWriter:
        """The writer for all epochs that are read again, opened with the first."""
        return self.open_writer()

    def _copied(self, plan: Plan, lost: Lost, origin: Part) -> WriteReport:
        """Copy the data files of another target, which has the same rows."""
        source, target = copies_of(self.job.sink(origin.target)), copies_of(self.job.sink(lost.target))
        assert source is not None and target is not None
        report = target.write(plan.ref.instant, origin.files, source.read)
        return replace(report, dropped=lost.epoch.part.dropped)

    def _read_again(
        self, plan: Plan, outputs: Outputs, lost: Sequence[Lost], stop: threading.Event
    ) -> dict[str, list[WriteReport]]:
        """Write one epoch's records to the targets that lost it, and check their row counts."""
        epoch, quarantine = lost[0].epoch, self.job.quarantine
        assert epoch.plan is not None
        # The lost epoch's number, for the rows' lineage; the replay's instant, whose files a rollback deletes.
        own = replace(epoch.plan, ref=replace(plan.ref, epoch=epoch.plan.ref.epoch))
        targets = {each.target for each in lost}
        rejects: PartitionWriter = outputs.quarantine[1] if quarantine in targets else Discarding()
        only = Outputs(
            tuple((name, writer) for name, writer in outputs.accepting if name in targets), (quarantine, rejects)
        )
        reports = self._writer.write(own, only, stop)
        raise_failure(reports)
        counts = merge_counts(reports)
        found: dict[str, list[WriteReport]] = {}
        for each in lost:
            mine = reports_of(each.target, reports)
            self._check_same(each, counts, mine)
            # Rows that the target refuses are in the quarantine since the first commit of the epoch.
            found[each.target] = [replace(report, rejected=0) for report in mine]
        return found

    def _check_same(self, lost: Lost, counts: Sequence[ShardCount], mine: Sequence[WriteReport]) -> None:
        part = lost.epoch.part
        refused = sum(report.rejected for report in mine) - part.rejected
        if refused > 0:
            raise TargetRefusedError(
                f"{lost.target}: it refuses {count(refused, 'row')} of epoch {lost.number} that no target refused when "
                "it was committed, and the quarantine has none of them. Nothing was written; tideline replay CONF "
                "--accept-loss gives the epoch up"
            )
        others = (other for other in lost.epoch.manifest.parts if other.target != self.job.quarantine)
        if not lost.epoch.is_left_out or any(other.files for other in others):
            check_same(lost.epoch.manifest, part, counts, mine)
            return
        check_counts_same(lost.epoch.manifest, part, counts)


def _reports(written: Mapping[str, Sequence[WriteReport]], quarantine: str) -> list[TaskReport]:
    """Task reports whose counts add up: rows put back in one target count as dropped by the targets that have them."""
    given = {target: sum(one.rows + one.dropped for one in reports) for target, reports in written.items()}
    rejected = given.pop(quarantine, 0)
    accepted = max(given.values(), default=0)
    replayed = ShardCount(REPLAY_SHARD, accepted + rejected, accepted, rejected)
    rest = {target: WriteReport(0, 0, dropped=accepted - rows) for target, rows in given.items()}
    found = [TaskReport((replayed,), {**rest, quarantine: WriteReport(0, 0)})]
    for target, reports in written.items():
        found += [TaskReport((), {target: report}) for report in reports]
    return found
