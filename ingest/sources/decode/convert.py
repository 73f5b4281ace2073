"""A column of texts (CSV, text, or JSON strings) to a column of its declared type; misfits are listed with reasons.

One regular expression removes texts of the wrong form, then Arrow converts the whole column at once.
Where Arrow refuses, and for types that Arrow does not know, Python converts value by value. The result
does not show which way was taken. Times and decimals: `timestamp_columns`, `decimals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.decimals import to_decimals
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import day_column, format_column, iso_column
from ingest.sources.decode.values import Number, Rejection, expected_map, expected_time, mismatch, parse_json, to_value
from ingest.sources.decode.verbatim_text import with_verbatim_texts

_INTEGER = r"\A-?[0-9]{1,19}\z"
_FLOAT = r"\A[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))\z"
_BOOLEAN = r"\A(?i:true|false|0|1)\z"
_FINITE = r"[0-9]"
_NOT_ZERO = r"\A[+-]?[0.]*[1-9]"
_YEAR = r"\A(?:[1-9]|0[1-9]|00[1-9]|000[1-9])"
"""Arrow accepts the year 0, which dates of Python and SQL do not have."""


@dataclass(frozen=True)
class Converted:
    """A typed column.

    Attributes:
        values: one for each text; null where the text is null or does not fit.
        bad: index and reason of each text that does not fit.
    """

    values: pa.Array
    bad: dict[int, str]


def convert(texts: pa.Array, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None = None) -> Converted:
    """The typed column of a column of texts; null stays null.

    Numbers are decimal digits without blanks around them; booleans true/false/1/0 in any case; binary is the
    text's UTF-8 bytes; arrays, structs and maps are JSON texts.

    Args:
        texts: string.
        column: the column's name, for reasons.
        kind: the declared type.
        timestamp_format: the column's time format; None is ISO 8601.
    """
    values = _typed(texts, column, kind, timestamp_format)
    if values.null_count == texts.null_count:
        return Converted(values, {})
    missed = positions_of(pc.and_(pc.is_null(values), pc.is_valid(texts)))
    found = {at: texts[at].as_py() for at in missed}
    of_maps = expected_map(kind)
    return Converted(
        values,
        {
            at: mismatch(column, text, kind, of_maps or expected_time(text, kind, timestamp_format))
            for at, text in found.items()
        },
    )


def _typed(texts: pa.Array, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> pa.Array:
    """The column with null for every text that does not fit."""
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind):
        return pc.cast(texts, kind)
    if pa.types.is_timestamp(kind):
        return _times(texts, column, kind, timestamp_format or TimeFormat())
    if pa.types.is_integer(kind):
        texts = _keep(texts, _INTEGER)
    elif pa.types.is_floating(kind):
        return _floats(texts, kind)
    elif pa.types.is_decimal(kind):
        return to_decimals(texts, kind)
    elif pa.types.is_nested(kind):
        return _each(texts, kind, lambda text: _nested(text, column, kind, timestamp_format))
    elif pa.types.is_date(kind):
        if timestamp_format is not None and timestamp_format.day_pattern is not None:
            return day_column(texts, timestamp_format.day_pattern, timestamp_format.year)
        texts = _keep(texts, _YEAR)
    elif pa.types.is_boolean(kind):
        texts = pc.utf8_lower(_keep(texts, _BOOLEAN))
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return _each(texts, kind, lambda text: _alone(text, kind))


def _floats(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The nearest float of each text; null where the float is an infinity or a zero and the text is another number."""
    values = pc.cast(_keep(texts, _FLOAT), kind)
    is_zero = pc.invert(pc.cast(values, pa.bool_()))  # a comparison with a number loads pandas
    for is_extreme, says_otherwise in ((pc.is_inf(values), _FINITE), (is_zero, _NOT_ZERO)):
        if pc.any(is_extreme).as_py():
            wrong = pc.and_(is_extreme, pc.match_substring_regex(texts, pattern=says_otherwise))
            values = pc.if_else(wrong, pa.scalar(None, kind), values)
    return values


def _times(texts: pa.Array, column: str, kind: pa.DataType, written: TimeFormat) -> pa.Array:
    """A column of timestamps."""
    if written.micros_per_unit is not None:
        return _each(texts, kind, lambda text: to_value(Number(text), column, kind, written))
    zoned, timezone = kind.tz is not None, written.timezone_of(kind)
    if written.pattern is not None:
        return format_column(texts, written.pattern, zoned=zoned, timezone=timezone, year=written.year)
    return iso_column(texts, zoned=zoned, timezone=timezone)


def _keep(texts: pa.Array, pattern: str) -> pa.Array:
    """The texts of this form, null for the others."""
    fits = pc.match_substring_regex(texts, pattern=pattern)
    return texts if pc.all(fits).as_py() is not False else pc.if_else(fits, texts, pa.scalar(None, pa.string()))


def _each(texts: pa.Array, kind: pa.DataType, parse: Callable[[str], object]) -> pa.Array:
    """A column parsed value by value; null where a value is rejected."""
    values: list[object] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else parse(text))
        except (Rejection, RecursionError):
            values.append(None)
    return pa.array(values, kind)


def _nested(text: str, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> object:
    """An array, struct or map from its JSON text."""
    return to_value(with_verbatim_texts(text, parse_json(text), kind), column, kind, timestamp_format)


def _alone(text: str, kind: pa.DataType) -> object:
    """One text converted by Arrow, None where Arrow refuses: the same result as within a column."""
    try:
        return pc.cast(pa.scalar(text), kind).as_py()
    except pa.ArrowInvalid:
        return None
