r"""Texts and numbers of any type to decimals: each exactly, or not at all.

Arrow's own conversions are not safe for every value. Arrow scales a parsed value without checking that the result
fits 128 bits, and reads the power of ten from a table without checking the table's bounds: `1e-77` comes out as 0, and
`1e-10000000` ends the process. So Arrow gets only values that it converts correctly; `exact` decides about the others,
one by one.

::

    texts ── short, or of the form that fits whatever its digits are ── Arrow ──→ decimals
               │ others: exponents, superfluous zeros, too many digits
               ▼
             one by one: `exact`

    integers ── decimals ── Arrow, in 256 bits where digits are added ──────→ decimals
    floats   ── texts, the shortest that mean the same float
"""

from __future__ import annotations

import contextlib
import functools
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.lines import as_text

DIGITS_OF_128_BITS = 38
DIGITS_OF_256_BITS = 76
_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)([0-9]+))?")
_BEYOND_ALL = 10**18
"""Value of exponents with more than 18 digits: no text is long enough to compensate for one."""
_INTEGERS = pa.decimal128(20, 0)


def exact(text: str, precision: int, scale: int) -> Decimal | None:
    """The number of a text as a decimal; None where the text is no number or does not fit.

    A number fits if no digit is lost, however it is written: ``1.500`` and ``15e-1`` fit decimal(2,1).

    Args:
        text: the text.
        precision: digits of the decimal.
        scale: digits behind the point.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups(default="")
    significant = (whole + fraction).lstrip("0")
    if not significant:
        return Decimal((0, (0,), -scale))
    digits = significant.rstrip("0")
    last = _power(exponent_sign, exponent) - len(fraction) + len(significant) - len(digits)
    if last < -scale or last + len(digits) > precision - scale:
        return None
    return Decimal(f"{sign}{digits}{'0' * (last + scale)}E-{scale}")


def to_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as decimals; null where a value is null, or does not fit exactly.

    Args:
        values: texts; integers; floats, each with the number of its shortest text; decimals. Values of other types
            do not fit.
        kind: a decimal of 128 bits.
    """
    found = values.type
    if pa.types.is_decimal(found):
        return _of_decimals(values, kind)
    if pa.types.is_string(found):
        return _of_texts(values, kind)
    if pa.types.is_integer(found):
        return _of_decimals(pc.cast(values, _INTEGERS), kind)
    if pa.types.is_float16(found):
        return to_decimals(pc.cast(values, pa.float32()), kind)
    if pa.types.is_floating(found):
        return _of_texts(pc.cast(values, pa.string()), kind)
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return _of_texts(pc.cast(values, pa.string()), kind)
    if pa.types.is_binary(found) or pa.types.is_large_binary(found):  # some writers do not mark texts as strings
        return _of_texts(as_text(pc.fill_null(pc.cast(values, pa.binary()), b"")).texts, kind)
    if pa.types.is_dictionary(found):
        return to_decimals(values.dictionary_decode(), kind)
    return pa.nulls(len(values), kind)


def _of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if not len(texts):
        return pa.nulls(0, kind)
    if _are_short(texts, DIGITS_OF_128_BITS - kind.scale):
        with contextlib.suppress(pa.ArrowInvalid):
            return pc.cast(texts, kind)
    fits = pc.match_substring_regex(texts, pattern=_fitting_form(kind.precision, kind.scale))
    if pc.all(fits).as_py() is not False:
        return pc.cast(texts, kind)
    values = pc.cast(pc.if_else(fits, texts, pa.scalar(None, pa.string())), kind)
    others = pc.invert(pc.fill_null(fits, True))
    coded = pc.dictionary_encode(texts.filter(others))
    alone = pa.array([exact(text, kind.precision, kind.scale) for text in coded.dictionary.to_pylist()], kind)
    return pc.replace_with_mask(values, others, alone.take(coded.indices))


def _are_short(texts: pa.Array, most: int) -> bool:
    """Whether no text is longer than `most` or has an exponent: then Arrow refuses every text that does not fit.

    Checked first: a regular expression takes as long as the conversion itself.
    """
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > most:
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = texts.buffers()[2]
    codes = b"" if content is None else bytes(memoryview(content)[offsets[0] : offsets[-1]])
    return b"e" not in codes and b"E" not in codes


@functools.cache
def _fitting_form(precision: int, scale: int) -> str:
    """The regular expression of texts that fit whatever their digits are."""
    whole = precision - scale
    return (
        rf"\A[+-]?(?:0+[0-9]{{0,{whole}}}|[0-9]{{1,{whole}}})(?:\.[0-9]{{0,{scale}}})?\z"
        if whole
        else (rf"\A[+-]?0+(?:\.[0-9]{{0,{scale}}})?\z")
    )


def _of_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return _rescaled(values, kind)
    except pa.ArrowInvalid:
        found = values.to_pylist()
    return pa.array([None if each is None else exact(str(each), kind.precision, kind.scale) for each in found], kind)


def _rescaled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals of another precision and scale.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if values.type == kind:
        values.validate(full=True)
        return values
    added = kind.scale - values.type.scale
    if added > DIGITS_OF_128_BITS:
        raise pa.ArrowInvalid("more digits than Arrow can add")
    if added > 0:
        # A value that fits in the end has at most 38 digits now; 38 more digits fit 256 bits, so nothing wraps.
        if pa.types.is_decimal256(values.type):
            values = pc.cast(values, pa.decimal128(DIGITS_OF_128_BITS, values.type.scale))
        values = pc.cast(values, pa.decimal256(DIGITS_OF_256_BITS, kind.scale))
    return pc.cast(values, kind)


def _power(sign: str, digits: str) -> int:
    digits = digits.lstrip("0")
    power = _BEYOND_ALL if len(digits) > len(str(_BEYOND_ALL)) - 1 else int(digits or "0")
    return -power if sign == "-" else power
