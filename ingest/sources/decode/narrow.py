"""Finds the lines that Arrow takes among lines of which it refuses some, with few calls.

Lines that cannot be right by the look of their values are set aside first, all at once. What is left
mostly parses at once. Where it does not, Arrow's refusal is a hint: it says at which row it could not
parse ("in row 17"), or quotes the value that it could not convert. Setting a good line aside costs time,
never a row: lines that are set aside are decoded one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import Parsed, Refused
from ingest.sources.decode.fields import Objects
from ingest.sources.decode.lines import Positions, positions_of
from ingest.sources.decode.records import join_lines

_ROW = re.compile(r"in row (\d+)\Z")
_VALUE = re.compile(r"couldn't parse:(.*)\Z|The string '(.*)' is not|: (\S+) requires (?:scale|precision)", re.DOTALL)
_WINDOW_LINES = 512
_MOST_CANDIDATES = 3
_MOST_REFUSED_SHARE = 0.05
"""Beyond this share of refused lines, decoding the rest one by one is faster than asking on."""


@dataclass
class Taken:
    """What Arrow took, piece by piece."""

    _lines: list[Positions] = field(default_factory=list)
    _columns: list[Sequence[pa.Array]] = field(default_factory=list)

    @property
    def lines(self) -> Positions:
        """Indices of the lines, in order."""
        return np.concatenate(self._lines) if self._lines else np.empty(0, np.intp)

    def column(self, at: int, kind: pa.DataType) -> pa.Array:
        """One column of the lines, in the same order."""
        pieces = [columns[at] for columns in self._columns]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays([*pieces, pa.nulls(0, kind)])

    def add(self, lines: Positions, columns: Sequence[pa.Array], bad: Collection[int] = ()) -> None:
        """Take lines.

        Args:
            lines: their indices; all behind those that were taken.
            columns: one value a line.
            bad: positions among them of lines that are not taken.
        """
        if bad:
            keep = np.ones(len(lines), np.bool_)
            keep[list(bad)] = False
            lines, columns = lines[keep], [column.filter(pa.array(keep)) for column in columns]
        self._lines.append(lines)
        self._columns.append(columns)


def suspicious(objects: Objects, schema: pa.Schema) -> npt.NDArray[np.bool_]:
    """Which objects hold a value of the wrong kind by its look.

    Args:
        objects: that were taken apart.
        schema: the columns to look at.
    """
    found = np.zeros(len(objects), np.bool_)
    for column in schema:
        is_right = np.zeros(256, np.bool_)
        is_right[list(_first_bytes(column.type))] = True
        values = objects.column(column.name)
        found[values.rows[~is_right[values.first]]] = True
    return found


def take_what_parses(texts: pa.Array, lines: Positions, parse: Callable[[bytes, int], Parsed], taken: Taken) -> None:
    """Add the lines that Arrow takes to `taken`; the others are left for decoding alone.

    Args:
        texts: the lines, each beginning with ``{`` and ending with ``}``.
        lines: their indices in the block.
        parse: takes so many lines, or raises Refused.
        taken: where to add to.
    """
    _Search(texts, lines, parse, taken).take(0, len(lines))


def _first_bytes(kind: pa.DataType) -> bytes:
    """With what a value of this type can begin; null begins with n."""
    if pa.types.is_floating(kind):
        return b"n-0123456789"
    if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind):
        return b'n"-0123456789'
    if pa.types.is_struct(kind):
        return b"n{"
    return b"n[" if pa.types.is_list(kind) else b'n"'


class _Search:
    """Takes stretches of lines, around the lines that are refused."""

    def __init__(self, texts: pa.Array, lines: Positions, parse: Callable[[bytes, int], Parsed], taken: Taken) -> None:
        self._texts = texts
        self._lines = lines
        self._parse = parse
        self._taken = taken
        self._refusals_left = 16 + int(len(lines) * _MOST_REFUSED_SHARE)

    def take(self, start: int, until: int) -> None:
        """Take of lines ``[start, until)`` what parses: all at once, behind a refused line in growing windows."""
        window = until - start
        while start < until and self._refusals_left > 0:
            stop = min(start + window, until)
            try:
                parsed = self._parse(self._join(start, stop), stop - start)
            except Refused as refusal:
                self._refusals_left -= 1
                start = stop if stop - start == 1 else self._take_around(start, stop, str(refusal))
                window = _WINDOW_LINES
                continue
            self._taken.add(self._lines[start:stop], parsed.columns, parsed.bad)
            start, window = stop, window * 4

    def _take_around(self, start: int, until: int, refusal: str) -> int:
        """Take what lies before the refused line; where to go on, at least one line on or in a smaller stretch."""
        row = _ROW.search(refusal)
        if row is not None:
            refused = start + int(row.group(1))
            self.take(start, refused)
            return refused + 1
        if until - start > _WINDOW_LINES:
            # A value that does not convert is noticed after all lines were parsed: search where that is cheap.
            return start
        quoted = self._line_with_value(start, until, refusal)
        if quoted is not None:
            self.take(start, quoted)
            return quoted + 1
        self.take(start, (start + until) // 2)
        return (start + until) // 2

    def _line_with_value(self, start: int, until: int, refusal: str) -> int | None:
        """A line that holds the value that the refusal quotes and is refused alone."""
        value = _VALUE.search(refusal)
        if value is None:
            return None
        text = next(group for group in value.groups() if group is not None)
        if not text:
            return None
        stretch = self._texts.slice(start, until - start)
        for at in positions_of(pc.match_substring(stretch, pattern=text))[:_MOST_CANDIDATES]:
            try:
                self._parse(self._join(start + at, start + at + 1), 1)
            except Refused:
                return start + at
        return None

    def _join(self, start: int, until: int) -> bytes:
        return join_lines(self._texts.slice(start, until - start))
