"""Numbers with tiny exponents in JSON lines: Arrow must not scale decimals by them, and rounds floats to zero.

To scale a decimal to fewer digits, Arrow reads the power of ten from a table without a check of its bounds: `1e-77`
comes out as 0, and `1e-10000000` ends the process. Floats that are too small come out as 0. Blocks are therefore
searched as bytes for the pair ``e-``, in a hundredth of the decoding time; only pairs between digits are parsed.
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
"""Bytes that can stand before and behind a number, plain or in quotes."""
_IS_AROUND = np.zeros(256, np.bool_)
_IS_AROUND[list(_AROUND)] = True
_SCANNED_DIGITS = 5
_ESCAPED = re.compile(rb"\\u00(?:2[BDEbde]|3[0-9]|[46]5)")
"""Escapes of the characters of a number in quotes."""
_WORD = 8
_FEWEST_ZEROS = 25
_TO_ZERO = {
    32: re.compile(rb"[eE]-0*(?:[2-9][0-9]|[1-9][0-9]{2})|0{25}"),
    64: re.compile(rb"[eE]-0*[1-9][0-9]{2}|0{200}"),
}
"""By width of the float: the text of a number that is rounded to 0 matches, by its exponent or its run of zeros."""


def safe_exponent(kind: pa.DataType) -> int | None:
    """The largest negative exponent that Arrow can scale a decimal of this type by; None where any is safe.

    Arrow accepts as many digits behind the point as the type has in all, and adds the exponent. It scales by their sum,
    less the type's own scale, and its table ends at the digits of 128 or 256 bits.
    """
    if pa.types.is_decimal(kind):
        table = DIGITS_OF_256_BITS if pa.types.is_decimal256(kind) else DIGITS_OF_128_BITS
        return int(table - kind.precision + kind.scale)
    if not pa.types.is_nested(kind):
        return None
    inner = [safe_exponent(kind.field(place).type) for place in range(kind.num_fields)]
    return min((found for found in inner if found is not None), default=None)


def rows_of_exponents(data: bytes, below: int) -> set[int]:
    """Lines with an exponent further below zero than a limit, or with an escape that may hide one.

    Args:
        data: lines without blank ones.
        below: the limit; see `safe_exponent`.
    """
    places = [at for at in _exponents(data) if _size(data, at) > below]
    if b"\\" in data and len(_pairs(data, b"\\u")):
        places += [hidden.start() for hidden in _ESCAPED.finditer(data)]
    if not places:
        return set()
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return set(np.searchsorted(ends, places).tolist())


def rows_to_zero(data: bytes, zeros: Mapping[int, npt.NDArray[np.intp]]) -> set[int]:
    """Lines with a number that Arrow may have rounded to 0.

    Args:
        data: lines without blank ones.
        zeros: by width of the float in bits, lines with a float that is 0.
    """
    if not any(map(len, zeros.values())) or not (_exponents(data) or b"0" * _FEWEST_ZEROS in data):
        return set()
    lines = data.split(b"\n")
    return {row for bits, rows in zeros.items() for row in rows.tolist() if _TO_ZERO[bits].search(lines[row])}


def _size(data: bytes, at: int) -> int:
    """Absolute value of the negative exponent at an index; 0 where the exponent belongs to no number."""
    found = _EXPONENT.match(data, at)
    if found is None or data[found.end() : found.end() + 1] not in _AROUND:
        return 0
    before = data[data.rfind(b"\n", 0, at) + 1 : at].rstrip(_DIGITS + b".")
    before = before[:-1] if before.endswith((b"-", b"+")) else before
    return int(found.group(1)[:9]) if before[-1:] in _AROUND else 0


def _exponents(data: bytes) -> list[int]:
    """Indices at which a negative exponent may begin."""
    codes = np.frombuffer(data, np.uint8)
    places = _pairs(data, b"e-")
    if b"E" in data:
        places = np.concatenate((places, _pairs(data, b"E-")))
    places = places[(places > 0) & (places + 2 < len(codes))]
    places = places[_is_digit(codes[places + 2])]
    before = codes[places - 1]
    places = places[_is_digit(before) | (before == ord("."))]
    # Most of the remaining indices are in UUIDs: a number ends behind these digits, or has more digits.
    last, ends = len(codes) - 1, places + 3
    for _ in range(_SCANNED_DIGITS):
        ends = np.minimum(ends, last) + _is_digit(codes[np.minimum(ends, last)])
    behind = codes[np.minimum(ends, last)]
    found: list[int] = places[_is_digit(behind) | _IS_AROUND[behind]].tolist()
    return found


def _is_digit(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (codes >= ord("0")) & (codes <= ord("9"))


def _pairs(data: bytes, pair: bytes) -> npt.NDArray[np.intp]:
    """Indices of a pair of bytes, found by comparing 16-bit words at even and at odd indices."""
    wanted = np.frombuffer(pair, "<u2")[0]
    found = []
    for start in range(min(2, len(data))):
        words = np.frombuffer(data, "<u2", (len(data) - start) // 2, start)
        found.append(_true_places(words == wanted) * 2 + start)
    return np.concatenate(found) if found else np.empty(0, np.intp)


def _true_places(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Indices of true flags; since few are true, words of eight flags are compared first."""
    whole = len(flags) // _WORD * _WORD
    which = np.flatnonzero(flags[:whole].view(np.uint64) != 0)
    inside = np.flatnonzero(flags[:whole].reshape(-1, _WORD)[which])
    return np.concatenate((which[inside // _WORD] * _WORD + inside % _WORD, np.flatnonzero(flags[whole:]) + whole))
