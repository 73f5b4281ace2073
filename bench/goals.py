"""What is aimed at, and whether it is met: computed from results, never written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bench.table import Row


@dataclass(frozen=True)
class Key:
    """One figure: that of a table's rows with this work, system and metric."""

    table: str
    work: str
    system: str
    metric: str


Medians = Mapping[Key, float]
Value = Callable[[Medians], float]


@dataclass(frozen=True)
class Goal:
    """One aim.

    Attributes:
        text: what is compared with what.
        value: computes it; a KeyError says that something of it was not measured.
        limit: what it is held against.
        is_at_least: whether it has to reach the limit; else it must not exceed it.
    """

    text: str
    value: Value
    limit: float
    is_at_least: bool

    def value_of(self, medians: Medians) -> float | None:
        """What was measured; None where something of it was not."""
        try:
            return self.value(medians)
        except KeyError:
            return None

    def is_met(self, value: float) -> bool:
        """Whether a measured value is good enough."""
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
