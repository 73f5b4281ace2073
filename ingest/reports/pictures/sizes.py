"""Sizes of the data files of each target; small ones stand out, because tables of small files read slowly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingest.reports.pictures.canvas import describe, drawable, dress, key, new_figure, nothing_to_see, plain
from ingest.reports.pictures.palette import BLUE, INK, ORANGE, WHITE, Style
from timeline.formatting import count, shortened, size
from timeline.history.epochs import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL_BYTES = 10_000_000
"""Size below which a file counts as small: readers then spend more time on opening files than on reading them."""

_MOST_TARGETS = 6
_SMALL = Style(ORANGE, "xxx")
_USUAL = Style(BLUE, "///", WHITE)
_TITLE = "Sizes of data files"


def file_sizes(history: History) -> dict[str, list[int]]:
    """Sizes in bytes of committed files by target; files of other writers, without a target, count for ``table``."""
    found: dict[str, list[int]] = {}
    for file in history.files():
        if file.outcome == "commit" and file.bytes is not None:
            found.setdefault(file.target or "table", []).append(file.bytes)
    return found


def sizes(history: History) -> Figure:
    """Histogram of the sizes of committed files, one for each target.

    Args:
        history: instants of the timeline. Files that another tool has deleted since count too.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    by_target = _most(file_sizes(history))
    if not by_target:
        return nothing_to_see(_TITLE, "No data file has been committed yet.")
    every = [each for found in by_target.values() for each in found]
    small = sum(each < SMALL_BYTES for each in every)
    title = f"{_TITLE}: {small:,} of {len(every):,} small"
    limit = size(SMALL_BYTES).replace(".0", "")
    keys = [key(_SMALL, f"small: below {limit}"), key(_USUAL, "not small")]
    figure = new_figure(title, "Files as they were committed, by size.", 0.7 + 1.7 * len(by_target), keys)
    columns = figure.subplots(len(by_target), 1, sharex=True, squeeze=False)[:, 0]
    low = class_of(min(every))
    high = max(class_of(max(every)) + 1, low + 4)
    for axes, (target, found) in zip(columns, by_target.items(), strict=True):
        _draw(axes, target, found, low, high)
    columns[-1].set_xlabel("size of a file", fontsize=9, color=INK)
    describe(figure, f"{title}; {', '.join(f'{target}: {len(found):,}' for target, found in by_target.items())}")
    return figure


def _most(by_target: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Sizes of the targets with the most files; targets beyond `_MOST_TARGETS` are merged."""
    ordered = sorted(by_target, key=lambda target: -len(by_target[target]))
    room = _MOST_TARGETS if len(ordered) <= _MOST_TARGETS else _MOST_TARGETS - 1
    shown = {target: by_target[target] for target in ordered[:room]}
    rest = [each for target in ordered[room:] for each in by_target[target]]
    return shown | ({count(len(ordered) - room, "other target"): rest} if rest else {})


def class_of(size_bytes: int) -> int:
    """The class of a size: classes begin at 1, 2, 5, 10, 20, 50, … bytes."""
    at = 3 * int(math.log10(max(size_bytes, 1)))
    while begin_of(at + 1) <= size_bytes:
        at += 1
    return at


def begin_of(number: int) -> int:
    """The smallest size of a class, bytes."""
    return int((1, 2, 5)[number % 3] * 10 ** (number // 3))


def _draw(axes: Axes, target: str, found: Sequence[int], low: int, high: int) -> None:
    counts = [0] * (high - low)
    for each in found:
        counts[class_of(each) - low] += 1
    for at, files in enumerate(counts):
        if files:
            style = _SMALL if begin_of(low + at) < SMALL_BYTES else _USUAL
            dress(axes.bar(low + at, files, width=0.94, align="edge"), style)
            axes.annotate(
                f"{files:,}",
                (low + at + 0.47, files),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
            )
    plain(axes, grid="y")
    ticks = list(range(low, high + 1, max(1, (high - low) // 8)))
    axes.set_xticks(ticks, [size(begin_of(tick)).replace(".0 ", " ") for tick in ticks])
    axes.set_xlim(low - 0.2, high + 0.2)
    axes.set_ylim(0, max(counts) * 1.25)
    axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.set_ylabel("files", fontsize=9, color=INK)
    middle = sorted(found)[len(found) // 2]
    amount = f"{count(len(found), 'file')}, {size(sum(found))}, the middle one {size(middle)}"
    words = f"{drawable(shortened(target, 50))}: {amount}"
    axes.set_title(words, loc="left", fontsize=9.5, color=INK)
