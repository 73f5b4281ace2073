"""Goals, and whether they are met: computed from results, never written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bench.table import Row


@dataclass(frozen=True)
class Key:
    """Key of one figure: the row of a table with this work, system and metric."""

    table: str
    work: str
    system: str
    metric: str


Medians = Mapping[Key, float]
Value = Callable[[Medians], float]


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes:
        text: the compared figures, human-readable.
        value: computes the compared value; raises KeyError if a figure was not measured.
        limit: limit of the value.
        is_at_least: whether the value has to reach the limit; otherwise it must not exceed the limit.
    """

    text: str
    value: Value
    limit: float
    is_at_least: bool

    def value_of(self, medians: Medians) -> float | None:
        """The measured value; None if a figure was not measured."""
        try:
            return self.value(medians)
        except KeyError:
            return None

    def is_met(self, value: float) -> bool:
        """Whether a measured value meets the goal."""
        return value >= self.limit if self.is_at_least else value <= self.limit


def medians(rows: Iterable[Row]) -> dict[Key, float]:
    """The medians of rows, by their keys."""
    return {Key(row.table, row.work, row.system, row.metric): row.median for row in rows}


def ratio(over: Key, under: Key) -> Value:
    """One figure as a multiple of another."""
    return lambda found: found[over] / found[under]


def figure_of(key: Key) -> Value:
    """A figure itself."""
    return lambda found: found[key]
