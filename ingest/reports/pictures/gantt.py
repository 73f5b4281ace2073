"""A Gantt chart of instants: when each one was on the timeline, and how long each of its states took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.reports.pictures.canvas import (
    drawable,
    dress,
    new_figure,
    nothing_to_see,
    phase_keys,
    plain,
    squeezed_time_axis,
)
from ingest.reports.pictures.gaps import Squeezed
from ingest.reports.pictures.palette import FAINT, INK, PHASES, VERMILION
from ingest.reports.pictures.spans import Bar, InstantOutcome, bars, newest
from timeline.formatting import count, duration, shortened
from timeline.history.epochs import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_IN = 0.27
_FRAME_IN = 0.95
_LONG = 3.0
_HEIGHT = 0.66
_NOTE_LENGTH = 46
_MARK_PT = 6.0
_SCALES = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"), (0.001, "milliseconds"))


def gantt(history: History, *, now: datetime | None = None, most: int = 40) -> Figure:
    """Each instant in time, and the durations of its states; rollbacks and pending instants are marked.

    Args:
        history: instants of the timeline.
        now: end of the bars of pending instants; by default the latest moment of the timeline.
        most: rows drawn; pending instants come first, then rollbacks (a third at most), then the newest.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    every = bars(history)
    if not every:
        return nothing_to_see("Instants of the timeline", "The timeline has no instants yet.")
    shown = newest(every, most)
    latest = max(bar.end or bar.spans[-1].start for bar in shown)
    if now is not None and any(bar.end is None for bar in shown):
        latest = max(latest, now.astimezone(UTC))
    moments = [moment for bar in shown for span in bar.spans for moment in (span.start, span.end) if moment is not None]
    time = Squeezed.of([*moments, latest])
    present = {span.phase for bar in shown for span in bar.spans if span.end is None or span.end > span.start}
    keys = phase_keys(phase for phase in PHASES if phase in present)
    figure = new_figure(_title(every), _subtitle(every, shown, time), _FRAME_IN + _ROW_IN * len(shown), keys)
    when, how_long = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    _draw_when(when, shown, time)
    _draw_durations(how_long, shown, latest)
    return figure


def _title(every: Sequence[Bar]) -> str:
    pending = sum(bar.fate is InstantOutcome.PENDING for bar in every)
    rolled_back = sum(bar.fate is InstantOutcome.ROLLED_BACK for bar in every)
    rest = len(every) - pending - rolled_back
    parts = [count(rest, "instant") + " completed"]
    parts += [f"{rolled_back:,} rolled back"] if rolled_back else []
    parts += [f"{pending:,} pending"] if pending else []
    return ", ".join(parts)


def _subtitle(every: Sequence[Bar], shown: Sequence[Bar], time: Squeezed) -> str:
    left = len(every) - len(shown)
    words = f"{count(left, 'instant')} not drawn: pending ones, the last rollbacks and the newest are. " if left else ""
    return words + ("Hatched grey: a long time without any event, squeezed." if time.gaps else "")


def _draw_when(axes: Axes, shown: Sequence[Bar], time: Squeezed) -> None:
    """Left: the position of each instant in time; long times without events are squeezed, and marked."""
    for y, bar in enumerate(shown):
        for span in bar.spans:
            start, end = time.at(span.start), time.at(span.end or time.last)
            dress(axes.barh(y, end - start, left=start, height=_HEIGHT), PHASES[span.phase])
        axes.plot([time.at(bar.start)], [y], marker="|", color=INK, markersize=7)
        _mark(axes, bar, time.at(bar.end or time.last), y)
    plain(axes)
    squeezed_time_axis(axes, time)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    pattern = "%H:%M:%S" if len({bar.start.date() for bar in shown}) == 1 else "%m-%d %H:%M:%S"
    axes.set_yticks(range(len(shown)), [f"{bar.label}  {bar.start.strftime(pattern)}" for bar in shown])
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.set_title("when", loc="left", fontsize=9.5, color=INK)


def _mark(axes: Axes, bar: Bar, x: float, y: int, *, is_cut: bool = False) -> None:
    """A marker right after the end of a bar that is rolled back, pending or cut."""
    from matplotlib.transforms import ScaledTranslation

    figure = axes.figure
    behind = axes.transData + ScaledTranslation(_MARK_PT / 72, 0, figure.dpi_scale_trans)
    if bar.fate is InstantOutcome.ROLLED_BACK:
        marker, colour, edge = "X", VERMILION, VERMILION
    elif bar.fate is InstantOutcome.PENDING or is_cut:
        marker, colour, edge = ">", "white", INK
    else:
        return
    axes.plot(
        [x],
        [y],
        marker=marker,
        color=colour,
        markeredgecolor=edge,
        markersize=7.5,
        clip_on=False,
        transform=behind,
        zorder=5,
    )


def _draw_durations(axes: Axes, shown: Sequence[Bar], latest: datetime) -> None:
    """Right: consecutive states since the request; a bar far longer than the others is cut, and marked."""
    seconds = [((bar.end or latest) - bar.start).total_seconds() for bar in shown]
    limit = _limit([each for each, bar in zip(seconds, shown, strict=True) if bar.end is not None] or seconds)
    for y, (bar, total) in enumerate(zip(shown, seconds, strict=True)):
        for span in bar.spans:
            start = (span.start - bar.start).total_seconds()
            end = min(limit, ((span.end or latest) - bar.start).total_seconds())
            if start < limit:
                dress(axes.barh(y, end - start, left=start, height=_HEIGHT), PHASES[span.phase])
        reached = min(limit, total)
        _mark(axes, bar, reached, y, is_cut=total > limit)
        _say(axes, bar, total, (reached, y), is_marked=bar.fate is not InstantOutcome.COMMITTED or total > limit)
    # Half of the width is for the texts after the bars.
    axes.set_xlim(0, limit * (2.1 if any(bar.note for bar in shown) else 1.25))
    size, unit = next(scale for scale in _SCALES if limit >= scale[0] * 2 or scale is _SCALES[-1])
    axes.set_xticks(_ticks(limit, size), [f"{tick / size:g}" for tick in _ticks(limit, size)])
    plain(axes)
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.set_xlabel(f"{unit} since the request", fontsize=9, color=INK, loc="left")
    axes.set_title("how long its states took", loc="left", fontsize=9.5, color=INK)


def _say(axes: Axes, bar: Bar, total: float, end: tuple[float, int], *, is_marked: bool) -> None:
    text = f"{duration(total)}{' so far' if bar.end is None else ''}"
    axes.annotate(
        text + (f" · {drawable(shortened(bar.note, _NOTE_LENGTH))}" if bar.note else ""),
        end,
        xytext=(2 * _MARK_PT + 2 if is_marked else 5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK if bar.note else FAINT,
        fontweight="bold" if bar.fate in (InstantOutcome.ROLLED_BACK, InstantOutcome.PENDING) else "normal",
    )


def _ticks(limit: float, size: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    return [tick * size for tick in MaxNLocator(5).tick_values(0, limit / size) if tick * size <= limit * 1.001]


def _limit(seconds: Sequence[float]) -> float:
    """Longest duration drawn, seconds: at most 3 times the upper quartile, so that one bar does not hide the others."""
    ordered = sorted(seconds)
    return max(min(ordered[-1], _LONG * ordered[int(len(ordered) * 0.75)]), 1e-3)
