"""Colours in grey, and as a deuteranope sees them, by published matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Machado, Oliveira, Fernandes: "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009),
# deuteranomaly of severity 1.0, on linear RGB.
_DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
# IEC 61966-2-1 (sRGB), linear RGB to CIE XYZ with the white point D65.
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_WHITE = (0.9505, 1.0, 1.089)

Rgb = tuple[float, float, float]


def linear(colour: str) -> Rgb:
    """Linear RGB of ``#RRGGBB``."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _to_linear(red), _to_linear(green), _to_linear(blue)


def lightness(colour: str) -> float:
    """CIE L* of a colour, 0 (black) to 100 (white): its grey in a copy without colours."""
    return _lab(linear(colour))[0]


def seen_without_green(colour: str) -> Rgb:
    """Linear RGB of a colour as a deuteranope sees it."""
    red, green, blue = _times(_DEUTERANOPIA, linear(colour))
    return _clipped(red), _clipped(green), _clipped(blue)


def distance(one: Rgb, other: Rgb) -> float:
    """CIE 1976 difference of two colours; 2.3 is just noticeable."""
    return math.dist(_lab(one), _lab(other))


def _to_linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))


def _times(matrix: Sequence[Sequence[float]], vector: Rgb) -> Rgb:
    one, two, three = (sum(row[at] * vector[at] for at in range(3)) for row in matrix)
    return one, two, three


def _lab(colour: Rgb) -> Rgb:
    x, y, z = (_root(value / white) for value, white in zip(_times(_XYZ, colour), _WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(value: float) -> float:
    return value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
