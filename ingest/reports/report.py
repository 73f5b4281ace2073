"""State of a job for its report page, gathered once from timeline, source and writer, and the notices about it.

::

    storage, source ── gather ──► JobReport ── findings ──► Notice …
                                      └──── report_page.page ──► HTML
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ingest.driver.build import TimelineHandle
from ingest.driver.takeover import Recovery, examine
from ingest.protocol.recovery import StepKind
from ingest.reports.offsets import JobOffsets, ShardOffsets, ShardState, job_offsets
from ingest.reports.selection import Selection, select
from ingest.sources.quarantine import QUARANTINE_SHARD
from ingest.sources.replays import given_up_targets
from sinks.held import is_single, span_text
from timeline.decision import Outcome
from timeline.epoch import ShardCount
from timeline.errors import InvariantError, TargetRefusedError, TidelineError
from timeline.formatting import amount, count, duration
from timeline.history.epochs import History
from timeline.history.rows import EpochRow
from timeline.history.timeline import Timeline
from timeline.instant import Action
from timeline.lease import LeaseObserver, LeaseState

_IN_A_ROW = 3
_MANY_REJECTED = 0.1
_LONG_OPEN_S = 600.0
_NOTHING_TO_REPLAY = "could not be read, so that there is nothing to replay"
_IDLE_S = 600.0


@dataclass(frozen=True)
class JobReport:
    """State of a job.

    Attributes:
        job: its name.
        place: the URL of its timeline.
        conf: the path of its job file, as commands take it.
        at: time of the report, UTC.
        history: the selected instants.
        older: number of older instants that the selection's limit leaves out.
        offsets: offsets of its shards; None where they are not known.
        recovery: the steps that recovery would take; None where they are not known.
        lease: state of the latest writer's lease; None where it is not known.
        ended_by: the error that ended the latest writer; "" where none did, or none is recorded.
        refused: why a start would be refused: objects of the timeline are missing, or it is older than a target; ""
            where a start would not be refused.
        unknown: the parts that could not be read, each with its error.
        unreadable: files in the timeline's folder that are no instants.
    """

    job: str
    place: str
    conf: str
    at: datetime
    history: History
    older: int = 0
    offsets: JobOffsets | None = None
    recovery: Recovery | None = None
    lease: LeaseState | None = None
    ended_by: str = ""
    refused: str = ""
    unknown: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def last_committed(self) -> EpochRow | None:
        """The newest epoch that every target has."""
        done = [row for row in self.history.epochs() if row.state == "committed" and row.completed is not None]
        return max(done, key=lambda row: row.epoch, default=None)

    @property
    def rollbacks_in_a_row(self) -> int:
        """Number of rolled-back epochs at the end of the timeline, with no commit after them."""
        number = 0
        for row in reversed(self.history.epochs()):
            if row.outcome != "rollback":
                break
            number += 1
        return number


class Level(enum.Enum):
    """Urgency of a notice."""

    WELL = "all is well"
    LOOK = "have a look"
    ACT = "something has to be done"


@dataclass(frozen=True)
class Notice:
    """One fact that a person should know or act on.

    Attributes:
        level: its urgency.
        words: the fact, and the next step.
    """

    level: Level
    words: str


def gather(opened: TimelineHandle, conf: str, wanted: Selection, at: datetime) -> JobReport:
    """Read the state of a job; writes nothing. A source or target that does not answer becomes part of the report.

    Args:
        opened: the job; it may have no instant yet.
        conf: the path of its job file, as commands take it.
        wanted: the instants to read.
        at: now, UTC.

    Raises:
        StoreUnavailableError: the timeline's own store does not answer.
    """
    unknown: list[str] = []
    refused = ""
    timeline = Timeline.load(opened.store, opened.retry)
    chosen, older = select(timeline, wanted)
    observer = LeaseObserver(opened.store, opened.retry)
    lease: LeaseState | None = None
    recovery: Recovery | None = None
    offsets: JobOffsets | None = None
    try:
        lease = observer.look()
        recovery = examine(opened, observer=observer)
    except (InvariantError, TargetRefusedError) as error:
        refused = str(error)
    except TidelineError as error:
        unknown.append(f"what recovery would do: {error}")
    try:
        offsets = job_offsets(opened, 0 if not wanted.limit else wanted.limit)
    except TidelineError as error:
        unknown.append(f"how far the source is read: {error}")
    return JobReport(
        job=opened.config.name,
        place=opened.store.url,
        conf=conf,
        at=at,
        history=chosen.history(),
        older=older,
        offsets=offsets,
        recovery=recovery,
        lease=lease,
        ended_by=(observer.writer.ended_by or "") if observer.writer is not None else "",
        refused=refused,
        unknown=tuple(unknown),
        unreadable=timeline.unreadable,
    )


def findings(report: JobReport) -> list[Notice]:
    """Notices of everything that needs attention, the most urgent first; empty where all is well."""
    if report.refused:  # other notices would name commands that this refusal stops
        return [Notice(Level.ACT, report.refused), *_unread(report)]
    found = [*_pending(report), *_writer(report), *_rollbacks(report), *_source(report), *_unread(report)]
    if not report.history.entries:
        found.append(Notice(Level.LOOK, "The job has not begun: there is no instant yet."))
    return sorted(found, key=lambda finding: -list(Level).index(finding.level))


def level_of(found: Sequence[Notice]) -> Level:
    """The most urgent level."""
    return max((finding.level for finding in found), key=list(Level).index, default=Level.WELL)


def newest_offsets(offsets: JobOffsets) -> tuple[dict[str, int] | None, dict[str, int]]:
    """Newest offset of each shard (None where they are not known), and its committed offset: newest minus lag."""
    if offsets.unknown is not None:
        return None, {row.shard: row.committed for row in offsets.shards if row.committed is not None}
    newest, stands = {}, {}
    for row in offsets.shards:
        newest[row.shard] = row.newest if row.newest is not None else row.committed or 0
        stands[row.shard] = newest[row.shard] - (row.lag or 0)
    return newest, stands


def replayed_records(history: History) -> int:
    """Number of quarantined records that committed replays have read again; they do not count as source records."""
    return sum(count.read for _, count in _replays(history))


def _replays(history: History) -> Iterator[tuple[int, ShardCount]]:
    """For each committed replay, the epoch before which it read rejected records, and its counts."""
    for entry in history.entries:
        if entry.plan is None or entry.manifest is None or entry.outcome is not Outcome.COMMIT:
            continue
        until = [offsets.until for offsets in entry.plan.ranges if offsets.shard == QUARANTINE_SHARD]
        for each in entry.manifest.counts:
            if until and each.shard == QUARANTINE_SHARD:
                yield until[0], each


def rejected_by_reason(history: History) -> list[tuple[str, int, str]]:
    """Reason, rows, and a shard or target where it occurred, of committed epochs only; the most frequent first.

    Records that a replay has read from the quarantine no longer count; those it rejected again count as its own.
    """
    rows: dict[str, int] = {}
    where: dict[str, str] = {}
    before = 0
    replayed = max((until for until, _ in _replays(history)), default=0)
    for each in history.rejected():
        if each.outcome != "commit":
            continue
        if each.target is None and each.epoch < replayed:
            before += each.rows
        else:
            rows[each.reason] = rows.get(each.reason, 0) + each.rows
            where[each.reason] = each.shard or each.target or ""
    # The quarantine has no content of records that their source could not read, so a replay cannot decode them.
    left = before - replayed_records(history)
    if left > 0:
        rows[_NOTHING_TO_REPLAY], where[_NOTHING_TO_REPLAY] = left, ""
    return sorted(((reason, rows[reason], where[reason]) for reason in rows), key=lambda each: (-each[1], each[0]))


def lagging(offsets: JobOffsets) -> list[ShardOffsets]:
    """Shards, the most urgent first."""
    urgency: Mapping[ShardState, int] = {ShardState.LOST: 0, ShardState.GONE: 2, ShardState.CURRENT: 3}
    return sorted(offsets.shards, key=lambda row: (urgency.get(row.state, 1), -(row.lag or 0), row.shard))


def _pending(report: JobReport) -> Iterator[Notice]:
    if report.recovery is None:
        return
    for loss in report.recovery.losses:
        yield Notice(Level.ACT, f"{loss}. Run: tideline replay {report.conf} --dry-run")
    is_alive = report.lease in (LeaseState.LIVE, LeaseState.MINE)
    kinds = [step.kind for _, step in report.recovery.found]
    stuck = [kind for kind in kinds if kind not in (StepKind.WAIT, StepKind.HALT, StepKind.REFUSE, StepKind.REPLAY)]
    if StepKind.HALT in kinds:
        words = "cannot be told from storage what to do with: see below, and mend the store first."
        yield Notice(Level.ACT, f"{_instants(kinds.count(StepKind.HALT))} pending; it {words}")
    if StepKind.REFUSE in kinds:
        number = _instants(kinds.count(StepKind.REFUSE))
        words = f"pending: data files of it are gone. Run: tideline replay {report.conf} --dry-run"
        yield Notice(Level.ACT, f"{number} {words}")
    if StepKind.REPLAY in kinds:
        number = _instants(kinds.count(StepKind.REPLAY))
        yield Notice(Level.ACT, f"{number} pending: a target lost it. Run: tideline run {report.conf}")
    if stuck and not is_alive:
        yield Notice(
            Level.ACT,
            f"{_instants(len(stuck))} pending, and no writer is alive. Run: tideline recover {report.conf} "
            "(below is what it would do), or start the job, which recovers first.",
        )

    elif stuck or StepKind.WAIT in kinds:
        yield from _long_open(report)
    open_rollbacks = [each for each in report.history.entries if each.instant.action is Action.ROLLBACK]
    if not is_alive and any(each.instant.is_pending for each in open_rollbacks):
        yield Notice(Level.ACT, f"A rollback is not at its end. Run: tideline recover {report.conf}")


def _long_open(report: JobReport) -> Iterator[Notice]:
    """Notice of an instant open for long: a writer that did not release its lease may be alive, or lost."""
    requested = [row.requested for row in report.history.instants() if row.completed is None and row.requested]
    open_s = (report.at - min(requested, default=report.at)).total_seconds()
    if open_s > _LONG_OPEN_S:
        yield Notice(
            Level.LOOK,
            f"An instant has been open for {duration(open_s)}. Its writer has not said that it ended; if it is gone, "
            f"run: tideline recover {report.conf}",
        )


def _instants(number: int) -> str:
    return f"{count(number, 'instant')} {'is' if number == 1 else 'are'}"


def _writer(report: JobReport) -> Iterator[Notice]:
    if report.ended_by:
        said = f"{report.ended_by}{'' if report.ended_by.endswith(('.', '…')) else '.'}"
        yield Notice(Level.ACT, f"The last writer was ended by an error: {said} Run: tideline run {report.conf}")


def _rollbacks(report: JobReport) -> Iterator[Notice]:
    number = report.rollbacks_in_a_row
    if number:
        why = next((row.reason for row in reversed(report.history.epochs()) if row.reason), "no reason recorded")
        level = Level.ACT if number >= _IN_A_ROW else Level.LOOK
        what = "The last epoch was" if number == 1 else f"The last {number} epochs were"
        yield Notice(level, f"{what} rolled back ({why}); nothing was committed since.")


def _source(report: JobReport) -> Iterator[Notice]:
    offsets = report.offsets
    if offsets is not None and offsets.count(ShardState.LOST):
        names = ", ".join(row.shard for row in offsets.shards if row.state is ShardState.LOST)[:200]
        yield Notice(
            Level.ACT,
            f"Records are gone from the source before they were read, or a shard shrank: {names}. See the lag.",
        )
    if offsets is not None and offsets.is_silent:
        yield Notice(Level.LOOK, f"The source does not answer, so the lag is not known: {offsets.unknown}")
    last = report.last_committed
    is_idle = last is None or last.completed is None or (report.at - last.completed).total_seconds() > _IDLE_S
    if offsets is not None and offsets.lag and is_idle and report.lease not in (LeaseState.LIVE, LeaseState.MINE):
        yield Notice(Level.LOOK, f"{waiting(offsets)}, and no writer is running. Run: tideline run {report.conf}")
    rows = [row for row in report.history.epochs() if row.state == "committed"]
    replayed = replayed_records(report.history)
    read = sum(row.read or 0 for row in rows) - replayed
    rejected = sum(rows for _, rows, _ in rejected_by_reason(report.history))
    if read > 0 and rejected / read > _MANY_REJECTED:
        since = f"; {count(replayed, 'record')} that were before have been replayed" if replayed else ""
        yield Notice(
            Level.LOOK, f"{rejected:,} of {count(read, 'record')} were rejected ({rejected / read:.0%}){since}."
        )


def _unread(report: JobReport) -> Iterator[Notice]:
    for words in report.unknown:
        yield Notice(Level.LOOK, f"Not known: {words}")
    if report.unreadable:
        yield Notice(
            Level.LOOK, f"{count(len(report.unreadable), 'file')} of the timeline cannot be read; see the end."
        )
    problems = [problem for entry in report.history.entries for problem in entry.problems]
    if problems:
        yield Notice(Level.LOOK, f"{count(len(problems), 'part')} of instants cannot be read; see the end.")


def situation(report: JobReport) -> str:
    """Summary of the job's state in a few sentences."""
    last = report.last_committed
    if last is None or last.completed is None:
        words = "No epoch has been committed yet."
    else:
        age = duration(max(0.0, (report.at - last.completed).total_seconds()))
        words = _last_words(report, last.epoch, f"completed {age} before this was looked at")
    found = report.recovery.found if report.recovery is not None else ()
    if found and report.lease is LeaseState.LIVE:
        words += f" {_instants(len(found))} open; its writer may be alive."
    if report.offsets is not None and report.offsets.lag:
        words += f" {waiting(report.offsets)} to be read."
    return " ".join([words, *_given_up(report.history)])


def _last_words(report: JobReport, epoch: int, completed: str) -> str:
    if report.recovery is None:  # the timeline is incomplete, or a target does not answer
        return f"Epoch {epoch} is the last one on the timeline, {completed}; whether every target has it is not known."
    if report.recovery.losses:
        return f"Epoch {epoch} is the last one on the timeline, {completed}; not every target has all up to it."
    return f"Epoch {epoch} is the last one that every target has, {completed}."


def _given_up(history: History) -> Iterator[str]:
    """Epochs that a person gave up for a target: the target lacks them, and no action is needed."""
    for entry in history.entries:
        if entry.plan is None or entry.outcome is not Outcome.COMMIT:
            continue
        for target, among in given_up_targets(entry.plan).items():
            words = span_text(among).capitalize()
            yield f"{words} {'was' if is_single(among) else 'were'} given up for {target}, by epoch {entry.epoch}."


def waiting(offsets: JobOffsets) -> str:
    """Amount that waits to be read, as the beginning of a sentence."""
    unit = offsets.unit.value if offsets.unit is not None else "offsets"
    behind = sum(bool(row.lag) for row in offsets.shards)
    return f"{amount(offsets.lag or 0, unit)} in {behind:,} of {count(len(offsets.shards), 'shard')} wait"
