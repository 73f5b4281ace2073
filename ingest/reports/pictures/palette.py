"""Colours and hatches, the same in all pictures; distinct in print and to colour-blind people.

Colours are those of Okabe and Ito ("Color Universal Design", 2008). Phases differ in lightness and in hatch as
well, so that a greyscale copy stays readable.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
WHITE = "#FFFFFF"
INK = "#222222"
"""Texts and axes."""
FAINT = "#6B6B6B"
"""Secondary texts; still readable on white (contrast 5.3)."""
GRID = "#DDDDDD"


class SpanPhase(enum.Enum):
    """Phase of an instant, between two of its states."""

    WRITE = "reading and writing (requested → prepared)"
    DECIDE = "waiting for the decision (prepared → decided)"
    APPLY = "applying to the targets (decided → completed)"
    GIVEN_UP = "given up (requested → rolled back)"
    OPEN = "pending: not at its end yet"
    OTHER = "another writer's or another action"


@dataclass(frozen=True)
class Style:
    """Fill and hatch of an area.

    Attributes:
        colour: its fill.
        hatch: matplotlib's hatch pattern, empty for none.
        hatch_colour: colour of the hatch's lines.
    """

    colour: str
    hatch: str
    hatch_colour: str = INK


PHASES: Mapping[SpanPhase, Style] = {
    SpanPhase.WRITE: Style(SKY, ""),
    SpanPhase.DECIDE: Style(YELLOW, "..."),
    SpanPhase.APPLY: Style(BLUE, "///", WHITE),
    SpanPhase.GIVEN_UP: Style(VERMILION, "xxx", WHITE),
    SpanPhase.OPEN: Style(WHITE, "---"),
    SpanPhase.OTHER: Style("#3A3A3A", ""),
}
"""Style of each phase."""

LINES = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (ORANGE, ":", "D"),
    (PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    (BLACK, (0, (1, 1)), "P"),
)
"""Colour, dashes and marker of each line of a plot, in order."""
