"""Holes: offsets of a shard that the source no longer has, and that the job skips.

A hole is part of the range of the epoch that continues after it, so that ranges form a chain without a gap.
The position after that range carries the hole into the epoch's decision and its completed instant, for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from timeline.epoch import Json, OffsetRange, Position

_KEY = "lost"


@dataclass(frozen=True)
class Hole:
    """Records that will not be read.

    Attributes:
        start: first offset.
        until: first offset after the hole; None if unknown.
        reason: why the records are lost, human-readable.
    """

    start: int
    until: int | None
    reason: str

    def __str__(self) -> str:
        """The offsets and the reason."""
        return f"[{self.start}, {'…' if self.until is None else self.until}): {self.reason}"


def holes_json(holes: Sequence[Hole]) -> dict[str, Json]:
    """Holes in the form of a position's detail; empty for no holes."""
    return {_KEY: [cast(Json, asdict(hole)) for hole in holes]} if holes else {}


def holes_of(detail: Mapping[str, Json]) -> tuple[Hole, ...]:
    """The holes in a position's detail."""
    found = cast("Sequence[Mapping[str, Any]]", detail.get(_KEY) or ())
    return tuple(Hole(one["start"], one["until"], one["reason"]) for one in found)


def first_there(offsets: OffsetRange) -> int:
    """The first offset of a range, or of a part of a range, after its holes."""
    return max([offsets.start, *(hole.until or 0 for hole in holes_of(offsets.after))])


def lost(positions: Mapping[str, Position]) -> dict[str, tuple[Hole, ...]]:
    """The holes right before these positions, by shard; only for shards with holes."""
    found = {shard: holes_of(position.detail) for shard, position in positions.items()}
    return {shard: holes for shard, holes in found.items() if holes}
