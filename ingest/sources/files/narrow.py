"""Finds the lines that Arrow refuses among lines that it takes, with few calls.

Arrow stops at the first line that it cannot parse and says which ("in row 17"); a value that it
cannot convert it only quotes. Both are hints: a line is called bad only when it is refused alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ingest.sources.files.arrow_json import Parsed, Refused

_ROW = re.compile(r"in row (\d+)\Z")
_VALUE = re.compile(r"couldn't parse:(.*)\Z|The string '(.*)' is not|: (\S+) requires (?:scale|precision)", re.DOTALL)
_WINDOW_BYTES = 128 * 1024
_MOST_CANDIDATES = 3


@dataclass
class Found:
    """What Arrow took.

    Attributes:
        good: indices of the lines, in order.
        columns: pieces of their columns, in the same order.
    """

    good: list[int] = field(default_factory=list)
    columns: list[list[pa.Array]] = field(default_factory=list)


def find_bad_lines(lines: Sequence[bytes], parse: Callable[[Sequence[bytes]], Parsed]) -> Found:
    """The lines that `parse` takes, with their columns; the others are not in the answer.

    Args:
        lines: to be parsed.
        parse: takes lines together exactly when it takes each of them alone, or raises Refused.
    """
    search = _Search(lines, parse)
    start = 0
    while start < len(lines):
        until, size = start, 0
        while until < len(lines) and (size == 0 or size + len(lines[until]) <= _WINDOW_BYTES):
            size += len(lines[until])
            until += 1
        search.window(start, until)
        start = until
    return search.found


class _Search:
    """The search's state: what was taken so far, and stretches that parse but were not kept yet."""

    def __init__(self, lines: Sequence[bytes], parse: Callable[[Sequence[bytes]], Parsed]) -> None:
        self.found = Found()
        self._lines = lines
        self._parse = parse

    def window(self, start: int, until: int) -> None:
        """Search lines ``[start, until)``."""
        self._take(list(range(start, until)))

    def _take(self, indices: list[int]) -> None:
        """Take these lines, leaving out one bad line after another until the rest is taken."""
        while indices:
            try:
                parsed = self._parse([self._lines[index] for index in indices])
            except Refused as refusal:
                suspect = self._suspect(indices, str(refusal))
                if suspect is None:
                    middle = len(indices) // 2
                    if middle:
                        self._take(indices[:middle])
                        self._take(indices[middle:])
                    return
                del indices[suspect]
                continue
            self._keep(indices, parsed)
            return

    def _keep(self, indices: list[int], parsed: Parsed) -> None:
        kept = [index for at, index in enumerate(indices) if at not in parsed.bad]
        if not kept:
            return
        columns = parsed.columns
        if parsed.bad:
            mask = pa.array([at not in parsed.bad for at in range(len(indices))])
            columns = [column.filter(mask) for column in columns]
        self.found.good += kept
        self.found.columns.append(columns)

    def _suspect(self, indices: list[int], refusal: str) -> int | None:
        """Place of a line that is refused alone, by the hint; None where the hint leads to none."""
        if len(indices) == 1:
            return 0
        row, value = _ROW.search(refusal), _VALUE.search(refusal)
        candidates: list[int] = []
        if row is not None:
            # Garbage behind an object is reported for the row after it.
            candidates = [at for at in (int(row.group(1)), int(row.group(1)) - 1) if 0 <= at < len(indices)]
        elif value is not None:
            text = next(group for group in value.groups() if group is not None).encode()
            candidates = [at for at, index in enumerate(indices) if text in self._lines[index]][:_MOST_CANDIDATES]
        return next((at for at in candidates if self._refused_alone(indices[at])), None)

    def _refused_alone(self, index: int) -> bool:
        try:
            self._parse([self._lines[index]])
        except Refused:
            return True
        return False
