"""Chart of recovery: which instants were finished or rolled back, after how long, by whom, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.reports.pictures.canvas import describe, drawable, new_figure, nothing_to_see, plain
from ingest.reports.pictures.palette import BLUE, FAINT, GRID, INK, VERMILION
from ingest.reports.pictures.spans import Bar, InstantOutcome, bars
from timeline.formatting import count, duration, shortened
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.instant import Action

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "What recovery did"
_ROW_IN = 0.42
_LINE_LENGTH = 64
_POWERS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0, 864000.0, 8640000.0)


@dataclass(frozen=True)
class RecoveredInstant:
    """One instant that was rolled back, or finished by another process than its writer.

    Attributes:
        epoch: its epoch; None where it is not recorded.
        instant: its time on the timeline.
        requested: when it was requested, UTC.
        is_committed: whether it was finished; else it was rolled back.
        after_s: seconds from its request to its end.
        by: the process that decided the end.
        reason: why.
    """

    epoch: int | None
    instant: str
    requested: datetime
    is_committed: bool
    after_s: float
    by: str
    reason: str


def rescues(history: History) -> list[RecoveredInstant]:
    """Instants that were rolled back, and those that another process than their writer decided to commit."""
    decided = {entry.instant.time: entry for entry in history.entries if entry.instant.action is Action.COMMIT}
    undone = {_gone(entry): entry for entry in history.entries if entry.instant.action is Action.ROLLBACK}
    found = []
    for bar in bars(history):
        if bar.seconds is None:
            continue
        if bar.fate is InstantOutcome.ROLLED_BACK:
            entry = undone.get(bar.instant)
            plan = entry.rollback if entry else None
            reason = plan.reason if plan else bar.note.removeprefix("rolled back").removeprefix(": ")
            found.append(_rescue(bar, entry.epoch if entry else None, False, plan.by if plan else "", reason))
        elif bar.fate is InstantOutcome.COMMITTED and bar.note:
            entry = decided[bar.instant]
            assert entry.decision is not None
            found.append(_rescue(bar, entry.epoch, True, entry.decision.by, entry.decision.reason))
    return found


def recovery(history: History, *, most: int = 25) -> Figure:
    """Each rescued instant with the time that passed until its end, who decided it, and why.

    Args:
        history: instants of the timeline.
        most: rows drawn, the newest.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    every = rescues(history)
    if not every:
        return nothing_to_see(_TITLE, "Nothing had to be recovered: every epoch was finished by its own writer.")
    finished = sum(each.is_committed for each in every)
    title = f"{_TITLE}: {count(finished, 'instant')} finished, {len(every) - finished:,} rolled back"
    shown = every[-most:]
    left = len(every) - len(shown)
    subtitle = "Time from an instant's request to its end, decided by another process, or given up."
    subtitle += f" {count(left, 'earlier one')} not drawn." if left else ""
    figure = new_figure(title, subtitle, 0.75 + _ROW_IN * len(shown))
    times, words = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    _draw_times(times, shown)
    _write(words, shown)
    describe(figure, f"{title}. " + "; ".join(f"{_name(each)}: {each.reason}" for each in shown[-5:]))
    return figure


def _gone(entry: Entry) -> str:
    """Instant time of the commit that a rollback undid, as its bar has it."""
    return next(iter(entry.undone), entry.instant.time)


def _rescue(bar: Bar, epoch: int | None, is_committed: bool, by: str, reason: str) -> RecoveredInstant:
    return RecoveredInstant(epoch, bar.instant, bar.start, is_committed, bar.seconds or 0.0, by, reason)


def _name(rescue: RecoveredInstant) -> str:
    return f"epoch {rescue.epoch}" if rescue.epoch is not None else "no epoch"


def _draw_times(axes: Axes, shown: Sequence[RecoveredInstant]) -> None:
    shortest, longest = min(each.after_s for each in shown), max(each.after_s for each in shown)
    low = max([power for power in _POWERS if power < shortest / 1.5], default=0.001)
    high = min([power for power in _POWERS if power >= longest], default=longest)
    high = max(high, low * 10)
    axes.set_xscale("log")
    for y, each in enumerate(shown):
        colour, marker = (BLUE, "o") if each.is_committed else (VERMILION, "X")
        after_s = max(each.after_s, low)
        axes.plot(
            [low, after_s], [y, y], color=colour, linewidth=2.2, linestyle="-" if each.is_committed else (0, (3, 2))
        )
        axes.plot([after_s], [y], marker=marker, color=colour, markersize=9, markeredgecolor="white", clip_on=False)
        axes.annotate(
            duration(each.after_s),
            (after_s, y),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
        )
    axes.set_xlim(low, high * (high / low) ** 0.3)
    plain(axes)
    ticks = [power for power in _POWERS if low <= power <= high]
    axes.set_xticks(ticks, [duration(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(shown)), [f"{_name(each)}  {each.requested:%m-%d %H:%M:%S}" for each in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.set_xlabel("from request (UTC, left) to end", fontsize=9, color=INK, loc="left")


def _write(axes: Axes, shown: Sequence[RecoveredInstant]) -> None:
    """Right: the result of each rescue as text."""
    for y, each in enumerate(shown):
        what = "finished" if each.is_committed else "rolled back"
        colour = BLUE if each.is_committed else VERMILION
        who = f" by {drawable(shortened(each.by, 40))}" if each.by else ""
        axes.text(0, y - 0.18, f"{what}{who}", va="center", fontsize=8.5, color=colour, fontweight="bold")
        axes.text(
            0,
            y + 0.2,
            drawable(shortened(each.reason, _LINE_LENGTH)) or "no reason recorded",
            va="center",
            fontsize=8,
            color=FAINT,
        )
        axes.axhline(y + 0.5, color=GRID, linewidth=0.5)
    axes.set_xlim(0, 1)
    axes.axis("off")
