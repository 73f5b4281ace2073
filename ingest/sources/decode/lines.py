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

_CR = ord("\r")
_LF = ord("\n")


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
        line_feeds = np.flatnonzero(found == _LF)
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


def count_rows(data: bytes) -> int:
    """How many lines that are not blank the data has; the data begins at a line's start."""
    return LineBounds.of(data).rows


@dataclass(frozen=True)
class Lines:
    """The lines of a block that are not blank, without their line ends.

    Attributes:
        texts: binary, one value a line.
        offsets: int64, where each line starts in its shard.
    """

    texts: pa.Array
    offsets: pa.Array


def split_lines(data: bytes, start: int) -> Lines:
    """Take a block apart.

    Args:
        data: whole lines.
        start: the shard's offset of its first byte.
    """
    texts = pc.split_pattern(pa.array([data], pa.binary()), pattern=b"\n").flatten()
    if data.endswith(b"\n") or not data:
        texts = texts[:-1]
    lengths = pc.add(pc.cast(pc.binary_length(texts), pa.int64()), 1)
    offsets = pc.add(pc.subtract(pc.cumulative_sum(lengths), lengths), start)
    if b"\r" in data:
        texts = pc.if_else(pc.ends_with(texts, pattern=b"\r"), pc.binary_slice(texts, 0, -1), texts)
    if LineBounds.of(data).blank:
        filled = pc.greater(pc.binary_length(texts), 0)
        texts, offsets = texts.filter(filled), offsets.filter(filled)
    return Lines(texts, offsets)


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
