"""The measurements of one table: kept as JSON, and shown to people with their spread.

A median is what a figure says; ``low`` and ``high`` are the smallest and the largest round, not quartiles: with five
rounds those would hide one round in two.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

OURS = "Tideline"
"""The system that ratios refer to; ways of ours that are shown beside it begin with the same word."""

RESULTS = Path(__file__).parent / "results"
_CONDITIONS = "conditions.json"


@dataclass(frozen=True)
class Measured:
    """One quantity of one system doing one work, round by round.

    Attributes:
        work: what was done, for example ``JSON files``.
        system: by whom; ours is `OURS`.
        metric: what was measured, with its unit, for example ``rows/s`` or ``peak memory, MB``.
        values: one for each round, in order.
    """

    work: str
    system: str
    metric: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """What a figure says."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest round."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest round."""
        return max(self.values)

    def beside(self, other: Measured, metric: str) -> Measured:
        """Each round as a multiple of the round of another that was done right before or after it.

        A machine's speed wanders: medians of all rounds compare different minutes, two rounds in turn the same one.

        Args:
            other: what was measured in turn with this; has as many rounds.
            metric: names the ratio.
        """
        ratios = tuple(mine / its for mine, its in zip(self.values, other.values, strict=True))
        return Measured(self.work, self.system, metric, ratios)


@dataclass(frozen=True)
class Row:
    """One row of a table's JSON file.

    Attributes:
        table: the table's name, and its file's.
        work: what was done.
        system: by whom.
        metric: what was measured, with its unit.
        median: over the rounds.
        low: the smallest.
        high: the largest.
        n: rounds.
    """

    table: str
    work: str
    system: str
    metric: str
    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, table: str, measured: Measured) -> Row:
        """The row of one quantity."""
        return cls(
            table,
            measured.work,
            measured.system,
            measured.metric,
            measured.median,
            measured.low,
            measured.high,
            len(measured.values),
        )


def many(count: int, thing: str) -> str:
    """So many of a thing, for people: ``1 file``, ``10,000 files``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def save(
    table: str,
    measured: Sequence[Measured],
    *,
    conditions: Mapping[str, str] | None = None,
    folder: Path = RESULTS,
) -> Path:
    """Write a table's results, in place of those of an earlier run.

    Works that this run did not do keep the rows they have: a script may be told to do a part of its table.

    Args:
        table: its name.
        measured: what was measured; no quantity without a value.
        conditions: under what it was measured (command, machine, sizes), kept beside the rows.
        folder: where results lie.

    Returns:
        the file: a JSON list of rows {table, work, system, metric, median, low, high, n}.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}.json"
    done = {each.work for each in measured}
    rows = [row for row in load(table, folder=folder) if row.work not in done]
    rows += [Row.of(table, each) for each in measured]
    _write(path, [asdict(row) for row in rows])
    if conditions is not None:
        kept = load_conditions(folder=folder)
        for work in done:
            kept.setdefault(table, {})[work] = dict(conditions)
        _write(folder / _CONDITIONS, kept)
    return path


def load(table: str, *, folder: Path = RESULTS) -> list[Row]:
    """A table's rows; none where it was never measured."""
    path = folder / f"{table}.json"
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def load_conditions(*, folder: Path = RESULTS) -> dict[str, dict[str, dict[str, str]]]:
    """Table → work → under what it was measured last."""
    path = folder / _CONDITIONS
    found: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def show(table: str, measured: Sequence[Measured], out: TextIO | None = None) -> None:
    """Print a table for a person: medians, spread, and each system's ratio to ours.

    Args:
        table: its name.
        measured: what was measured.
        out: where to; stdout where it is left out.
    """
    print("\n".join(lines(table, [Row.of(table, each) for each in measured])), file=out or sys.stdout)


def lines(table: str, rows: Sequence[Row]) -> list[str]:
    """The lines of `show`.

    Systems are compared within one work; where there is one system only, its works are.
    """
    has_peers = len({row.system for row in rows}) > 1
    name: Callable[[Row], str] = (lambda row: row.system) if has_peers else (lambda row: row.work)
    found: list[str] = []
    for heading, group in _grouped(rows, has_peers).items():
        ours = next((row.median for row in group if has_peers and row.system == OURS), None)
        cells = [_cells(name(row), row, ours) for row in group]
        head = ("", "median", "low", "high", "n", f"x {OURS}" if ours else "")
        widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
        found += ["", f"{table}: {heading}"]
        found += [_aligned(line, widths) for line in [head, *cells]]
    return found[1:]


def figure(value: float) -> str:
    """A number in at least three digits, none of them noise."""
    size = abs(value)
    places = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return f"{value:,.{places}f}"


def _grouped(rows: Iterable[Row], has_peers: bool) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.work}: {row.metric}" if has_peers else row.metric, []).append(row)
    return groups


def _cells(name: str, row: Row, ours: float | None) -> tuple[str, ...]:
    ratio = f"{row.median / ours:.2f}" if ours else ""
    return (name, figure(row.median), figure(row.low), figure(row.high), str(row.n), ratio)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    line = [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)]
    return ("  " + "  ".join(line)).rstrip()


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
