"""Draws the samples of a profile as a flame graph: an SVG file without scripts.

    py-spy record --subprocesses --format raw --output run.raw -- tideline run job.yaml --once
    python -m bench.flame run.raw docs/pictures/flame.svg --title "64 epochs of 8 MB"

The width of a box is the share of the samples in which that function, or one that it called, was running; its caller is
below it. Boxes of one colour belong to one package.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from timeline.html import Html, element

_WIDTH, _ROW, _HEAD, _EDGE = 1_000, 15, 46, 8
_LEAST = 0.002
"""Share of the samples below which a box is not drawn."""
_LETTER = 5.6
_FONT = "font-family:monospace;font-size:9.5px"
_PACKAGES = {"ingest": "#9ecae1", "sinks": "#fdd0a2", "timeline": "#c7e9c0", "pyarrow": "#dadaeb"}
_OTHERS = "#e6e6e6"
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^:()]*)(?::\d+)?\)")
_IMPORT = "_find_and_load"
"""Python's function that imports a module; all its calls, module below module, are one box."""
_PROCESS = re.compile(r"process \d+:.*")


@dataclass
class Box:
    """A function, called from one stack.

    Attributes:
        name: the function and its file.
        samples: number of samples in which it, or a function that it called, was running.
        calls: functions that it called, by name.
    """

    name: str
    samples: int = 0
    calls: dict[str, Box] = field(default_factory=dict)

    def add(self, names: Iterable[str], samples: int) -> None:
        """Count the samples of one stack, from the outermost call on."""
        box = self
        box.samples += samples
        for name in names:
            box = box.calls.setdefault(name, Box(name))
            box.samples += samples


def read(text: str) -> Box:
    """Read a profile, one stack a line: ``outer;inner;innermost 12``. Source lines of a function are one box."""
    root = Box("all")
    for line in text.splitlines():
        stack, _, samples = line.rpartition(" ")
        root.add(_names(stack), int(samples))
    return root


def draw(root: Box, title: str) -> str:
    """Text of the SVG file."""
    boxes = list(_boxes(root, root.samples, 0.0, 0))
    rows = 1 + max((row for _, _, row in boxes), default=0)
    height = _HEAD + rows * _ROW + _EDGE
    drawn = [_drawn(box, left, height - _EDGE - (row + 1) * _ROW, root.samples) for box, left, row in boxes]
    background = element("rect", width=_WIDTH, height=height, fill="#ffffff")
    head = element("text", f"{title}: {root.samples:,} samples", x=_EDGE, y=18, style="font:bold 13px sans-serif")
    return element(
        "svg",
        background,
        head,
        *_legend(),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
    )


def _names(stack: str) -> Iterator[str]:
    for frame in stack.split(";"):
        if _PROCESS.fullmatch(frame):
            continue
        found = _FRAME.fullmatch(frame)
        if found and found["function"] == _IMPORT:
            yield "imports"
            return
        yield f"{found['function']} ({found['file']})" if found else frame


def _boxes(box: Box, total: int, left: float, row: int) -> Iterator[tuple[Box, float, int]]:
    """Boxes that are wide enough, each with its left edge as a share of the width, and its row from below."""
    yield box, left, row
    for call in sorted(box.calls.values(), key=lambda call: call.name):
        if call.samples >= _LEAST * total:
            yield from _boxes(call, total, left, row + 1)
        left += call.samples / total


def _drawn(box: Box, left: float, top: float, total: int) -> Html:
    width = box.samples / total * (_WIDTH - 2 * _EDGE)
    x = _EDGE + left * (_WIDTH - 2 * _EDGE)
    letters = int((width - 4) / _LETTER)
    label = box.name if len(box.name) <= letters else box.name[: letters - 1] + "…" if letters > 3 else ""
    title = element("title", f"{box.name}: {box.samples / total:.1%}")
    shape = element(
        "rect", title, x=f"{x:.1f}", y=top, width=f"{max(width - 0.5, 0.3):.1f}", height=_ROW - 1, fill=_colour(box)
    )
    text = element("text", label, x=f"{x + 2:.1f}", y=top + _ROW - 4, style=_FONT) if label else None
    return element("g", shape, text)


def _legend() -> Iterator[Html]:
    for number, (package, colour) in enumerate([*_PACKAGES.items(), ("others", _OTHERS)]):
        x = _EDGE + number * 90
        yield element("rect", x=x, y=27, width=11, height=11, fill=colour)
        yield element("text", package, x=x + 15, y=36, style=_FONT)


def _colour(box: Box) -> str:
    found = _FRAME.fullmatch(box.name)
    return _PACKAGES.get(found["file"].partition("/")[0], _OTHERS) if found else _OTHERS


def main() -> None:
    """Draw a profile into an SVG file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--title", required=True)
    given = parser.parse_args()
    given.picture.write_text(draw(read(given.profile.read_text()), given.title) + "\n", encoding="utf-8")
    print(given.picture)


if __name__ == "__main__":
    main()
