r"""CSV records in lines: the grammar that Arrow's reader reads as Python's `csv` does in its strict mode.

::

    record  = value *( delimiter value )                          RFC 4180, section 2
    value   = quote *( any but quote / quote quote ) quote        line ends are allowed in here only
            / [ any but quote, delimiter, \r, \n  *( any but delimiter, \r, \n ) ]

A quote that does not begin a value is a character like any other (``5" pipe``). Beyond this grammar Arrow guesses:
``"a"b`` becomes ``ab``, a carriage return is dropped or ends a record, an open quote swallows lines. Lines
outside the grammar must be found before Arrow reads them.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.options import CsvOptions

CARRIAGE_RETURN = "a carriage return or line feed outside quotes"

_LF = ord("\n")


def look_regular(lines: pa.Array, data: bytes, dialect: CsvOptions) -> bool:
    """Whether all lines are records if Arrow finds as many records as lines; nearly free.

    Where this is true and two lines are no records, both have an odd number of quotes, and Arrow finds fewer
    records than lines. Some lines that are records do not look regular: then `faults` decides.

    Args:
        lines: binary or string, none null.
        data: the lines, each with a line feed behind it.
        dialect: delimiter and quote.
    """
    if b"\r" in data or data.count(b"\n") != len(lines) or pc.min(pc.binary_length(lines)).as_py() == 0:
        return False
    quote = dialect.quote.encode()
    if quote not in data:
        return True
    codes = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(codes == quote[0])
    beside = np.zeros(256, np.bool_)
    beside[[quote[0], ord(dialect.delimiter), _LF]] = True
    # Quotes open and close in turn, a doubled one does both. Index -1, before the first byte, is the last line feed.
    opens, closes = at[0::2], at[1::2]
    return bool(len(opens) == len(closes) and beside[codes[opens - 1]].all() and beside[codes[closes + 1]].all())


def faults(lines: pa.Array, dialect: CsvOptions) -> dict[int, str]:
    """Index and reason of each line that is no record.

    Args:
        lines: string; null is skipped.
        dialect: delimiter and quote.
    """
    value = _value(dialect.delimiter, dialect.quote, "")
    between = _escaped(dialect.delimiter)
    is_record = pc.match_substring_regex(lines, pattern=rf"\A{value}(?:{between}{value})*\z")
    # Arrow skips an empty line.
    is_bad = pc.or_(pc.invert(is_record), pc.invert(pc.cast(pc.binary_length(lines), pa.bool_())))
    return {at: fault_of(lines[at].as_py(), dialect) for at in positions_of(pc.fill_null(is_bad, False))}


def fault_of(line: str, dialect: CsvOptions) -> str:
    """The reason for rejecting a line that is no record."""
    if not line:
        return "an empty line"
    # Possessive: a quote that is one of a pair must not be taken for the closing one.
    value = _compiled(_value(dialect.delimiter, dialect.quote, "+"))
    start = end = 0
    while (found := value.match(line, start)) is not None:
        end = found.end()
        if line[end : end + 1] != dialect.delimiter:
            break
        start = end + 1
    if line[end : end + 1] in ("\r", "\n"):
        return CARRIAGE_RETURN
    if end == start:
        return "a quote that is not closed"
    return f"text behind a closing quote: {line[end : end + 60]!r}"


def _value(delimiter: str, quote: str, possessive: str) -> str:
    """The expression of one value, for RE2 or Python."""
    between, around = _escaped(delimiter), _escaped(quote)
    quoted = rf"{around}(?:[^{around}]|{around}{around})*{possessive}{around}"
    return rf"(?:{quoted}|[^{around}{between}\r\n][^{between}\r\n]*|)"


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _escaped(character: str) -> str:
    return rf"\x{ord(character):02x}"
