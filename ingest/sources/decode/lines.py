r"""Lines of a block of bytes: counted, and taken apart with their offsets.

One definition for everyone: a line ends at ``\n`` or at the end of the data; a ``\r`` before that
belongs to the line end; a line with nothing in it is blank, is skipped and is no row.
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
    """Where the lines of a block are; the block begins at a line's start.

    One pass over the bytes: searching them for a pattern of two or three bytes takes five times as long.

    Attributes:
        codes: the block.
        starts: index of each line's first byte, blank lines included.
        ends: index behind each line's last byte, its line end left out.
    """

    codes: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The lines of a block."""
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
        """How many lines have nothing in them."""
        return int(np.count_nonzero(self.starts == self.ends))

    @property
    def rows(self) -> int:
        """How many lines are not blank."""
        return len(self.starts) - self.blank

    def enclosed(self, first: bytes, last: bytes) -> bool:
        """Whether no line is blank, and each begins and ends with these bytes."""
        begin, end = self.codes[self.starts], self.codes[self.ends - 1]
        return not self.blank and bool((begin == ord(first)).all() and (end == ord(last)).all())


def _line_feeds(codes: npt.NDArray[np.uint8]) -> Positions:
    """Where the line feeds are: words of eight bytes first, then the byte in each; half the time of a look at all."""
    is_one = codes == _LF
    whole = len(codes) // _WORD * _WORD
    words = is_one[:whole].view("<u8")
    which = np.flatnonzero(words != 0)
    found = words[which]
    if (found & (found - 1)).any():  # lines so short that a word has two ends
        return np.flatnonzero(is_one)
    # Of a word with one byte of 1 the exponent says which byte it is.
    inside = (np.frexp(found.astype(np.float64))[1] - 1) // 8
    return np.concatenate((which * _WORD + inside, np.flatnonzero(is_one[whole:]) + whole))


@dataclass(frozen=True)
class TextBlock:
    """Text that begins at a line's start, with its lines found.

    Attributes:
        data: the bytes.
        bounds: of its lines.
    """

    data: bytes
    bounds: LineBounds

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Find the lines."""
        return cls(data, LineBounds.of(data))


@dataclass(frozen=True)
class Lines:
    """The lines of a block that are not blank, without their line ends.

    Attributes:
        texts: binary, one value a line.
        offsets: int64, where each line starts in its shard.
    """

    texts: pa.Array
    offsets: pa.Array


def split_lines(text: TextBlock, start: int) -> Lines:
    """Take a block apart.

    Args:
        text: whole lines.
        start: the shard's offset of its first byte.
    """
    bounds = text.bounds
    filled = bounds.starts < bounds.ends
    starts, ends = bounds.starts[filled], bounds.ends[filled]
    # Cut at starts and ends: lines are at odd indices, what is between them at even ones.
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
        bad: index and reason of the lines that are not.
    """

    texts: pa.Array
    bad: dict[int, str]


def as_text(texts: pa.Array) -> Texts:
    """The lines as UTF-8 text; only those that are not valid are rejected."""
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
    """The reason for a row that is not UTF-8."""
    return f"not UTF-8: byte 0x{failure.object[failure.start]:02x} at {failure.start}"


def positions_of(flags: pa.Array) -> Sequence[int]:
    """Indices at which a boolean array is true."""
    found: list[int] = pc.indices_nonzero(flags).to_pylist()
    return found
