"""A time axis that squeezes long times without events, so that seconds stay visible beside days."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

MOST_GAPS = 3
_WIDTH_OF_GAP = 0.16
_LONG = 4


@dataclass(frozen=True)
class Gap:
    """A time without events."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length of the gap."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True)
class Squeezed:
    """Positions on a time axis; each gap takes the same small width.

    Attributes:
        first: the earliest moment; its position is 0.
        last: the latest moment.
        gaps: the squeezed gaps, in order; empty for a timeline without long gaps.
    """

    first: datetime
    last: datetime
    gaps: tuple[Gap, ...] = ()

    @classmethod
    def of(cls, moments: Iterable[datetime]) -> Squeezed:
        """Squeeze at most three gaps, each more than 4 times as long as all the time outside the gaps."""
        ordered = sorted(set(moments))
        steps = sorted((Gap(*pair) for pair in pairwise(ordered)), key=lambda gap: -gap.seconds)
        whole_s = (ordered[-1] - ordered[0]).total_seconds()
        for number in range(min(MOST_GAPS, len(steps) - 1), 0, -1):
            rest_s = whole_s - sum(gap.seconds for gap in steps[:number])
            if 0 < rest_s * _LONG < steps[number - 1].seconds:
                return cls(ordered[0], ordered[-1], tuple(sorted(steps[:number], key=lambda gap: gap.start)))
        return cls(ordered[0], ordered[-1])

    @property
    def gap_s(self) -> float:
        """Width of one gap on the axis, in seconds of the time outside the gaps."""
        whole_s = (self.last - self.first).total_seconds()
        return (whole_s - sum(gap.seconds for gap in self.gaps)) * _WIDTH_OF_GAP

    @property
    def length_s(self) -> float:
        """Position of the last moment."""
        return self.at(self.last)

    @property
    def segments(self) -> list[datetime]:
        """Starts of the segments between gaps."""
        return [self.first, *(gap.end for gap in self.gaps)]

    def at(self, moment: datetime) -> float:
        """Position of a moment, in seconds."""
        position = (moment - self.first).total_seconds()
        for gap in self.gaps:
            inside = min(max(moment - gap.start, timedelta()), gap.end - gap.start).total_seconds()
            position -= inside - inside / gap.seconds * self.gap_s
        return position
