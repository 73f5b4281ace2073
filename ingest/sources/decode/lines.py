r"""Lines of a block of bytes: counted, and taken apart with their offsets.

One definition for everyone: a line ends at ``\n`` or at the end of the data; a ``\r`` before that
belongs to the line end; a line with nothing in it is blank, is skipped and is no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_BLANK = re.compile(rb"(?m:^)\r?(?:\n|\Z)")


def count_rows(data: bytes) -> int:
    """How many lines that are not blank the data has; the data begins at a line's start."""
    if not data:
        return 0
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    return lines - _count_blank(data)


def has_blank(data: bytes) -> bool:
    """Whether any line of the data is blank."""
    if data.startswith(b"\n") or b"\n\n" in data:
        return True
    # One byte is found many times faster than three.
    return b"\r" in data and (data.startswith(b"\r\n") or b"\n\r\n" in data or data[-2:] in (b"\n\r", b"\r"))


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
    if has_blank(data):
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


def _count_blank(data: bytes) -> int:
    if not has_blank(data):
        return 0
    return sum(1 for found in _BLANK.finditer(data) if found.start() < len(data))
