"""Replays as a shard of their own: an epoch like any other puts lost epochs back, or gives them up.

::

    shard      tideline:replay
    offset     number of replays so far
    detail     replayed: {target: [[4, 7]]}    epochs whose rows this epoch holds for a target in their place
               lost:     {target: [[2, 3]]}    epochs that were given up for a target: a hole

A replay is exact for the same reasons as an epoch: one decision, one log entry for each target, settled by the next
process. The position after the replay carries the holes permanently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from timeline.chain import Chain
from timeline.epoch import Json, OffsetRange, Plan
from timeline.holes import Hole, holes_json

REPLAY_SHARD = "tideline:replay"
"""Name of the shard; no source has a shard of this name."""

Spans: TypeAlias = Sequence[tuple[int, int]]

_REPLAYED, _LOST = "replayed", "lost"


def replay_range(chain: Chain, replayed: Mapping[str, Spans], lost: Mapping[str, Spans], reason: str) -> OffsetRange:
    """The range of an epoch that puts lost epochs back.

    Args:
        chain: the current chain.
        replayed: by target, epochs whose rows the new epoch holds.
        lost: by target, epochs that are given up.
        reason: why the epochs were lost, human-readable.
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
    """Epochs whose rows an epoch holds for a target in their place."""
    return _spans(plan, _REPLAYED, target)


def given_up_by(plan: Plan, target: str) -> Spans:
    """Epochs that were given up for a target."""
    return _spans(plan, _LOST, target)


def given_up_targets(plan: Plan) -> dict[str, Spans]:
    """Epochs that were given up, by target."""
    targets = [name for offsets in plan.ranges if offsets.shard == REPLAY_SHARD for name in _of(offsets, _LOST)]
    return {target: given_up_by(plan, target) for target in targets}


def settled_by(plan: Plan, target: str) -> Spans:
    """Epochs that a target no longer needs, because of this epoch."""
    return [*replayed_by(plan, target), *given_up_by(plan, target)]


def is_replay(plan: Plan) -> bool:
    """Whether an epoch puts lost epochs back, or gives them up."""
    return any(offsets.shard == REPLAY_SHARD for offsets in plan.ranges)


def _spans(plan: Plan, key: str, target: str) -> Spans:
    found: list[tuple[int, int]] = []
    for offsets in plan.ranges:
        if offsets.shard == REPLAY_SHARD:
            found += [(first, last) for first, last in _of(offsets, key).get(target, ())]
    return found


def _of(offsets: OffsetRange, key: str) -> Mapping[str, Sequence[Sequence[int]]]:
    return cast(Mapping[str, Sequence[Sequence[int]]], offsets.detail.get(key) or {})
