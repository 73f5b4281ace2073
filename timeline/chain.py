"""The chain of epochs: which epoch comes next, and from which offsets.

Decisions are numbered without a gap, and each carries the positions that its epoch changed. Every
100 epochs a snapshot stores all positions, so a start reads a bounded number of objects:

::

    .hoodie/offsets/<e>.json    all positions after epoch e, for e = 99, 199, 299, …
    .hoodie/decisions/<e>.json  what epoch e changed
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from timeline.active import ActiveTimeline
from timeline.body import BodyFormat
from timeline.concurrency import map_concurrently
from timeline.decision import Decision, Outcome, decision_path, read_decision
from timeline.epoch import OffsetRange, Position
from timeline.errors import InvariantError
from timeline.hudi.layout import read_epoch_of
from timeline.instant import Action, Instant
from timeline.settled import SETTLED, SETTLED_PATH, SettledMark
from timeline.stores.base import ObjectStore, Retry, read_or_none

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 100
"""Epochs between two snapshots of all positions."""


SNAPSHOTS_FOLDER = ".hoodie/offsets"
"""Folder of the snapshots, below the timeline's base path."""


@dataclass(frozen=True)
class PositionSnapshot:
    """All positions after one epoch."""

    epoch: int
    positions: Mapping[str, Position]


SNAPSHOT = BodyFormat("offsets", PositionSnapshot)


@dataclass(frozen=True)
class Chain:
    """Progress of ingestion: the next epoch and its start positions.

    Attributes:
        next_epoch: the first epoch that is not decided.
        positions: committed position of every shard.
        last: the newest decision; None before the first. The next instant must be later than its completion time.
        committed: the newest decision that is a commit, as far back as decisions were read.
        crashes: epochs after `committed` that a crash ended, as far back as decisions were read; epochs rolled back for
            another reason neither count nor end the count.
    """

    next_epoch: int = 0
    positions: Mapping[str, Position] = field(default_factory=dict)
    last: Decision | None = None
    committed: Decision | None = None
    crashes: int = 0

    @property
    def is_snapshot_due(self) -> bool:
        """Whether a snapshot must be stored after the last decided epoch."""
        return self.next_epoch > 0 and self.next_epoch % SNAPSHOT_EVERY == 0

    def advanced(self, decision: Decision) -> Chain:
        """The chain with one more decided epoch.

        Raises:
            InvariantError: the decision is not the next one.
        """
        if decision.epoch != self.next_epoch:
            raise InvariantError(f"decision of epoch {decision.epoch} follows epoch {self.next_epoch - 1}")
        positions = {**self.positions, **decision.positions} if decision.positions else self.positions
        if decision.outcome is Outcome.COMMIT:
            return Chain(decision.epoch + 1, positions, decision, decision)
        return Chain(decision.epoch + 1, positions, decision, self.committed, self.crashes + decision.is_crash)

    def check(self, ranges: tuple[OffsetRange, ...]) -> None:
        """Refuse ranges that would leave a gap or overlap committed records.

        Raises:
            InvariantError: the message names the range and the committed offset.
        """
        shards = [offsets.shard for offsets in ranges]
        if len(shards) != len(set(shards)):
            raise InvariantError(f"epoch {self.next_epoch}: a shard is planned twice: {sorted(shards)}")
        for offsets in ranges:
            committed = self.positions[offsets.shard].offset if offsets.shard in self.positions else None
            continues = offsets.start >= 0 if committed is None else offsets.start == committed
            if not continues:
                raise InvariantError(
                    f"epoch {self.next_epoch}: {offsets} does not continue the committed offset {committed}"
                )
            if offsets.until < offsets.start:
                raise InvariantError(f"epoch {self.next_epoch}: {offsets} ends before it starts")


def snapshot_path(epoch: int) -> str:
    """Path of the snapshot after an epoch, below the timeline's base path."""
    return f"{SNAPSHOTS_FOLDER}/{epoch:020d}.json"


def load_chain(store: ObjectStore, timeline: ActiveTimeline, retry: Retry, *, repair: bool = False) -> Chain:
    """The chain in storage; reads some 100 decisions, one snapshot and one completed body.

    Args:
        store: the timeline's store.
        timeline: a view of its newest instants at least (`ActiveTimeline.recent`).
        retry: retry bounds.
        repair: write snapshots missing after a crash, and move the settled mark if at least `SNAPSHOT_EVERY` instants
            of the view are behind; for writers only.

    Raises:
        InvariantError: a decision is missing below one that exists.
        StoreUnavailableError: the chain could not be read.
    """
    completed, hint = newest_completed_epoch(store, timeline, retry)
    last = _last_decided(store, hint, retry)
    if last is None:
        return Chain()
    chain = _newest_snapshot(store, last, retry)
    if chain.next_epoch > last:
        newest = read_decision(store, last, retry)
        if newest is None:
            raise InvariantError(_gone(store, last, last))
        is_commit = newest.outcome is Outcome.COMMIT
        chain = replace(chain, last=newest, committed=newest if is_commit else None, crashes=int(newest.is_crash))
    epochs = range(chain.next_epoch, last + 1)
    decisions = map_concurrently(
        lambda epoch: read_decision(store, epoch, retry), epochs, store.traits.requests_at_once
    )
    for epoch, decision in zip(epochs, decisions, strict=True):
        if decision is None:
            raise InvariantError(_gone(store, epoch, last))
        chain = chain.advanced(decision)
        if repair and chain.is_snapshot_due:
            _put_snapshot(store, chain, retry)
    if repair and completed is not None and sum(each.time < completed.time for each in timeline) >= SNAPSHOT_EVERY:
        move_settled(store, timeline, completed.time, retry)
    return chain


def _gone(store: ObjectStore, epoch: int, last: int) -> str:
    return (
        f"{store.url}/{decision_path(epoch)} is missing, though epoch {last} is decided: "
        "decisions are never deleted; restore it before going on"
    )


def write_snapshot(store: ObjectStore, chain: Chain, retry: Retry) -> None:
    """Every 100 epochs: store a snapshot (any process writes the same), and move the settled mark.

    For a writer whose last epoch was just decided; the listing shows whether that epoch is completed.

    Args:
        store: the timeline's store.
        chain: the chain with the last decision.
        retry: retry bounds.
    """
    if chain.is_snapshot_due:
        _put_snapshot(store, chain, retry)
        if chain.last is not None and chain.last.outcome is Outcome.COMMIT:
            move_settled(store, ActiveTimeline.recent(store, retry), chain.last.instant, retry)


def _put_snapshot(store: ObjectStore, chain: Chain, retry: Retry) -> None:
    epoch = chain.next_epoch - 1
    retry.call(lambda: store.put(snapshot_path(epoch), SNAPSHOT.dump(PositionSnapshot(epoch, chain.positions))))


def _newest_snapshot(store: ObjectStore, last: int, retry: Retry) -> Chain:
    for epoch in range((last + 1) // SNAPSHOT_EVERY * SNAPSHOT_EVERY - 1, -1, -SNAPSHOT_EVERY):
        body = read_or_none(store, snapshot_path(epoch), retry)
        if body is not None:
            return Chain(epoch + 1, SNAPSHOT.load(snapshot_path(epoch), body).positions)
    return Chain()


def newest_completed_epoch(store: ObjectStore, timeline: ActiveTimeline, retry: Retry) -> tuple[Instant | None, int]:
    """The newest completed instant with an epoch if it is a commit, else None, and its epoch.

    The epoch is a hint: it and all earlier epochs are decided. -1 if no completed instant has an epoch.

    Args:
        store: the timeline's store.
        timeline: a view of its newest instants at least.
        retry: retry bounds.
    """
    for instant in reversed(timeline.completed().by_action(Action.COMMIT, Action.ROLLBACK).instants):
        epoch = read_epoch_of(store, instant, retry)
        if epoch is not None:
            return (instant if instant.action is Action.COMMIT else None), epoch
    return None, -1


def _last_decided(store: ObjectStore, hint: int, retry: Retry) -> int | None:
    """The highest decided epoch, or None: decisions are consecutive, so the first epoch without one ends the search."""
    epoch = hint
    while read_or_none(store, decision_path(epoch + 1), retry) is not None:
        epoch += 1
    return epoch if epoch >= 0 else None


def move_settled(store: ObjectStore, timeline: ActiveTimeline, newest: str, retry: Retry) -> None:
    """Move the settled mark to the newest completed commit without an earlier pending instant. For the writer.

    Args:
        store: the timeline's store.
        timeline: listed after the decision on the epoch of `newest`; from the present mark on at least.
        newest: the commit instant of a decided epoch, which need not be completed; the mark is never put after it.
        retry: retry bounds.
    """
    ours = timeline.by_action(Action.COMMIT, Action.ROLLBACK)
    until = min((instant.time for instant in ours.pending()), default=None)
    completed = [each.time for each in ours.completed().by_action(Action.COMMIT) if each.time <= newest]
    settled = max((time for time in completed if until is None or time < until), default=None)
    latest = timeline.latest_time
    if settled is not None and latest is not None:
        body = SETTLED.dump(SettledMark(settled, latest))
        retry.call(lambda: store.put(SETTLED_PATH, body))
