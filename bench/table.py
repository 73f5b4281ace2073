"""Measurements of one table: saved as JSON, and printed with their spread.

A figure is a median; ``low`` and ``high`` are the smallest and the largest round, not quartiles: with five
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
"""The system that ratios refer to; names of other ways of ours beside it begin with the same word."""

RESULTS = Path(__file__).parent / "results"
_CONDITIONS = "conditions.json"


@dataclass(frozen=True)
class Measured:
    """One quantity of one system doing one work, round by round.

    Attributes:
        work: name of the work, for example ``JSON files``.
        system: name of the system; ours is `OURS`.
        metric: name and unit of the quantity, for example ``rows/s`` or ``peak memory, MB``.
        values: one for each round, in order.
    """

    work: str
    system: str
    metric: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the rounds."""
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
        """Each round as a multiple of another quantity's round right before or after it.

        A machine's speed varies: medians of all rounds compare different minutes, adjacent rounds the same one.

        Args:
            other: measured in turn with this one, with the same number of rounds.
            metric: name of the ratio.
        """
        ratios = tuple(mine / its for mine, its in zip(self.values, other.values, strict=True))
        return Measured(self.work, self.system, metric, ratios)


@dataclass(frozen=True)
class Row:
    """One row of a table's JSON file.

    Attributes:
        table: name of the table and of its file.
        work: name of the work.
        system: name of the system.
        metric: name and unit of the quantity.
        median: median of the rounds.
        low: the smallest round.
        high: the largest round.
        n: number of rounds.
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
    """A count with its noun: ``1 file``, ``10,000 files``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def save(
    table: str,
    measured: Sequence[Measured],
    *,
    conditions: Mapping[str, str] | None = None,
    folder: Path = RESULTS,
) -> Path:
    """Write a table's results, in place of those of an earlier run.

    Works that this run did not measure keep their rows: a script may measure a part of its table.

    Args:
        table: name of the table.
        measured: the measurements; no quantity without a value.
        conditions: conditions of the measurement (command, machine, sizes), saved beside the rows.
        folder: folder of the results.

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
    """A table's rows; empty if the table was never measured."""
    path = folder / f"{table}.json"
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def load_conditions(*, folder: Path = RESULTS) -> dict[str, dict[str, dict[str, str]]]:
    """Table → work → conditions of its last measurement."""
    path = folder / _CONDITIONS
    found: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def show(table: str, measured: Sequence[Measured], out: TextIO | None = None) -> None:
    """Print a table: medians, spread, and each system's ratio to ours.

    Args:
        table: name of the table.
        measured: the measurements.
        out: output; stdout by default.
    """
    print("\n".join(lines(table, [Row.of(table, each) for each in measured])), file=out or sys.stdout)


def lines(table: str, rows: Sequence[Row]) -> list[str]:
    """The lines of `show`.

    Systems are compared within one work; the works of a single system are compared with each other.
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
    """A number as text, with fewer decimals for larger numbers: no digit is noise."""
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
