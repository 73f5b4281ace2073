"""Which committed epochs the targets of a job do not have any more, and whether a target is ahead of the timeline.

::

    newest manifest ─┬─► what each target must have ─┐
    target ─► what it has (`sinks.held`) ────────────┴─► lost epochs, with their rows
                     └─► has no part of a target ──────► epochs that the target was left out of

An epoch relies on those before it. So a start asks each target for them before it plans anything, and the commit of
an epoch asks again where somebody else wrote meanwhile (`sinks.delta.sink`). What was put back by a later epoch, or
given up (`ingest.sources.replays`), is not asked for any more. A target that was not in the job file for some epochs,
or is new in it, lacks them like one that has lost them; the newest manifest tells it at the first start with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ingest.driver.build import TimelineHandle, build_job, require_whole
from ingest.protocol.committed import CommittedRows, Read, committed_in, left_out, read_committed
from ingest.protocol.job import JobContext
from ingest.protocol.names import part_of, under_todays_names
from ingest.protocol.steps import read_manifest
from sinks.base import Lookup, Sink
from sinks.held import (
    REPLAY,
    RESTORE_TIMELINE,
    Base,
    Held,
    Span,
    TargetContents,
    base_of,
    contents_of,
    gone_since,
    gone_words,
    span_words,
    spans,
)
from timeline.active import ActiveTimeline
from timeline.chain import SNAPSHOT_EVERY, Chain
from timeline.decision import Decision, Outcome, read_decision
from timeline.epoch import Manifest
from timeline.errors import ConfigError, FormatError, StoreError, TargetRefusedError
from timeline.instant import Action
from timeline.units import count

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TargetLoss:
    """Committed epochs that a target does not have any more.

    Attributes:
        target: the target's name.
        how: what happened to it, in words.
        epochs: those that it has lost, oldest first.
        held: the target as it is.
        doubt: why it cannot be told which epochs it has lost; "" where it can.
        is_left_out: whether it never had these epochs: it was not in the job file then.
        pending: numbers of those that are decided and pending: it has lost their data files.
    """

    target: str
    how: str
    epochs: tuple[CommittedRows, ...]
    held: Held
    doubt: str = ""
    is_left_out: bool = False
    pending: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[Span, ...]:
        """The lost epochs' numbers."""
        return spans(each.part.epoch.epoch for each in self.epochs)

    @property
    def rows(self) -> int:
        """Rows that are gone."""
        return sum(each.part.rows for each in self.epochs)

    def __str__(self) -> str:
        """For people: target, what happened, which epochs."""
        if self.doubt:
            return f"{self.target} {self.how}: it cannot be told which epochs it has lost ({self.doubt})"
        rows = count(self.rows, "row")
        if self.is_left_out:
            return f"{self.target} was left out of {span_words(self.numbers)} ({rows}): it {self.how}"
        return f"{self.target} {self.how}: {gone_words(self.numbers, rows)} from it"


def refuse_ahead(job: JobContext) -> None:
    """Refuse a timeline that is older than a target: epochs that it would number again count as applied there.

    Raises:
        TargetRefusedError: naming the target, its newest epoch, and what the timeline says of it.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    for _, words in ahead(job):
        raise TargetRefusedError(f"{words} {RESTORE_TIMELINE}")  # a question ends them


def ahead(job: JobContext) -> Iterator[tuple[str, str]]:
    """Names of targets with epochs that the timeline has not decided to commit, each with this fact in words."""
    for sink in job.sinks:
        target = contents_of(sink)
        held = target.held() if target is not None else None
        if held is None or held.newest is None:
            continue
        decision = read_decision(job.store, held.newest, job.retry)
        older = "the timeline is older than this target: a restored backup, or objects that were deleted from it?"
        if decision is None and _is_behind(job, held.newest):
            continue  # a hole in the decisions, which whoever loads the chain names
        if decision is None:
            yield sink.target, f"{sink.target} has epoch {held.newest}, which {job.store.url} has not decided: {older}"
        elif decision.outcome is Outcome.ROLLBACK:
            yield sink.target, f"{sink.target} has epoch {held.newest}, which {job.store.url} has rolled back: {older}"
        elif held.instant is not None and held.instant != decision.instant:
            has = f"{sink.target} has epoch {held.newest} of instant {held.instant}"
            yield sink.target, f"{has}, {job.store.url} has decided it for instant {decision.instant}: {older}"


def _is_behind(job: JobContext, epoch: int) -> bool:
    """Whether the timeline has completed a later epoch."""
    newest = newest_completed(job)
    return newest is not None and newest.epoch > epoch


def require_known(opened: TimelineHandle) -> None:
    """As a start refuses a timeline, for commands that only look: what they show is not all that there was.

    Asks targets at a path only, and takes no answer for an answer.

    Raises:
        InvariantError: something of the timeline is gone.
        TargetRefusedError: a target has epochs that the timeline has not, or its log cannot be opened.
    """
    require_whole(opened)
    if opened.identity is None:
        return
    with contextlib.suppress(ConfigError, StoreError):  # of the job file and of targets others tell
        job = build_job(opened)
        options = (*opened.config.targets, opened.config.quarantine)
        at_paths = (sink for sink, each in zip(job.sinks, options, strict=True) if each.lake_path is not None)
        refuse_ahead(replace(job, sinks=tuple(at_paths)))


def refuse_losses(job: JobContext, chain: Chain) -> None:
    """Refuse targets that lack epochs before the next one.

    Raises:
        TargetRefusedError: naming each target, what happened to it, and the epochs that are gone.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    lost = find_losses(job, newest_commit(job, chain.committed, chain.next_epoch))
    if lost:
        raise TargetRefusedError(". ".join([*map(str, lost), REPLAY]))


def refuse_lost(job: JobContext) -> None:
    """As `refuse_losses`, of completed epochs: what is pending is no loss.

    Raises:
        TargetRefusedError: naming each target, what happened to it, and the epochs that are gone.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    lost = find_losses(job, newest_completed(job))
    if lost:
        raise TargetRefusedError(". ".join([*map(str, lost), REPLAY]))


def lost_epochs(job: JobContext, timeline: ActiveTimeline, settled: Sequence[Decision] = ()) -> list[str]:
    """What the targets have lost, or have more than the timeline, in words.

    Epochs that are pending are left out: recovery brings them to their targets.

    Args:
        job: the job.
        timeline: its newest instants.
        settled: decisions of the epochs that were completed since it was listed.
    """
    found = [words for _, words in ahead(job)]
    commits = [decision for decision in settled if decision.outcome is Outcome.COMMIT]
    completed = max(commits, key=lambda each: each.epoch) if commits else newest_completed(job, timeline)
    return found if found else [str(loss) for loss in find_losses(job, completed)]


def newest_completed(job: JobContext, timeline: ActiveTimeline | None = None) -> Decision | None:
    """The decision of the newest epoch that every target had applied; None where there is none.

    An epoch whose manifest cannot be read is passed over: whoever reads the timeline says so.

    Args:
        job: the job.
        timeline: its newest instants, where the caller has listed them.
    """
    timeline = timeline if timeline is not None else ActiveTimeline.recent(job.store, job.retry)
    for instant in reversed(timeline.completed().by_action(Action.COMMIT).instants):
        with contextlib.suppress(FormatError):
            manifest = read_manifest(job, instant.time)
            decision = read_decision(job.store, manifest.ref.epoch, job.retry) if manifest is not None else None
            if decision is not None and decision.commits(instant.time):
                return decision
    return None


def newest_commit(job: JobContext, known: Decision | None, next_epoch: int) -> Decision | None:
    """The newest decision to commit below an epoch; None where there is none.

    Args:
        job: the job.
        known: it, where the caller has it.
        next_epoch: the first epoch that is not looked at.
    """
    if known is not None:
        return known
    for epoch in range(next_epoch - 1, -1, -1):
        decision = read_decision(job.store, epoch, job.retry)
        if decision is not None and decision.outcome is Outcome.COMMIT:
            return decision
    return None


def find_losses(job: JobContext, newest: Decision | None, past: Sequence[Read] | None = None) -> list[TargetLoss]:
    """What the targets lack of all that was committed.

    Args:
        job: the job.
        newest: the newest decision to commit that every target had applied.
        past: all committed epochs up to it, where each of them is to be looked at; otherwise a target that the newest
            one has is taken to have been in the job file before as well.

    Raises:
        InvariantError: a decision or manifest of an epoch that a target lacks is gone.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    manifest = read_manifest(job, newest.instant) if newest is not None else None
    if newest is None or manifest is None:
        return []  # a manifest that is gone is told by whoever reads the timeline
    manifest = under_todays_names(job, manifest)
    return [loss for sink in job.sinks for loss in _losses(job, sink, newest, manifest, past)]


def _losses(
    job: JobContext, sink: Sink, newest: Decision, manifest: Manifest, past: Sequence[Read] | None
) -> Iterator[TargetLoss]:
    target = contents_of(sink)
    base = _expected(job, sink.target, manifest) if target is not None else None
    is_in_newest = part_of(manifest, sink.target) is not None
    if past is not None or not is_in_newest:
        held = target.held() if target is not None else _marked(sink, manifest)
        applied = -1 if held.newest is None else held.newest
        first = applied + 1 if past is None else 0
        read = read_committed(job, first, newest.epoch) if past is None else past
        base = base if is_in_newest else _last_base(sink.target, read, held)
        missed = tuple(left_out(job, sink.target, read, ((first, newest.epoch),), held))
        if missed:
            yield TargetLoss(sink.target, "was not among the job's targets", missed, held, is_left_out=True)
    loss = _loss(job, sink.target, target, base, newest) if target is not None and base is not None else None
    if loss is not None:
        yield loss


def _marked(sink: Sink, manifest: Manifest) -> Held:
    """A target that tells of single epochs only."""
    return Held(None, newest=manifest.ref.epoch if sink.lookup(manifest.ref) is Lookup.COMMITTED else None)


def _last_base(target: str, read: Sequence[Read], held: Held) -> Base:
    """What a target had that the newest epoch knows nothing of, as the last one tells that had rows for it."""
    parts = [part for each in read if (part := part_of(each.manifest, target)) is not None and part.rows]
    base = base_of(parts[-1]) if parts else None
    return Base(base.table if base else None, -1, parts[-1].epoch.epoch if parts else held.newest)


def _loss(job: JobContext, name: str, target: TargetContents, base: Base, newest: Decision) -> TargetLoss | None:
    held = target.held(base)
    gone = gone_since(base, held)
    if gone is not None and held.doubt and held.how:
        return TargetLoss(name, gone.how, (), held, held.doubt)
    if gone is None:
        _warn_of_doubt(job, name, target, newest, held)
        return None
    lost = tuple(committed_in(job, name, gone.epochs, newest.epoch))
    return TargetLoss(name, gone.how, lost, held) if lost else None


def _warn_of_doubt(job: JobContext, name: str, target: TargetContents, newest: Decision, held: Held) -> None:
    """Where the log was cleaned up under what others did, the newest epoch's own files tell that nothing is lost."""
    if not held.doubt or held.newest is None:
        return
    for each in committed_in(job, name, ((held.newest, held.newest),), newest.epoch):
        if target.has_all(each.part):
            return
    log.warning(
        "%s: it cannot be told whether others took epochs out of it: %s; look with tideline fsck", name, held.doubt
    )


def _expected(job: JobContext, target: str, manifest: Manifest) -> Base | None:
    """What a target had when an epoch was completed; None where nothing is known of it, or nothing was there."""
    part = part_of(manifest, target)
    if part is None:
        return None
    base = base_of(part)
    if part.rows:
        # Its version is the one before the epoch: the epoch's own entry is where the look ends.
        return Base(base.table if base else None, -1, part.epoch.epoch)
    return base if base is not None else _older(job, target, manifest.ref.epoch)


def _older(job: JobContext, target: str, epoch: int) -> Base | None:
    """The same, of manifests that do not say on what they were prepared: the newest one with rows tells it."""
    for earlier in range(epoch - 1, max(-1, epoch - 1 - SNAPSHOT_EVERY), -1):
        decision = read_decision(job.store, earlier, job.retry)
        if decision is None or decision.outcome is not Outcome.COMMIT:
            continue
        manifest = read_manifest(job, decision.instant)
        part = part_of(under_todays_names(job, manifest), target) if manifest else None
        if part is not None and (part.rows or base_of(part) is not None):
            return Base(None, -1, part.epoch.epoch) if part.rows else base_of(part)
    return None
