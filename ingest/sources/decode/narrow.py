"""Finds the lines that Arrow takes among lines of which it refuses some, with few calls.

Lines that cannot be right by their look are set aside first, by one expression over all of them. What
is left mostly parses at once. Where it does not, Arrow's refusal is a hint: it says at which row it
could not parse ("in row 17"), or quotes the value that it could not convert. Setting a good line
aside costs time, never a row: lines that are set aside are decoded one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import Parsed, Refused
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.records import join_lines

_ROW = re.compile(r"in row (\d+)\Z")
_VALUE = re.compile(r"couldn't parse:(.*)\Z|The string '(.*)' is not|: (\S+) requires (?:scale|precision)", re.DOTALL)
_WINDOW_LINES = 512
_MOST_CANDIDATES = 3
_MOST_REFUSED_SHARE = 0.05
"""Beyond this share of refused lines, decoding the rest one by one is faster than asking on."""


@dataclass
class Taken:
    """What Arrow took.

    Attributes:
        lines: indices, in order.
        columns: pieces of their columns, in the same order.
    """

    lines: list[int] = field(default_factory=list)
    columns: list[list[pa.Array]] = field(default_factory=list)

    def add(self, lines: list[int], parsed: Parsed) -> None:
        """Take what was parsed, without the lines that it calls bad."""
        columns = parsed.columns
        if parsed.bad:
            keep = pa.array([at not in parsed.bad for at in range(len(lines))], pa.bool_())
            columns = [column.filter(keep) for column in columns]
            lines = [index for at, index in enumerate(lines) if at not in parsed.bad]
        self.lines += lines
        self.columns.append(columns)


def suspicious(texts: pa.Array, schema: pa.Schema) -> pa.Array:
    """Which lines are no objects by their ends, or hold a value of the wrong kind by its first character.

    Args:
        texts: binary lines.
        schema: the columns.
    """
    whole = pc.and_(pc.starts_with(texts, pattern=b"{"), pc.ends_with(texts, pattern=b"}"))
    expressions = [
        rf"\"{re.escape(json.dumps(column.name, ensure_ascii=False)[1:-1])}\"\s*:\s*(?:{_wrong_start(column.type)})"
        for column in schema
    ]
    return pc.or_(pc.invert(whole), pc.match_substring_regex(texts, pattern="|".join([r"[\x00\n]", *expressions])))


def take_what_parses(texts: pa.Array, lines: list[int], parse: Callable[[bytes, int], Parsed], taken: Taken) -> None:
    """Add the lines that Arrow takes to `taken`; the others are left for decoding alone.

    Args:
        texts: the lines, each beginning with ``{`` and ending with ``}``.
        lines: their indices in the block.
        parse: takes so many lines, or raises Refused.
        taken: where to add to.
    """
    _Search(texts, lines, parse, taken).take(0, len(lines))


def _wrong_start(kind: pa.DataType) -> str:
    """An expression for how a value of another kind begins; null begins with n."""
    if pa.types.is_integer(kind):
        return r"[^\s0-9n-]|-?[0-9]+[.eE]"
    if pa.types.is_floating(kind):
        return r"[^\s0-9n-]"
    if pa.types.is_decimal(kind):
        return r"[^\s0-9n\"-]"
    if pa.types.is_boolean(kind):
        return r"[^\stfn]"
    if pa.types.is_struct(kind):
        return r"[^\s{n]"
    if pa.types.is_list(kind):
        return r"[^\s\[n]"
    if pa.types.is_timestamp(kind):
        return r"[^\s0-9n\"-]"
    return r"[^\s\"n]"


class _Search:
    """Takes stretches of lines, around the lines that are refused."""

    def __init__(self, texts: pa.Array, lines: list[int], parse: Callable[[bytes, int], Parsed], taken: Taken) -> None:
        self._texts = texts
        self._lines = lines
        self._parse = parse
        self._taken = taken
        self._refusals_left = 16 + int(len(lines) * _MOST_REFUSED_SHARE)

    def take(self, start: int, until: int) -> None:
        """Take of lines ``[start, until)`` what parses."""
        while start < until and self._refusals_left > 0:
            try:
                parsed = self._parse(self._join(start, until), until - start)
            except Refused as refusal:
                self._refusals_left -= 1
                if until - start == 1:
                    return
                start = self._take_around(start, until, str(refusal))
                continue
            self._taken.add(self._lines[start:until], parsed)
            return

    def _take_around(self, start: int, until: int, refusal: str) -> int:
        """Take what lies before the refused line; where to go on, at least one line on or in a smaller stretch."""
        row = _ROW.search(refusal)
        if row is not None:
            # Garbage behind an object is reported for the row after it, which may be no line any more.
            refused = min(start + int(row.group(1)), until - 1)
            self.take(start, refused)
            return refused + 1
        if until - start > _WINDOW_LINES:
            # A value that does not convert is noticed after all lines were parsed: search where that is cheap.
            for begin in range(start, until, _WINDOW_LINES):
                self.take(begin, min(begin + _WINDOW_LINES, until))
            return until
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
