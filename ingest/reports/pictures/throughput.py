"""Chart of throughput: rows and bytes per second of each epoch, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING

from ingest.reports.pictures.canvas import describe, new_figure, nothing_to_see, plain, time_axis
from ingest.reports.pictures.palette import BLUE, FAINT, INK, SKY, VERMILION
from timeline.formatting import count, size
from timeline.history.epochs import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 300
_TITLE = "Throughput"


@dataclass(frozen=True)
class EpochRate:
    """Throughput of one epoch.

    Attributes:
        end: when it was completed, UTC.
        rows_per_s: accepted rows per second, from its request to its completion.
        bytes_per_s: bytes of data files per second.
    """

    end: datetime
    rows_per_s: float
    bytes_per_s: float


def rates(history: History) -> list[EpochRate]:
    """Throughput of each commit, in the order of their ends; commits without rows and files are left out."""
    found = []
    for row in history.instants():
        is_commit = row.outcome == "commit" and (row.rows or row.files)
        if is_commit and row.requested is not None and row.completed is not None and row.rows is not None:
            seconds = max((row.completed - row.requested).total_seconds(), 1e-3)
            found.append(EpochRate(row.completed, row.rows / seconds, (row.bytes or 0) / seconds))
    return sorted(found, key=lambda rate: rate.end)


def throughput(history: History) -> Figure:
    """Rows and megabytes per second of each committed epoch; rolled-back epochs are marked on the axis.

    Args:
        history: instants of the timeline.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    every = rates(history)
    if not every:
        return nothing_to_see(_TITLE, "No epoch has been committed yet.")
    undone = [row.completed for row in history.epochs() if row.state == "rolled back" and row.completed is not None]
    rows, data = median(rate.rows_per_s for rate in every), median(rate.bytes_per_s for rate in every)
    title = f"{_TITLE}: {rows:,.0f} rows/s and {size(data)}/s in the middle of {count(len(every), 'epoch')}"
    subtitle = "Rows accepted, and bytes of data files, over the time from an epoch's request to its completion."
    if len(every) > _MOST_POINTS:
        subtitle += " Area: slowest to fastest."
    figure = new_figure(title, subtitle, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    _draw(above, every, lambda rate: rate.rows_per_s, "rows / s")
    _draw(below, every, lambda rate: rate.bytes_per_s / 1e6, "MB / s")
    _mark_rollbacks(above, undone)
    moments = [rate.end for rate in every] + undone
    time_axis(below, min(moments), max(moments))
    above.tick_params(labelbottom=False)
    describe(figure, f"{title}; {count(len(undone), 'epoch')} rolled back")
    return figure


def _draw(axes: Axes, every: Sequence[EpochRate], value: Callable[[EpochRate], float], unit: str) -> None:
    if len(every) > _MOST_POINTS:
        size_of = -(-len(every) // _MOST_POINTS)
        parts = [every[at : at + size_of] for at in range(0, len(every), size_of)]
        ends = [part[-1].end for part in parts]
        values = [sorted(map(value, part)) for part in parts]
        axes.fill_between(
            ends,  # type: ignore[arg-type]
            [each[0] for each in values],
            [each[-1] for each in values],
            color=SKY,
            alpha=0.5,
            linewidth=0,
        )
        axes.plot(ends, [each[len(each) // 2] for each in values], color=BLUE, linewidth=1.4)  # type: ignore[arg-type]
    else:
        ends = [rate.end for rate in every]
        points = list(map(value, every))
        axes.vlines(ends, 0, points, color=SKY, linewidth=1.2)  # type: ignore[arg-type]
        axes.plot(ends, points, linestyle="", marker="o", color=BLUE, markersize=5)  # type: ignore[arg-type]
    middle = median(map(value, every))
    axes.axhline(middle, color=INK, linewidth=0.8, linestyle=(0, (6, 4)))
    # Above the data, where nothing hides it.
    axes.text(
        1.0,
        1.02,
        f"dashed: the middle one, {middle:,.{0 if middle >= 100 else 2}f} {unit}",
        transform=axes.transAxes,
        ha="right",
        fontsize=8.5,
        color=INK,
    )
    plain(axes, grid="y")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
    axes.set_ylabel(unit, fontsize=9, color=INK)


def _mark_rollbacks(axes: Axes, undone: Sequence[datetime]) -> None:
    if undone:
        axes.plot(
            list(undone),  # type: ignore[arg-type]
            [0.0] * len(undone),
            linestyle="",
            marker="X",
            markersize=8 if len(undone) <= 40 else 4,
            color=VERMILION,
            markeredgecolor="white",
            clip_on=False,
            zorder=5,
        )
        axes.text(
            0.0,
            1.02,
            f"X  {count(len(undone), 'epoch')} rolled back",
            transform=axes.transAxes,
            fontsize=8.5,
            color=VERMILION,
            fontweight="bold",
        )
    else:
        axes.text(0.0, 1.02, "no epoch rolled back", transform=axes.transAxes, fontsize=8.5, color=FAINT)
