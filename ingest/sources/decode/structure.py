"""Where the fields of JSON objects are in a block of lines, without parsing it.

::

    {"a": {"b": [1, "}"]}, "c" : 2 }        one line, one object
    1     2     3     3 2 1         0       depth behind each bracket outside of strings
     ─┬─   ─────────┬─────  ─┬─   ┬
    name          value    name  value      what is found: fields of the object itself, depth 1

Quotes that are not escaped say by their parity what is inside of strings; brackets outside of strings say
how deep a byte is. Both are counted over the whole block at once and start anew with each line, so a
broken line harms no other. It is an index and no proof: a line of this form can still be no JSON, so
whoever takes a value out lets a parser read the value and what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from ingest.sources.decode.lines import LineBounds, Positions

_QUOTE, _COMMA, _COLON = (ord(char) for char in '",:')
_OPENING, _CLOSING = (ord("{"), ord("[")), (ord("}"), ord("]"))
_BACKSLASH = ord("\\")
_LF = ord("\n")
_DEEPEST = 500
"""Python's parser gives up at some depth below 1,000; what is deeper is left to it."""
_MOST_BLANKS = 16
"""In a row; more of them are rare, and their line is doubtful."""

_STRETCH_BYTES = 512 * 1024

_STEPS = np.zeros(256, np.int8)
_STEPS[list(_OPENING)] = 1
_STEPS[list(_CLOSING)] = -1
_BLANKS = np.zeros(256, np.bool_)
_BLANKS[[ord(char) for char in " \t\r"]] = True

_Codes = npt.NDArray[np.uint8]
_Flags = npt.NDArray[np.bool_]
_Counts = npt.NDArray[np.int32]

_NO_FLAGS: _Flags = np.empty(0, np.bool_)
_NO_POSITIONS: Positions = np.empty(0, np.intp)


@dataclass(frozen=True)
class Fields:
    """Fields of the objects that lines are, in the order in which they stand; positions in the block's bytes.

    Attributes:
        doubtful: for each line, whether its structure is not clear; its fields are not given.
        rows: the line that each field is in.
        names: index of each field's name among those asked for; 0 where all were asked for.
        name_starts: of the name's opening quote.
        name_ends: behind its closing quote.
        starts: of the value's first byte.
        ends: behind its last one.
    """

    doubtful: _Flags
    rows: Positions
    names: Positions
    name_starts: Positions
    name_ends: Positions
    starts: Positions
    ends: Positions

    def but(self, doubtful: _Flags) -> Fields:
        """Without the fields of these lines, which are doubtful too."""
        if not doubtful.any():
            return self
        return replace(self.only(~doubtful[self.rows]), doubtful=self.doubtful | doubtful)

    def only(self, which: _Flags) -> Fields:
        """Some of the fields."""
        return Fields(
            self.doubtful,
            self.rows[which],
            self.names[which],
            self.name_starts[which],
            self.name_ends[which],
            self.starts[which],
            self.ends[which],
        )


@dataclass(frozen=True)
class Structure:
    """Quotes and brackets of lines at the level of the objects that the lines are.

    In each line: its ``{``; opening and closing quote of each string, opening and closing bracket of each value
    that has them; its ``}``. Nothing of doubtful lines.

    Attributes:
        data: lines without blank ones, each beginning with ``{`` and ending with ``}``.
        bounds: of the lines.
        doubtful: for each line, whether it is no object by its brackets and quotes.
        at: where they are.
        opens: which of them are opening quotes.
    """

    data: bytes
    bounds: LineBounds
    doubtful: _Flags
    at: Positions
    opens: _Flags

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Found stretch by stretch: what is needed on the way stays in the processor's cache."""
        bounds = LineBounds.of(data)
        has_backslash = b"\\" in data
        first = np.unique(np.searchsorted(bounds.starts, np.arange(0, len(data), _STRETCH_BYTES)))
        doubtful, at, opens = [_NO_FLAGS], [_NO_POSITIONS], [_NO_FLAGS]
        for line, until in pairwise([*first[first < len(bounds.starts)].tolist(), len(bounds.starts)]):
            begin = bounds.starts[line]
            end = len(data) if until == len(bounds.starts) else bounds.starts[until]
            starts, ends = bounds.starts[line:until] - begin, bounds.ends[line:until] - begin
            outline = _outline(LineBounds(bounds.codes[begin:end], starts, ends), has_backslash=has_backslash)
            doubtful.append(outline[0])
            at.append(outline[1] + begin)
            opens.append(outline[2])
        return cls(data, bounds, np.concatenate(doubtful), np.concatenate(at), np.concatenate(opens))

    def named(self, names: Sequence[str]) -> Fields:
        """Fields with these names; a name that is written with escapes is not found.

        What is between the fields is not looked at. A line that has a name twice is doubtful.
        """
        openings = np.flatnonzero(self.opens)
        begin = self.at[openings] + 1
        lengths = self.at[openings + 1] - begin
        names_of = np.full(len(openings), -1, np.intp)
        for index, name in enumerate(names):
            code = np.frombuffer(name.encode(), np.uint8)
            like = np.flatnonzero(lengths == len(code))
            for offset, byte in enumerate(code):
                like = like[self.bounds.codes[begin[like] + offset] == byte]
            if "\\" not in name:
                names_of[like] = index
        found = np.flatnonzero(names_of >= 0)
        fields = self._fields(openings[found], names_of[found])
        twice = np.zeros_like(fields.doubtful)
        for index in range(len(names)):
            rows = fields.rows[fields.names == index]
            twice[rows[1:][rows[1:] == rows[:-1]]] = True
        return fields.but(twice)

    def all(self) -> Fields:
        """Every field; lines that are not fields parted by commas are doubtful, whatever the values are."""
        codes, bounds = self.bounds.codes, self.bounds
        openings = np.flatnonzero(self.opens)
        fields = self._fields(openings, np.zeros(len(openings), np.intp))
        rows = len(bounds.starts)
        entries = np.where(_has_marks(codes[fields.starts]), 4, 2)
        expected = 2 + np.bincount(fields.rows, weights=entries, minlength=rows)
        doubtful = np.diff(np.searchsorted(self.at, bounds.ends), prepend=0) != expected
        first = np.flatnonzero(np.diff(fields.rows, prepend=-1))
        before = _skip(codes, fields.name_starts[first] - 1, -1)
        doubtful[fields.rows[first[before != bounds.starts[fields.rows[first]]]]] = True
        empty = np.bincount(fields.rows, minlength=rows) == 0
        doubtful[empty] |= _skip(codes, bounds.starts[empty] + 1, 1) != bounds.ends[empty] - 1
        return fields.but(doubtful)

    def _fields(self, openings: Positions, names: Positions) -> Fields:
        """Those of some strings that are names of fields, with their values.

        Args:
            openings: indices of their opening quotes.
            names: for each.
        """
        codes, at, bounds = self.bounds.codes, self.at, self.bounds
        colons = _skip(codes, at[openings + 1] + 1, 1)
        is_name = codes[colons] == _COLON
        openings, colons, names = openings[is_name], colons[is_name], names[is_name]
        starts = _skip(codes, colons + 1, 1)
        # A string or a bracket has two entries of its own; what follows is the next name, or the end.
        has_marks = _has_marks(codes[starts])
        following = openings + 2 + 2 * has_marks
        rows = np.searchsorted(bounds.starts, at[openings], side="right") - 1
        unclear = following >= len(at)
        following[unclear] = len(at) - 1
        is_last = at[following] == bounds.ends[rows] - 1
        behind = np.where(is_last, at[following], _skip(codes, at[following] - 1, -1))
        unclear |= ~is_last & ((codes[behind] != _COMMA) | ~self.opens[following])
        ends = _skip(codes, behind - 1, -1) + 1
        unclear |= (ends <= starts) | _BLANKS[codes[ends - 1]] | (has_marks & (at[openings + 2] != starts))
        doubtful = np.zeros_like(self.doubtful)
        doubtful[rows[unclear]] = True
        return Fields(self.doubtful, rows, names, at[openings], at[openings + 1] + 1, starts, ends).but(doubtful)


def _outline(bounds: LineBounds, *, has_backslash: bool) -> tuple[_Flags, Positions, _Flags]:
    """Which lines are doubtful, where the quotes and brackets of the others are, and which are opening quotes."""
    rows = len(bounds.starts)
    marks = np.flatnonzero(_marks(bounds.codes, has_backslash=has_backslash))
    kinds = bounds.codes[marks]
    is_quote = kinds == _QUOTE
    line_ends = np.flatnonzero(kinds == _LF)
    if len(line_ends) < rows:
        line_ends = np.append(line_ends, len(marks))
    quotes = np.cumsum(is_quote, dtype=np.int32)
    doubtful = _per_line(quotes, line_ends) % 2 != 0
    if doubtful.any():
        quotes = _anew(quotes, line_ends)
    inside = (quotes & 1).astype(np.bool_)
    steps = _STEPS[kinds] * ~inside
    depth = np.cumsum(steps, dtype=np.int32)
    unbalanced = _per_line(depth, line_ends) != 0
    if unbalanced.any():
        depth = _anew(depth, line_ends)
    doubtful |= unbalanced
    # An object is closed once, by its line's last byte.
    closing = np.flatnonzero((steps < 0) & (depth == 0))
    if len(closing) != rows or not np.array_equal(marks[closing], bounds.ends - 1):
        doubtful |= np.bincount(np.searchsorted(line_ends, closing), minlength=rows) != 1
    if depth.max() > _DEEPEST:
        doubtful[np.searchsorted(line_ends, np.flatnonzero(depth > _DEEPEST))] = True
    is_shallow = (depth - (steps > 0) <= 1) & (is_quote | (steps != 0))
    if doubtful.any():
        is_shallow &= ~np.repeat(doubtful, np.diff(line_ends, prepend=-1))[: len(marks)]
    shallow = np.flatnonzero(is_shallow)
    return doubtful, marks[shallow], (is_quote & inside)[shallow]


def _marks(codes: _Codes, *, has_backslash: bool) -> _Flags:
    """Which bytes are brackets, line ends, or quotes that are not escaped."""
    # Each of []{} is 0x5b or 0x5d, the curly ones plus 0x20.
    folded = codes & 0xDF
    folded -= 0x5B
    folded &= 0xFD
    found: _Flags = folded == 0
    found |= codes == _QUOTE
    found |= codes == _LF
    if has_backslash:
        slashes = np.flatnonzero(codes == _BACKSLASH)
        is_last = np.append(np.diff(slashes) != 1, True)
        last = np.flatnonzero(is_last)
        is_odd = np.diff(last, prepend=-1) % 2 == 1
        escaped = slashes[last[is_odd]] + 1
        escaped = escaped[escaped < len(codes)]
        found[escaped[codes[escaped] == _QUOTE]] = False
    return found


def _per_line(running: _Counts, line_ends: Positions) -> _Counts:
    """How far a running count goes in each line."""
    return np.diff(running[np.minimum(line_ends, len(running) - 1)], prepend=np.int32(0))


def _anew(running: _Counts, line_ends: Positions) -> _Counts:
    """A running count that starts anew with each line."""
    before = np.concatenate((np.zeros(1, np.int32), running[line_ends[:-1]]))
    anew: _Counts = running - np.repeat(before, np.diff(line_ends, prepend=-1))[: len(running)]
    return anew


def _has_marks(first: _Codes) -> _Flags:
    """Whether values that begin so are strings, or have brackets."""
    has_marks: _Flags = (first == _QUOTE) | (_STEPS[first] > 0)
    return has_marks


def _skip(codes: _Codes, at: Positions, step: int) -> Positions:
    """Positions moved over blanks, one way or the other; on a blank where there are too many."""
    at = np.clip(at, 0, len(codes) - 1)
    for _ in range(_MOST_BLANKS):
        blank = _BLANKS[codes[at]]
        if not blank.any():
            break
        at = np.clip(at + step * blank, 0, len(codes) - 1)
    return at
