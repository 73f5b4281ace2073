r"""Lines of a block of bytes: counted, and split with their offsets.

The one definition of a line: it ends at ``\n`` or at the end of the data; a ``\r`` before the end
belongs to the line end; an empty line is blank, is skipped and is no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.intp]
_CR = ord("\r")
_LF = ord("\n")
_WORD = 8


@dataclass(frozen=True)
class LineBounds:
    """Bounds of the lines of a block; the block begins at a line's start.

    Found in one pass over the bytes: a search for a pattern of two or three bytes takes five times as long.

    Attributes:
        codes: the block's bytes.
        starts: index of each line's first byte, blank lines included.
        ends: index behind each line's last byte, its line end left out.
    """

    codes: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The bounds of the lines of a block."""
        found = np.frombuffer(data, np.uint8)
        line_feeds = _line_feeds(found)
        starts = np.concatenate(([0], line_feeds + 1))
        ends = np.append(line_feeds, len(data))
        if starts[-1] == len(data):  # nothing follows the last line end
            starts, ends = starts[:-1], ends[:-1]
        if b"\r" in data:
            ends = ends - ((ends > starts) & (found[ends - 1] == _CR))
        return cls(found, starts, ends)

    @cached_property
    def blank(self) -> int:
        """Number of blank lines."""
        return int(np.count_nonzero(self.starts == self.ends))

    @property
    def rows(self) -> int:
        """Number of lines that are not blank."""
        return len(self.starts) - self.blank

    def enclosed(self, first: bytes, last: bytes) -> bool:
        """Whether no line is blank, and each begins and ends with these bytes."""
        begin, end = self.codes[self.starts], self.codes[self.ends - 1]
        return not self.blank and bool((begin == ord(first)).all() and (end == ord(last)).all())


def _line_feeds(codes: npt.NDArray[np.uint8]) -> Positions:
    """Indices of the line feeds: words of eight bytes first, then the byte in each; half the time of a plain scan."""
    is_one = codes == _LF
    whole = len(codes) // _WORD * _WORD
    words = is_one[:whole].view("<u8")
    which = np.flatnonzero(words != 0)
    found = words[which]
    if (found & (found - 1)).any():  # a word with two line feeds: very short lines
        return np.flatnonzero(is_one)
    # For a word with a single byte of 1, the float's exponent gives the index of the byte.
    inside = (np.frexp(found.astype(np.float64))[1] - 1) // 8
    return np.concatenate((which * _WORD + inside, np.flatnonzero(is_one[whole:]) + whole))


@dataclass(frozen=True)
class TextBlock:
    """Text that begins at a line's start, with its line bounds.

    Attributes:
        data: the bytes.
        bounds: the bounds of the lines.
    """

    data: bytes
    bounds: LineBounds

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Find the line bounds of a text."""
        return cls(data, LineBounds.of(data))


@dataclass(frozen=True)
class Lines:
    """The lines of a block that are not blank, without their line ends.

    Attributes:
        texts: binary, one value a line.
        offsets: int64, the start of each line in its shard.
    """

    texts: pa.Array
    offsets: pa.Array


def split_lines(text: TextBlock, start: int) -> Lines:
    """Split a block into lines.

    Args:
        text: whole lines.
        start: the shard's offset of the block's first byte.
    """
    bounds = text.bounds
    filled = bounds.starts < bounds.ends
    starts, ends = bounds.starts[filled], bounds.ends[filled]
    # Cut at starts and ends: lines are at odd indices, line ends and blank lines at even ones.
    offsets = np.empty(2 * len(starts) + 2, np.int32)
    offsets[0], offsets[-1] = 0, len(text.data)
    offsets[1:-1:2], offsets[2:-1:2] = starts, ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return Lines(pieces.take(pa.array(np.arange(len(starts)) * 2 + 1)), pa.array(starts + start))


@dataclass(frozen=True)
class Texts:
    """Lines as text.

    Attributes:
        texts: string; null where a line is not UTF-8.
        bad: index and reason of each line that is not UTF-8.
    """

    texts: pa.Array
    bad: dict[int, str]


def as_text(texts: pa.Array) -> Texts:
    """The lines as UTF-8 text; only invalid lines are rejected."""
    try:
        return Texts(pc.cast(texts, pa.string()), {})
    except pa.ArrowInvalid:
        pass
    values: list[str | None] = []
    bad: dict[int, str] = {}
    for index, raw in enumerate(texts.to_pylist()):
        try:
            values.append(raw.decode())
        except UnicodeDecodeError as failure:
            bad[index] = invalid_utf8(failure)
            values.append(None)
    return Texts(pa.array(values, pa.string()), bad)


def invalid_utf8(failure: UnicodeDecodeError) -> str:
    """The reason for rejecting a line that is not UTF-8."""
    return f"not UTF-8: byte 0x{failure.object[failure.start]:02x} at {failure.start}"


def positions_of(flags: pa.Array) -> Sequence[int]:
    """Indices at which a boolean array is true."""
    found: list[int] = pc.indices_nonzero(flags).to_pylist()
    return found
