"""Lost epochs that are put back or given up, as a shard of their own: such a replay is an epoch like any other.

::

    shard      tideline:replay
    offset     how many replays there were
    detail     replayed: {target: [[4, 7]]}    epochs whose rows this one has for a target, instead of them
               lost:     {target: [[2, 3]]}    epochs that were given up for a target: a hole

So a replay is exact for the reasons that an epoch is: one decision, one log entry for each target, settled by whoever
comes next. The position behind it carries the holes, for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from timeline.chain import Chain
from timeline.epoch import Json, OffsetRange, Plan
from timeline.holes import Hole, holes_json

REPLAY_SHARD = "tideline:replay"
"""Name of the shard; no source has one like it."""

Spans: TypeAlias = Sequence[tuple[int, int]]

_REPLAYED, _LOST = "replayed", "lost"


def replay_range(chain: Chain, replayed: Mapping[str, Spans], lost: Mapping[str, Spans], reason: str) -> OffsetRange:
    """The range of an epoch that puts lost ones back.

    Args:
        chain: where ingestion stands.
        replayed: by target, epochs that it has the rows of.
        lost: by target, epochs that are given up.
        reason: why they were lost, for people.
    """
    start = chain.positions[REPLAY_SHARD].offset if REPLAY_SHARD in chain.positions else 0
    holes = [
        Hole(first, last + 1, f"epochs given up for {target}: {reason}")
        for target, among in lost.items()
        for first, last in among
    ]
    detail = {
        key: {target: [list(span) for span in among] for target, among in by_target.items() if among}
        for key, by_target in ((_REPLAYED, replayed), (_LOST, lost))
    }
    return OffsetRange(REPLAY_SHARD, start, start + 1, cast(Mapping[str, Json], detail), holes_json(holes))


def replayed_by(plan: Plan, target: str) -> Spans:
    """Epochs whose rows an epoch has for a target, instead of them."""
    return _spans(plan, _REPLAYED, target)


def given_up_by(plan: Plan, target: str) -> Spans:
    """Epochs that were given up for a target."""
    return _spans(plan, _LOST, target)


def given_up_targets(plan: Plan) -> dict[str, Spans]:
    """By target, epochs that were given up for it."""
    targets = [name for offsets in plan.ranges if offsets.shard == REPLAY_SHARD for name in _of(offsets, _LOST)]
    return {target: given_up_by(plan, target) for target in targets}


def settled_by(plan: Plan, target: str) -> Spans:
    """Epochs that a target need not have any more, because of this one."""
    return [*replayed_by(plan, target), *given_up_by(plan, target)]


def is_replay(plan: Plan) -> bool:
    """Whether an epoch puts lost ones back, or gives them up."""
    return any(offsets.shard == REPLAY_SHARD for offsets in plan.ranges)


def _spans(plan: Plan, key: str, target: str) -> Spans:
    found: list[tuple[int, int]] = []
    for offsets in plan.ranges:
        if offsets.shard == REPLAY_SHARD:
            found += [(first, last) for first, last in _of(offsets, key).get(target, ())]
    return found


def _of(offsets: OffsetRange, key: str) -> Mapping[str, Sequence[Sequence[int]]]:
    return cast(Mapping[str, Sequence[Sequence[int]]], offsets.detail.get(key) or {})
