"""Chart of a job's lag by shard; the worst shards each, the others together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.reports.pictures.canvas import describe, drawable, new_figure, nothing_to_see, plain, time_axis
from ingest.reports.pictures.palette import FAINT, INK, LINES, ORANGE, SKY, VERMILION
from timeline.formatting import amount, count, shard_name
from timeline.history.epochs import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORST = 5
"""Shards that have a line of their own."""

_MOST_POINTS = 300
_MOST_BARS = 12


@dataclass(frozen=True)
class ShardLag:
    """One shard, or several together.

    Attributes:
        name: the shard.
        moments: completion times of the epochs that read it, UTC.
        committed: committed offset at each moment; for several shards the sum.
        newest: the source's newest offset; None where it is not known.
        planned: offset at which epochs that are not completed would end; 0 without such an epoch.
    """

    name: str
    moments: tuple[datetime, ...]
    committed: tuple[int, ...]
    newest: int | None = None
    planned: int = 0

    @property
    def stands_at(self) -> int:
        """The committed offset."""
        return self.committed[-1] if self.committed else 0

    @property
    def lag(self) -> int | None:
        """Offsets between the committed and the newest one; None where the newest is not known."""
        return None if self.newest is None else max(0, self.newest - self.stands_at)


def shard_lags(
    history: History, newest: Mapping[str, int] | None = None, committed: Mapping[str, int] | None = None
) -> list[ShardLag]:
    """Committed offsets of each shard over time, the largest lag first; without newest offsets, the most planned first.

    Args:
        history: instants of the timeline.
        newest: for each shard, the offset after the source's last record.
        committed: committed offset of each shard, also of shards that `history` does not reach back to.
    """
    done = {row.instant: row.completed for row in history.epochs() if row.state == "committed"}
    ways: dict[str, list[tuple[datetime, int]]] = {}
    planned: dict[str, int] = {}
    for row in history.offsets():
        moment = done.get(row.instant)
        if moment is not None:
            ways.setdefault(row.shard, []).append((moment, row.until))
        elif row.outcome != "rollback":
            planned[row.shard] = max(planned.get(row.shard, 0), row.until)
    start = min((moment for moment in done.values() if moment is not None), default=None)
    for shard, offset in (committed or {}).items():
        way = ways.setdefault(shard, [])
        if start is not None and (not way or max(way)[1] != offset):
            way.append((max(way)[0] if way else start, offset))
    known = newest or {}
    found = [
        ShardLag(
            shard,
            tuple(moment for moment, _ in sorted(ways.get(shard, ()))),
            tuple(offset for _, offset in sorted(ways.get(shard, ()))),
            known.get(shard),
            planned.get(shard, 0),
        )
        for shard in ways.keys() | planned.keys() | known.keys()
    ]
    return sorted(found, key=lambda each: (-(each.lag or 0), each.stands_at - each.planned, -each.stands_at, each.name))


def lag(
    history: History,
    newest: Mapping[str, int] | None = None,
    *,
    committed: Mapping[str, int] | None = None,
    unit: str = "offsets",
    why_unknown: str = "",
) -> Figure:
    """Lag of each shard over time, against the newest offsets of now, and its lag now.

    Args:
        history: instants of the timeline.
        newest: for each shard, the offset after the source's last record; None: draw the committed offsets.
        committed: committed offset of each shard, also of shards that `history` does not reach back to.
        unit: unit of offsets: bytes, records.
        why_unknown: why the newest offsets are not known, human-readable.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    every = shard_lags(history, newest, committed)
    if not every:
        return nothing_to_see("Offset lag", "No shard has been read yet.")
    lines = _lines(every)
    if newest is None:
        title = f"Committed {unit} of {count(len(every), 'shard')}"
        why = f": {why_unknown}" if why_unknown else ""
        figure = new_figure(title, f"How far behind that is cannot be told: the newest offsets are not known{why}", 3.4)
        axes = figure.subplots()
        _draw_ways(axes, lines, None, f"{unit} committed")
        return figure
    total = sum(each.lag or 0 for each in every)
    behind = [each for each in every if each.lag]
    title = f"Lag: {amount(total, unit)} behind in {len(behind):,} of {count(len(every), 'shard')}"
    if not total:
        title = f"Lag: none; {count(len(every), 'shard')} read to the end"
    figure = new_figure(title, "The newest offsets are those that the source has now.", 3.7)
    ways, now = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_ways(ways, lines, newest, f"{unit} behind what is there now")
    _draw_now(now, every, unit)
    describe(
        figure,
        f"{title}. " + "; ".join(f"{each.name}: {amount(each.lag or 0, unit)} behind" for each in behind[:WORST]),
    )
    return figure


def _lines(every: Sequence[ShardLag]) -> list[ShardLag]:
    """The worst shards, and the others as one line."""
    if len(every) <= WORST + 1:
        return list(every)
    # If some shards are behind, the others need no line of their own.
    own = [each for each in every[:WORST] if each.lag] or every[:WORST]
    rest = every[len(own) :]
    steps = sorted(
        (moment, offset - before)
        for each in rest
        for moment, offset, before in zip(each.moments, each.committed, (0, *each.committed), strict=False)
    )
    moments: list[datetime] = []
    sums: list[int] = []
    total = 0
    for moment, step in steps:
        total += step
        moments.append(moment)
        sums.append(total)
    newest = None if all(each.newest is None for each in rest) else sum(each.newest or each.stands_at for each in rest)
    return [*own, ShardLag(count(len(rest), "other shard"), tuple(moments), tuple(sums), newest)]


def _draw_ways(axes: Axes, lines: Sequence[ShardLag], newest: Mapping[str, int] | None, label: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ends = [moment for line in lines for moment in line.moments]
    for at, line in enumerate(lines):
        colour, dashes, marker = LINES[at % len(LINES)]
        stride = max(1, len(line.moments) // _MOST_POINTS)
        moments = [*line.moments[::stride], *line.moments[-1:], *([max(ends)] if line.moments else [])]
        offsets = [*line.committed[::stride], *line.committed[-1:], *([line.stands_at] if line.moments else [])]
        values = offsets if newest is None else [max(0, (line.newest or line.stands_at) - each) for each in offsets]
        axes.plot(
            moments,  # type: ignore[arg-type]
            values,
            drawstyle="steps-post",
            color=colour,
            linestyle=dashes,
            linewidth=1.6,
            marker=marker,
            markersize=4.5,
            markevery=max(1, len(moments) // 12),
            label=drawable(shard_name(line.name)),
        )
    plain(axes, grid="y")
    # Offsets are whole: where all of them are 0, the axis would show thousandths ("50 m").
    axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1.0))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_ylabel(label, fontsize=9, color=INK)
    if ends:
        time_axis(axes, min(ends), max(ends), most_ticks=5)
    axes.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", handlelength=3.2)


def _draw_now(axes: Axes, every: Sequence[ShardLag], unit: str) -> None:
    """Right: the current lag of each shard, with its number."""
    rest = every[_MOST_BARS:]
    bars = [(shard_name(each.name, 24), each.lag) for each in every[:_MOST_BARS]]
    if rest:
        bars.append((count(len(rest), "other"), sum(each.lag or 0 for each in rest)))
    most = max((behind or 0 for _, behind in bars), default=0) or 1
    for y, (_, behind) in enumerate(bars):
        axes.barh(y, behind or 0, height=0.66, color=ORANGE if behind else SKY, edgecolor=INK, linewidth=0.5)
        words = "newest not known" if behind is None else amount(behind, unit).removesuffix(f" {unit}")
        axes.annotate(
            words,
            (behind or 0, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=VERMILION if behind is None else INK if behind else FAINT,
        )
    axes.set_yticks(range(len(bars)), [drawable(name) for name, _ in bars])
    axes.set_ylim(max(len(bars), 4) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.45)
    plain(axes)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.grid(False)
    axes.set_xlabel(f"{unit} behind now", fontsize=9, color=INK, loc="left")
