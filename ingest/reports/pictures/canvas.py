"""Figures without global state: creation, time axes, and output as PNG or SVG.

matplotlib is imported where a picture is drawn: a command that draws nothing does not pay for it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.reports.pictures.gaps import Squeezed
from ingest.reports.pictures.palette import FAINT, GRID, INK, PHASES, SpanPhase, Style
from timeline.errors import ConfigError
from timeline.formatting import duration

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

FORMATS = ("png", "svg")
"""File formats of pictures, as file extensions."""

WIDTH_IN = 9.0
"""Width of every picture, inches: a printed page's."""

_DPI = 144
_ROOM_FOR_LABEL = 0.22


@cache
def _picture() -> Callable[[float], Figure]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"pictures need a package that is not installed ({error.name}): pip install 'tideline[look]'"
        ) from error

    class Picture(Figure):
        """A figure that a notebook shows by itself, with or without ``%matplotlib inline``."""

        def __init__(self, height_in: float) -> None:
            super().__init__(figsize=(WIDTH_IN, height_in), dpi=_DPI, facecolor="white", layout="constrained")
            FigureCanvasAgg(self)

        def _repr_png_(self) -> bytes:
            return rendered(self, "png")

    return Picture


def new_figure(title: str, subtitle: str, height_in: float, keys: Sequence[Artist] = (), columns: int = 2) -> Figure:
    """An empty figure with titles and legend.

    Args:
        title: what the figure shows, in bold.
        subtitle: further explanation; one line, or empty.
        height_in: height of the axes, inches; the titles and the legend add to it.
        keys: entries of the legend, which stands between the titles and the data.
        columns: columns of the legend.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    rows = -(-len(keys) // columns)
    head_in = 0.42 + (0.22 if subtitle else 0) + (0.1 + 0.2 * rows if rows else 0)
    whole_in = height_in + head_in
    figure = _picture()(whole_in)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0.005, 0.005, 0.985, height_in / whole_in))  # type: ignore[call-arg]
    figure.text(0.012, 1 - 0.12 / whole_in, drawable(title), fontsize=13, fontweight="bold", color=INK, va="top")
    if subtitle:
        figure.text(0.012, 1 - 0.4 / whole_in, drawable(subtitle), fontsize=8.5, color=FAINT, va="top")
    if rows:
        top_in = 0.36 + (0.22 if subtitle else 0)
        figure.legend(
            handles=list(keys),
            loc="upper left",
            bbox_to_anchor=(0.005, 1 - top_in / whole_in),
            ncols=columns,
            fontsize=8.5,
            frameon=False,
            handlelength=2.4,
        ).set_in_layout(False)
    describe(figure, f"{title}. {subtitle}")
    return figure


def describe(figure: Figure, text: str) -> None:
    """Set the text description of a picture, its alternative text."""
    figure.set_label("".join(letter if letter.isprintable() else "\ufffd" for letter in text.strip().rstrip(".")))


def description(figure: Figure) -> str:
    """Text description of a picture."""
    return str(figure.get_label())


def nothing_to_see(title: str, why: str) -> Figure:
    """An empty picture with the reason in its middle."""
    figure = new_figure(title, "", 2.2)
    figure.text(0.5, 0.45, why, ha="center", va="center", fontsize=12, color=FAINT)
    describe(figure, f"{title}. {why}")
    return figure


def rendered(figure: Figure, kind: str) -> bytes:
    """The picture as a file's content; the same figure gives the same bytes.

    Args:
        figure: the picture.
        kind: one of `FORMATS`.
    """
    from matplotlib import rc_context

    out = io.BytesIO()
    about: dict[str, str | None] = {"Title": description(figure)}
    if kind == "svg":
        about |= {"Date": None, "Creator": "Tideline"}
    with rc_context({"svg.hashsalt": "tideline", "svg.fonttype": "path"}), warnings.catch_warnings():
        # A letter that the font does not have is drawn as a box; the page and the tables have it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(out, format=kind, metadata=about)
    return out.getvalue()


def drawable(text: str) -> str:
    """A text from storage as matplotlib draws it literally: no formula, no control character, nothing hidden."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    # A label that begins with an underscore is left out of legends.
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def format_of(path: Path) -> str:
    """Format of a picture by its file's extension.

    Raises:
        ConfigError: the extension is none of `FORMATS`.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ConfigError(f"{path}: a picture's name ends in {' or '.join('.' + each for each in FORMATS)}")
    return kind


def plain(axes: Axes, *, grid: str = "x") -> None:
    """Remove the upper and right frame, and draw a faint grid behind the data.

    Args:
        axes: the axes.
        grid: along which axis: x, y or both.
    """
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(labelsize=8.5, colors=INK)
    axes.set_axisbelow(True)
    axes.grid(True, axis=grid, color=GRID, linewidth=0.6)  # type: ignore[arg-type]


def time_axis(axes: Axes, first: datetime, last: datetime, most_ticks: int = 7) -> None:
    """Make x a time axis in UTC; one moment alone gets a minute around it.

    Args:
        axes: the axes.
        first: the earliest moment shown.
        last: the latest moment shown.
        most_ticks: most tick labels.
    """
    room = _room(first, last)
    axes.set_xlim(first - room, last + room)  # type: ignore[arg-type]
    locator, formatter = _ticker(most_ticks)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel(f"time, UTC ({_days(first, last)})", fontsize=9, color=INK)


def squeezed_time_axis(axes: Axes, time: Squeezed) -> None:
    """Make x a time axis in UTC whose positions are those of `time`, with its gaps marked by their lengths."""
    from matplotlib.dates import date2num, num2date

    room_s = max(time.length_s * 0.04, _room(time.first, time.first).total_seconds() if not time.length_s else 0)
    axes.set_xlim(-room_s, time.length_s + room_s)
    if time.gaps:
        moments = _apart(time)
        labels = [moment.strftime("%H:%M:%S\n%m-%d") for moment in moments]
        for at, gap in enumerate(time.gaps):
            left, right = time.at(gap.start), time.at(gap.end)
            middle = ((left + right) / 2 + room_s) / (time.length_s + 2 * room_s)
            axes.axvspan(left, right, facecolor="none", edgecolor=GRID, hatch="////", linewidth=0, zorder=0)
            axes.annotate(
                duration(gap.seconds),
                (middle, 1),
                # Neighbouring labels stand at two heights, so that they do not overlap.
                xytext=(0, 2 + 9 * (at % 2)),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=FAINT,
            )
    else:
        first, last = time.first - timedelta(seconds=room_s), time.last + timedelta(seconds=room_s)
        locator, formatter = _ticker(5)
        between = date2num([first, last])  # type: ignore[no-untyped-call]
        ticks = locator.tick_values(first, last)  # type: ignore[no-untyped-call]
        values = [value for value in ticks if between[0] <= value <= between[1]]
        moments = [num2date(value, UTC) for value in values]  # type: ignore[no-untyped-call]
        labels = formatter.format_ticks(values)  # type: ignore[no-untyped-call]
    axes.set_xticks([time.at(moment) for moment in moments], labels)
    axes.set_xlabel(f"time, UTC ({_days(time.first, time.last)})", fontsize=9, color=INK)


def _apart(time: Squeezed) -> list[datetime]:
    """Starts of the segments between gaps that have room for a label; always including the last one."""
    kept = [time.segments[-1]]
    for moment in reversed(time.segments[:-1]):
        if time.at(kept[-1]) - time.at(moment) > time.length_s * _ROOM_FOR_LABEL:
            kept.append(moment)
    return kept[::-1]


def _room(first: datetime, last: datetime) -> timedelta:
    if last - first < timedelta(seconds=0.1):
        return timedelta(seconds=30)
    return (last - first) * 0.03


def _ticker(most_ticks: int) -> tuple[AutoDateLocator, ConciseDateFormatter]:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=most_ticks)  # type: ignore[no-untyped-call]
    formats = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"]
    zero_formats = ["%Y", "%Y", "%m-%d", "%m-%d", "%H:%M", "%H:%M:%S.%f"]
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator, tz=UTC, show_offset=False, formats=formats, zero_formats=zero_formats
    )
    return locator, formatter


def _days(first: datetime, last: datetime) -> str:
    one, other = first.strftime("%Y-%m-%d"), last.strftime("%Y-%m-%d")
    return one if one == other else f"{one} to {other}"


def dress(patches: BarContainer | Iterable[Patch], style: Style) -> None:
    """Give bars a phase's colour, hatch and outline."""
    for patch in patches:
        patch.set_facecolor(style.colour)
        patch.set_edgecolor(INK)
        patch.set_hatchcolor(style.hatch_colour)
        patch.set_hatch(style.hatch or None)  # type: ignore[arg-type]
        patch.set_linewidth(0.5)


def key(style: Style, label: str) -> Artist:
    """An entry of a legend.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    _picture()
    from matplotlib.patches import Patch

    return Patch(
        facecolor=style.colour,
        edgecolor=INK,
        hatch=style.hatch,
        hatchcolor=style.hatch_colour,
        label=label,
        linewidth=0.5,
    )


def phase_keys(phases: Iterable[SpanPhase]) -> list[Artist]:
    """An entry of a legend for each phase."""
    return [key(PHASES[phase], phase.value) for phase in phases]
