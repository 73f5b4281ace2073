"""Which committed epochs the targets of a job do not have any more, and whether a target is ahead of the timeline.

::

    newest manifest ─► what each target must have ─┐
    target ─► what it has (`sinks.held`) ──────────┴─► lost epochs, with their rows

An epoch relies on those before it. So a start asks each target for them before it plans anything, and the commit of
an epoch asks again where somebody else wrote meanwhile (`sinks.delta`). What was put back by a later epoch, or given
up (`ingest.sources.replays`), is not asked for any more.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ingest.job import Job
from ingest.protocol import manifest_of, read_manifest, read_plan
from ingest.sources.replays import settled_by
from ingest.watched_sink import WatchedSink
from sinks.base import Sink
from sinks.held import (
    REPLAY,
    RESTORE_TIMELINE,
    Base,
    Held,
    HoldingSink,
    Span,
    base_of,
    gone_since,
    in_spans,
    span_words,
    spans,
)
from timeline.chain import SNAPSHOT_EVERY, Chain
from timeline.decision import Decision, Outcome, decision_path, read_decision
from timeline.epoch import Manifest, Part, Plan
from timeline.errors import FormatError, InvariantError, TargetRefusedError
from timeline.instant import Action
from timeline.side_by_side import side_by_side
from timeline.units import count
from timeline.view import Timeline

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Committed:
    """A committed epoch with rows for a target.

    Attributes:
        plan: what it read; None where that is gone.
        manifest: what was written.
        part: the target's share of it.
    """

    plan: Plan | None
    manifest: Manifest
    part: Part


@dataclass(frozen=True)
class Loss:
    """Committed epochs that a target does not have any more.

    Attributes:
        target: the target's name.
        how: what happened to it, in words.
        epochs: those that it has lost, oldest first.
        held: the target as it is.
        doubt: why it cannot be told which epochs it has lost; "" where it can.
    """

    target: str
    how: str
    epochs: tuple[Committed, ...]
    held: Held
    doubt: str = ""

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
        return f"{self.target} {self.how}: {span_words(self.numbers)} ({count(self.rows, 'row')}) are gone from it"


def holding(sink: Sink) -> HoldingSink | None:
    """The sink, where it can tell which epochs its target has."""
    inner = sink.sink if isinstance(sink, WatchedSink) else sink
    return inner if isinstance(inner, HoldingSink) else None


def refuse_ahead(job: Job) -> None:
    """Refuse a timeline that is older than a target: epochs that it would number again count as applied there.

    Raises:
        TargetRefusedError: naming the target, its newest epoch, and what the timeline says of it.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    for words in ahead(job):
        raise TargetRefusedError(f"{words}. {RESTORE_TIMELINE}")


def ahead(job: Job) -> Iterator[str]:
    """Targets with epochs that the timeline has not decided to commit, in words."""
    for sink in job.sinks:
        target = holding(sink)
        held = target.held() if target is not None else None
        if held is None or held.newest is None:
            continue
        decision = read_decision(job.store, held.newest, job.retry)
        older = "the timeline is older than this target: a restored backup, or objects that were deleted from it?"
        if decision is None and _is_behind(job, held.newest):
            continue  # a hole in the decisions, which whoever loads the chain names
        if decision is None:
            yield f"{sink.target} has epoch {held.newest}, which {job.store.url} has not decided: {older}"
        elif decision.outcome is Outcome.ROLLBACK:
            yield f"{sink.target} has epoch {held.newest}, which {job.store.url} has rolled back: {older}"
        elif held.instant is not None and held.instant != decision.instant:
            yield (
                f"{sink.target} has epoch {held.newest} of instant {held.instant}, {job.store.url} has decided it for "
                f"instant {decision.instant}: {older}"
            )


def _is_behind(job: Job, epoch: int) -> bool:
    """Whether the timeline has completed a later epoch."""
    newest = newest_completed(job)
    return newest is not None and newest.epoch > epoch


def refuse_losses(job: Job, chain: Chain) -> None:
    """Refuse targets that lack epochs before the next one.

    Raises:
        TargetRefusedError: naming each target, what happened to it, and the epochs that are gone.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    lost = find_losses(job, newest_commit(job, chain.committed, chain.next_epoch))
    if lost:
        raise TargetRefusedError(". ".join([*map(str, lost), REPLAY]))


def lost_epochs(job: Job) -> list[str]:
    """What the targets have lost, or have more than the timeline, in words: for who only looks.

    Epochs that are pending are left out: recovery brings them to their targets.
    """
    found = list(ahead(job))
    completed = newest_completed(job)
    return found if found else [str(loss) for loss in find_losses(job, completed)]


def newest_completed(job: Job) -> Decision | None:
    """The decision of the newest epoch that every target had applied; None where there is none.

    One whose manifest cannot be read is passed over: whoever reads the timeline says so.
    """
    timeline = Timeline.recent(job.store, job.retry)
    for instant in reversed(timeline.completed().by_action(Action.COMMIT).instants):
        with contextlib.suppress(FormatError):
            manifest = read_manifest(job, instant.time)
            decision = read_decision(job.store, manifest.ref.epoch, job.retry) if manifest is not None else None
            if decision is not None and decision.commits(instant.time):
                return decision
    return None


def newest_commit(job: Job, known: Decision | None, next_epoch: int) -> Decision | None:
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


def find_losses(job: Job, newest: Decision | None) -> list[Loss]:
    """What the targets have lost of all that was committed.

    Args:
        job: the job.
        newest: the newest decision to commit that every target had applied.

    Raises:
        InvariantError: a decision or manifest of an epoch that a target lost is gone.
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    manifest = read_manifest(job, newest.instant) if newest is not None else None
    if newest is None or manifest is None:
        return []  # a manifest that is gone is told by whoever reads the timeline
    found = (_loss(job, sink, newest, manifest) for sink in job.sinks)
    return [loss for loss in found if loss is not None]


def _loss(job: Job, sink: Sink, newest: Decision, manifest: Manifest) -> Loss | None:
    target = holding(sink)
    base = _expected(job, sink.target, manifest) if target is not None else None
    if target is None or base is None:
        return None
    held = target.held(base)
    gone = gone_since(base, held)
    if gone is not None and held.doubt and held.how:
        return Loss(sink.target, gone.how, (), held, held.doubt)
    if gone is None:
        _warn_of_doubt(job, sink.target, target, newest, held)
        return None
    lost = tuple(committed_in(job, sink.target, gone.epochs, newest.epoch))
    return Loss(sink.target, gone.how, lost, held) if lost else None


def _warn_of_doubt(job: Job, name: str, target: HoldingSink, newest: Decision, held: Held) -> None:
    """Where the log was cleaned up under what others did, the newest epoch's own files tell that nothing is lost."""
    if not held.doubt or held.newest is None:
        return
    for each in committed_in(job, name, ((held.newest, held.newest),), newest.epoch):
        if target.has_all(each.part):
            return
    log.warning(
        "%s: it cannot be told whether others took epochs out of it: %s; look with tideline fsck", name, held.doubt
    )


def _expected(job: Job, target: str, manifest: Manifest) -> Base | None:
    """What a target had when an epoch was completed; None where nothing is known of it, or nothing was there."""
    part = next((part for part in manifest.parts if part.target == target), None)
    if part is None:
        return None
    base = base_of(part)
    if part.rows:
        # Its version is the one before the epoch: the epoch's own entry is where the look ends.
        return Base(base.table if base else None, -1, part.epoch.epoch)
    return base if base is not None else _older(job, target, manifest.ref.epoch)


def _older(job: Job, target: str, epoch: int) -> Base | None:
    """The same, of manifests that do not say on what they were prepared: the newest one with rows tells it."""
    for earlier in range(epoch - 1, max(-1, epoch - 1 - SNAPSHOT_EVERY), -1):
        decision = read_decision(job.store, earlier, job.retry)
        if decision is None or decision.outcome is not Outcome.COMMIT:
            continue
        manifest = read_manifest(job, decision.instant)
        part = next((part for part in manifest.parts if part.target == target), None) if manifest else None
        if part is not None and (part.rows or base_of(part) is not None):
            return Base(None, -1, part.epoch.epoch) if part.rows else base_of(part)
    return None


def committed_in(job: Job, target: str, among: Sequence[Span], newest: int) -> Iterator[Committed]:
    """Committed epochs with rows for a target in some ranges, but those put back or given up since; oldest first.

    Args:
        job: the job.
        target: the target's name.
        among: ranges of epochs.
        newest: the newest epoch that is committed.

    Raises:
        InvariantError: a decision or manifest of these epochs is gone: it cannot be told which rows they had.
    """
    if not among:
        return
    epochs = range(min(first for first, _ in among), newest + 1)
    read = partial(_read, job)
    found = [each for each in side_by_side(read, epochs, job.store.requests_at_once) if each is not None]
    settled = [span for plan, _ in found if plan is not None for span in settled_by(plan, target)]
    for plan, manifest in found:
        epoch = manifest.ref.epoch
        part = next((part for part in manifest.parts if part.target == target), None)
        if part is not None and part.rows and in_spans(epoch, among) and not in_spans(epoch, settled):
            yield Committed(plan, manifest, part)


def _read(job: Job, epoch: int) -> tuple[Plan | None, Manifest] | None:
    decision = read_decision(job.store, epoch, job.retry)
    if decision is None:
        # To pass it over would lose its rows for good: what is put back behind it counts as all that was lost.
        raise InvariantError(
            f"epoch {epoch} is decided, and its decision {decision_path(epoch)} is gone: restore it, then replay"
        )
    if decision.outcome is not Outcome.COMMIT:
        return None
    return read_plan(job, decision.instant), manifest_of(job, decision)
