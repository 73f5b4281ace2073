"""Finds committed epochs that the targets of a job have lost, and targets that are ahead of the timeline.

::

    newest manifest ─┬─► what each target must have ─┐
    target ─► what it has (`sinks.held`) ────────────┴─► lost epochs, with their rows
                     └─► has no part of a target ──────► epochs that the target was left out of

An epoch relies on all earlier ones. So a start checks each target for them before it plans, and the commit of an
epoch checks again where another writer wrote meanwhile (`sinks.delta.sink`). Epochs that a later one has put back, or
that were given up (`ingest.sources.replays`), are not required any more. A target that was not in the job file for
some epochs, or is new in it, lacks them like lost ones; the newest manifest shows this at the first start with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ingest.driver.build import TimelineHandle, build_job, require_whole
from ingest.protocol.committed import CommittedEpoch, CommittedRows, committed_in, left_out, read_committed
from ingest.protocol.job import JobContext
from ingest.protocol.names import part_of, under_current_names
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
    lost_epochs_text,
    lost_since,
    span_text,
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
    """Committed epochs that a target has lost.

    Attributes:
        target: the target's name.
        how: text on the event behind the loss.
        epochs: the lost epochs, oldest first.
        held: the target as it is.
        doubt: why the lost epochs cannot be determined; "" where they are.
        is_left_out: whether the target never had these epochs: it was not in the job file then.
        pending: numbers of decided, pending epochs among them: the target has lost their data files.
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
        """Number of lost rows."""
        return sum(each.part.rows for each in self.epochs)

    def __str__(self) -> str:
        """Message with the target, the event, and the lost epochs."""
        if self.doubt:
            return f"{self.target} {self.how}: it cannot be told which epochs it has lost ({self.doubt})"
        rows = count(self.rows, "row")
        if self.is_left_out:
            return f"{self.target} was left out of {span_text(self.numbers)} ({rows}): it {self.how}"
        return f"{self.target} {self.how}: {lost_epochs_text(self.numbers, rows)} from it"


def refuse_ahead(job: JobContext) -> None:
    """Refuse a timeline that is older than a target: the target counts the next epoch numbers as applied.

    Raises:
        TargetRefusedError: naming the target, its newest epoch, and the timeline's decision for it.
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    for _, words in targets_ahead(job):
        raise TargetRefusedError(f"{words} {RESTORE_TIMELINE}")  # `words` ends with a question mark


def targets_ahead(job: JobContext) -> Iterator[tuple[str, str]]:
    """Names of targets with epochs that the timeline has not decided to commit, each with a message."""
    for sink in job.sinks:
        target = contents_of(sink)
        held = target.held() if target is not None else None
        if held is None or held.newest is None:
            continue
        decision = read_decision(job.store, held.newest, job.retry)
        older = "the timeline is older than this target: a restored backup, or objects that were deleted from it?"
        if decision is None and _is_behind(job, held.newest):
            continue  # a missing decision, which `load_chain` reports
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
    """Refuse, for read-only commands, a timeline that a start would refuse: their output would be incomplete.

    Checks only targets at a path, and ends without an error where a store does not answer.

    Raises:
        InvariantError: an object of the timeline is missing.
        TargetRefusedError: a target has epochs that the timeline does not have, or its log cannot be opened.
    """
    require_whole(opened)
    if opened.identity is None:
        return
    with contextlib.suppress(ConfigError, StoreError):  # other commands report errors of the job file and of targets
        job = build_job(opened)
        options = (*opened.config.targets, opened.config.quarantine)
        at_paths = (sink for sink, each in zip(job.sinks, options, strict=True) if each.lake_path is not None)
        refuse_ahead(replace(job, sinks=tuple(at_paths)))


def refuse_losses(job: JobContext, chain: Chain) -> None:
    """Refuse targets that lack epochs before the next one.

    Raises:
        TargetRefusedError: naming each target, the event behind the loss, and the lost epochs.
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    _refuse(find_losses(job, newest_commit(job, chain.committed, chain.next_epoch)))


def refuse_lost(job: JobContext) -> None:
    """As `refuse_losses`, for completed epochs only: a pending epoch is no loss.

    Raises:
        TargetRefusedError: naming each target, the event behind the loss, and the lost epochs.
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    _refuse(find_losses(job, newest_completed(job)))


def _refuse(losses: Sequence[TargetLoss]) -> None:
    if losses:
        raise TargetRefusedError(". ".join([*map(str, losses), REPLAY]))


def lost_epochs(job: JobContext, timeline: ActiveTimeline, settled: Sequence[Decision] = ()) -> list[str]:
    """Messages on epochs that targets have beyond the timeline; if there are none, on epochs that targets have lost.

    Pending epochs are left out: recovery applies them.

    Args:
        job: the job.
        timeline: its newest instants.
        settled: decisions of the epochs that were completed since the timeline was listed.
    """
    found = [words for _, words in targets_ahead(job)]
    commits = [decision for decision in settled if decision.outcome is Outcome.COMMIT]
    completed = max(commits, key=lambda each: each.epoch) if commits else newest_completed(job, timeline)
    return found if found else [str(loss) for loss in find_losses(job, completed)]


def newest_completed(job: JobContext, timeline: ActiveTimeline | None = None) -> Decision | None:
    """The decision of the newest epoch that every target had applied; None where there is none.

    Skips an epoch whose manifest cannot be read: readers of the timeline report it.

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
        known: this decision, where the caller has it.
        next_epoch: the search begins below this epoch.
    """
    if known is not None:
        return known
    for epoch in range(next_epoch - 1, -1, -1):
        decision = read_decision(job.store, epoch, job.retry)
        if decision is not None and decision.outcome is Outcome.COMMIT:
            return decision
    return None


def find_losses(
    job: JobContext, newest: Decision | None, past: Sequence[CommittedEpoch] | None = None
) -> list[TargetLoss]:
    """Committed epochs that the targets lack.

    Args:
        job: the job.
        newest: the newest decision to commit that every target had applied; None: there is no loss.
        past: all committed epochs up to it, to check each one; None: a target in the newest epoch is assumed to have
            been in the job file for all earlier ones.

    Raises:
        InvariantError: a decision or manifest of an epoch that a target lacks is missing.
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    manifest = read_manifest(job, newest.instant) if newest is not None else None
    if newest is None or manifest is None:
        return []  # readers of the timeline report a missing manifest
    manifest = under_current_names(job, manifest)
    return [loss for sink in job.sinks for loss in _losses(job, sink, newest, manifest, past)]


def _losses(
    job: JobContext, sink: Sink, newest: Decision, manifest: Manifest, past: Sequence[CommittedEpoch] | None
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
    """State of a target that supports lookups of single epochs only."""
    return Held(None, newest=manifest.ref.epoch if sink.lookup(manifest.ref) is Lookup.COMMITTED else None)


def _last_base(target: str, read: Sequence[CommittedEpoch], held: Held) -> Base:
    """Required state of a target without a part in the newest epoch, by the last epoch with rows for the target."""
    parts = [part for each in read if (part := part_of(each.manifest, target)) is not None and part.rows]
    base = base_of(parts[-1]) if parts else None
    return Base(base.table if base else None, -1, parts[-1].epoch.epoch if parts else held.newest)


def _loss(job: JobContext, name: str, target: TargetContents, base: Base, newest: Decision) -> TargetLoss | None:
    held = target.held(base)
    gone = lost_since(base, held)
    if gone is not None and held.doubt and held.how:
        return TargetLoss(name, gone.how, (), held, held.doubt)
    if gone is None:
        _warn_of_doubt(job, name, target, newest, held)
        return None
    lost = tuple(committed_in(job, name, gone.epochs, newest.epoch))
    return TargetLoss(name, gone.how, lost, held) if lost else None


def _warn_of_doubt(job: JobContext, name: str, target: TargetContents, newest: Decision, held: Held) -> None:
    """Warn where log clean-up hides other writers' commits, unless all files of the newest epoch are still visible."""
    if not held.doubt or held.newest is None:
        return
    for each in committed_in(job, name, ((held.newest, held.newest),), newest.epoch):
        if target.has_all(each.part):
            return
    log.warning(
        "%s: it cannot be told whether others took epochs out of it: %s; look with tideline fsck", name, held.doubt
    )


def _expected(job: JobContext, target: str, manifest: Manifest) -> Base | None:
    """State of a target when an epoch was completed; None where it is unknown, or the target had no rows."""
    part = part_of(manifest, target)
    if part is None:
        return None
    base = base_of(part)
    if part.rows:
        # Not the base's version, which is the one before the epoch: the check ends at the epoch's own entry.
        return Base(base.table if base else None, -1, part.epoch.epoch)
    return base if base is not None else _older(job, target, manifest.ref.epoch)


def _older(job: JobContext, target: str, epoch: int) -> Base | None:
    """The same for manifests that do not record their base: from the newest earlier manifest with rows or a base."""
    for earlier in range(epoch - 1, max(-1, epoch - 1 - SNAPSHOT_EVERY), -1):
        decision = read_decision(job.store, earlier, job.retry)
        if decision is None or decision.outcome is not Outcome.COMMIT:
            continue
        manifest = read_manifest(job, decision.instant)
        part = part_of(under_current_names(job, manifest), target) if manifest else None
        if part is not None and (part.rows or base_of(part) is not None):
            return Base(None, -1, part.epoch.epoch) if part.rows else base_of(part)
    return None
