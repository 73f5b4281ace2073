"""Numbers in JSON that Arrow's reader must not see, or must not be believed: those with tiny exponents.

Where Arrow scales a decimal to fewer digits, it takes the power of ten out of a table without a look at whether the
table has it. Behind its end lies anything: `1e-77` comes out as 0, and `1e-10000000` ends the process. Floats that are
too small come out as 0. Blocks are therefore looked at as bytes: for the pair ``e-``, which takes a hundredth of the
time that decoding takes, and closer only where there is one between digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.sources.decode.decimals import DIGITS_OF_128_BITS, DIGITS_OF_256_BITS

_EXPONENT = re.compile(rb"[eE]-0*([0-9]+)(?![0-9])")
_DIGITS = b"0123456789"
_AROUND = b' \t\r\n,:[]{}"'
"""What stands before and behind a number, plain or in quotes."""
_IS_AROUND = np.zeros(256, np.bool_)
_IS_AROUND[list(_AROUND)] = True
_LOOKED_AT = 5
_ESCAPED = re.compile(rb"\\u00(?:2[BDEbde]|3[0-9]|[46]5)")
"""What a number in quotes can be made of, too."""
_WORD = 8
_FEWEST_ZEROS = 25
_TO_ZERO = {
    32: re.compile(rb"[eE]-0*(?:[2-9][0-9]|[1-9][0-9]{2})|0{25}"),
    64: re.compile(rb"[eE]-0*[1-9][0-9]{2}|0{200}"),
}
"""Of floats of so many bits, what a text has that comes out as 0 and is not: an exponent, zeros, or both."""


def safe_exponent(kind: pa.DataType) -> int | None:
    """How far below zero an exponent may be for Arrow to read it into this type; None where any may be.

    Of a text Arrow takes no more digits behind the point than the type has in all, and the exponent's come on top. So
    many, less the type's own, are what it scales by.
    """
    if pa.types.is_decimal(kind):
        table = DIGITS_OF_256_BITS if pa.types.is_decimal256(kind) else DIGITS_OF_128_BITS
        return int(table - kind.precision + kind.scale)
    if not pa.types.is_nested(kind):
        return None
    inner = [safe_exponent(kind.field(place).type) for place in range(kind.num_fields)]
    return min((found for found in inner if found is not None), default=None)


def row_of_exponent(data: bytes, below: int) -> int | None:
    """The first line with an exponent further below zero than that, or that may hide one; None if none does.

    Args:
        data: lines without blank ones.
        below: see `safe_exponent`.
    """
    places = [at for at in _exponents(data) if _size(data, at) > below]
    if b"\\" in data and len(_pairs(data, b"\\u")):
        hidden = _ESCAPED.search(data)
        places += [hidden.start()] if hidden is not None else []
    return data.count(b"\n", 0, min(places)) if places else None


def rows_to_zero(data: bytes, zeros: Mapping[int, npt.NDArray[np.intp]]) -> set[int]:
    """Lines with a number that may have become 0 for being too small.

    Args:
        data: lines without blank ones.
        zeros: by the bits of floats, lines with one that is 0.
    """
    if not any(map(len, zeros.values())) or not (_exponents(data) or b"0" * _FEWEST_ZEROS in data):
        return set()
    lines = data.split(b"\n")
    return {row for bits, rows in zeros.items() for row in rows.tolist() if _TO_ZERO[bits].search(lines[row])}


def _size(data: bytes, at: int) -> int:
    """The exponent that begins there; 0 if it is not one of a number."""
    found = _EXPONENT.match(data, at)
    if found is None or data[found.end() : found.end() + 1] not in _AROUND:
        return 0
    before = data[data.rfind(b"\n", 0, at) + 1 : at].rstrip(_DIGITS + b".")
    before = before[:-1] if before.endswith((b"-", b"+")) else before
    return int(found.group(1)[:9]) if before[-1:] in _AROUND else 0


def _exponents(data: bytes) -> list[int]:
    """Where an exponent below zero may begin."""
    codes = np.frombuffer(data, np.uint8)
    places = _pairs(data, b"e-")
    if b"E" in data:
        places = np.concatenate((places, _pairs(data, b"E-")))
    places = places[(places > 0) & (places + 2 < len(codes))]
    places = places[_is_digit(codes[places + 2])]
    before = codes[places - 1]
    places = places[_is_digit(before) | (before == ord("."))]
    # Most of what is left are UUIDs: a number is at its end behind so many digits, or has more of them.
    last, ends = len(codes) - 1, places + 3
    for _ in range(_LOOKED_AT):
        ends = np.minimum(ends, last) + _is_digit(codes[np.minimum(ends, last)])
    behind = codes[np.minimum(ends, last)]
    found: list[int] = places[_is_digit(behind) | _IS_AROUND[behind]].tolist()
    return found


def _is_digit(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (codes >= ord("0")) & (codes <= ord("9"))


def _pairs(data: bytes, pair: bytes) -> npt.NDArray[np.intp]:
    """Where two bytes are one behind the other: as numbers of 16 bits, at even and at odd places."""
    wanted = np.frombuffer(pair, "<u2")[0]
    found = []
    for start in range(min(2, len(data))):
        words = np.frombuffer(data, "<u2", (len(data) - start) // 2, start)
        found.append(_true_places(words == wanted) * 2 + start)
    return np.concatenate(found) if found else np.empty(0, np.intp)


def _true_places(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Where flags are true: of eight together first, as few are."""
    whole = len(flags) // _WORD * _WORD
    which = np.flatnonzero(flags[:whole].view(np.uint64) != 0)
    inside = np.flatnonzero(flags[:whole].reshape(-1, _WORD)[which])
    return np.concatenate((which[inside // _WORD] * _WORD + inside % _WORD, np.flatnonzero(flags[whole:]) + whole))
