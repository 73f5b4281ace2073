"""Columns of texts and numbers to timestamps, each value as `ingest.sources.decode.timestamps` reads it.

A format is translated into a regular expression for Arrow whose groups are joined to ISO 8601, because
Arrow's own strptime turns 30 February into 2 March. For texts that the expression does not match,
`ingest.sources.decode.strptime` decides, once for each distinct text. A format with a directive without a
translation has no expression, so all its texts go that way.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.strptime import Year, directives, says_year
from ingest.sources.decode.timestamps import FIRST_MICROS, LAST_MICROS, format_micros, in_range, iso_micros
from ingest.sources.decode.zone_columns import local_column

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DIRECTIVES: Mapping[str, tuple[str, str]] = {
    "Y": ("Y", r"[0-9]{4}"),
    "y": ("y", r"[0-9]{2}"),
    "m": ("m", r"[0-9]{2}"),
    "b": ("b", "|".join(_MONTHS)),
    "d": ("d", r"[0-9]{2}"),
    "H": ("H", r"[0-9]{2}"),
    "M": ("M", r"[0-9]{2}"),
    "S": ("S", r"[0-5][0-9]"),
    "f": ("f", r"[0-9]{1,6}"),
    "z": ("z", r"Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9]"),
}
_DAY = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?)?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_INSTANT = pa.timestamp("us", tz="UTC")
_WALL_CLOCK = pa.timestamp("us")


def outside(values: pa.Array) -> pa.Array:
    """A mask of the timestamps outside the years 1 to 9999; null for null."""
    micros = pc.cast(values, pa.int64())
    return pc.or_(pc.less(micros, FIRST_MICROS), pc.greater(micros, LAST_MICROS))


def iso_column(texts: pa.Array, *, zoned: bool, timezone: str | None = None) -> pa.Array:
    """`iso_micros` of a column: timestamps, null where a text is none.

    Args:
        texts: string.
        zoned: see `iso_micros`.
        timezone: see `iso_micros`.
    """
    kind = _INSTANT if zoned else _WALL_CLOCK

    def alone(text: str) -> int | None:
        return iso_micros(text, zoned=zoned, timezone=timezone)

    for written_as in (_INSTANT, _WALL_CLOCK) if zoned else (_WALL_CLOCK,):
        with contextlib.suppress(pa.ArrowInvalid):
            whole = pc.cast(texts, written_as)
            if timezone is None or written_as == _INSTANT:
                return _within(pc.cast(whole, kind))
            return _with_missed(texts, local(whole, timezone), kind, alone)
    whole, is_local = _full_iso(texts, zoned=zoned)
    return _parsed(texts, whole, kind, alone, timezone if is_local else None)


def format_column(
    texts: pa.Array, pattern: str, *, zoned: bool, timezone: str | None = None, year: Year | None = None
) -> pa.Array:
    """`format_micros` of a column: timestamps, null where a text does not match.

    Args:
        texts: string.
        pattern: see `format_micros`.
        zoned: see `iso_micros`.
        timezone: see `iso_micros`.
        year: see `format_micros`.
    """
    kind = _INSTANT if zoned else _WALL_CLOCK
    expression, parts = _expression_of(pattern), directives(pattern)
    if expression is None or ("z" in parts and not zoned) or (year is None and not says_year(pattern)):
        whole = pa.nulls(len(texts), pa.string())
    else:
        fields = pc.extract_regex(texts, pattern=expression)
        whole = _iso_of_parts(fields, parts, year, is_padded=_may_be_padded(pattern))

    def alone(text: str) -> int | None:
        return format_micros(text, pattern, zoned=zoned, timezone=timezone, year=year)

    return _parsed(texts, whole, kind, alone, None if "z" in parts else timezone)


def day_column(texts: pa.Array, pattern: str, year: Year | None) -> pa.Array:
    """`format_day` of a column: dates, null where a text does not match.

    Args:
        texts: string.
        pattern: see `format_day`.
        year: see `format_day`.
    """
    return pc.cast(format_column(texts, pattern, zoned=False, year=year), pa.date32())


def epoch_column(counts: pa.Array, micros_per_unit: int, kind: pa.DataType) -> pa.Array:
    """Counts since 1970 as timestamps, null where one is out of range.

    Args:
        counts: decimal(28, `epoch_scale`).
        micros_per_unit: microseconds in one unit of the counts.
        kind: the timestamp type.
    """
    first, last = (pa.scalar(Decimal(micros) / micros_per_unit, counts.type) for micros in (FIRST_MICROS, LAST_MICROS))
    inside = pc.and_(pc.greater_equal(counts, first), pc.less_equal(counts, last))
    factor = pa.scalar(Decimal(micros_per_unit), pa.decimal128(7, 0))
    micros = pc.multiply(pc.if_else(inside, counts, pa.scalar(None, counts.type)), factor)
    return pc.cast(pc.cast(micros, pa.int64()), kind)


def _parsed(
    texts: pa.Array, whole: pa.Array, kind: pa.DataType, parse: Callable[[str], int | None], timezone: str | None
) -> pa.Array:
    """Timestamps of a column.

    Args:
        texts: string.
        whole: the texts as ISO 8601 with a zone, null for texts without a translation.
        kind: the timestamp type.
        parse: decides about a text that is null in `whole`; called once for each distinct one.
        timezone: the zone of local times, where the zone in `whole` is a placeholder; None else.
    """
    try:
        parsed = pc.cast(whole, _INSTANT)
    except pa.ArrowInvalid:
        # A day that its month does not have: rare, and Arrow does not say which text.
        return _by_distinct(texts, kind, parse)
    parsed = _within(pc.cast(parsed, kind)) if timezone is None else local(pc.cast(parsed, _WALL_CLOCK), timezone)
    return _with_missed(texts, parsed, kind, parse)


def _with_missed(texts: pa.Array, parsed: pa.Array, kind: pa.DataType, parse: Callable[[str], int | None]) -> pa.Array:
    """Timestamps of a column, completed by `parse` where a text has a null timestamp."""
    missed = pc.and_(pc.is_null(parsed), pc.is_valid(texts))
    if not pc.any(missed).as_py():
        return parsed
    return pc.replace_with_mask(parsed, missed, _by_distinct(texts.filter(missed), kind, parse))


def local(walls: pa.Array, timezone: str) -> pa.Array:
    """Local times, in microseconds, as instants; null outside the years 1 to 9999, or where clocks skipped one."""
    return _within(local_column(_within(walls), timezone))


def _within(values: pa.Array) -> pa.Array:
    # Minimum and maximum first: comparing a column with a number loads pandas, which takes a new worker 0.4 s.
    ends = pc.min_max(pc.cast(values, pa.int64()))
    if all(end is None or in_range(end) is not None for end in (ends["min"].as_py(), ends["max"].as_py())):
        return values
    return pc.if_else(outside(values), pa.scalar(None, values.type), values)


def _by_distinct(texts: pa.Array, kind: pa.DataType, parse: Callable[[str], int | None]) -> pa.Array:
    """A column parsed by a function of one text, called once for each distinct text."""
    coded = pc.dictionary_encode(texts)
    values = pa.array([None if text is None else parse(text) for text in coded.dictionary.to_pylist()], pa.int64())
    return pc.cast(values.take(coded.indices), kind)


def _full_iso(texts: pa.Array, *, zoned: bool) -> tuple[pa.Array, bool]:
    """Texts of the more frequent form as ISO 8601 with a zone, null for the others; whether that form has no zone."""
    no_text = pa.scalar(None, pa.string())
    if zoned:
        with_zone = pc.match_substring_regex(texts, pattern=rf"\A{_DAY}[T ]{_TIME}{_ZONE}\z")
        if (pc.sum(with_zone).as_py() or 0) > len(texts) // 2:
            return pc.if_else(with_zone, texts, no_text), False
    with_time = pc.match_substring_regex(texts, pattern=rf"\A{_DAY}[T ]{_TIME}\z")
    return pc.if_else(with_time, pc.binary_join_element_wise(texts, "Z", ""), no_text), True


def _may_be_padded(pattern: str) -> bool:
    """Whether a blank may pad days of one digit, as in syslog: where the format has a blank before the day."""
    return re.search(r"\s%d", pattern) is not None


@functools.cache
def _expression_of(pattern: str) -> str | None:
    """The RE2 expression of a format without a `flaw`; None without a month and day, or a directive's translation."""
    parts = directives(pattern)
    if not set(parts) <= set(_DIRECTIVES) or not ({"m", "b"} & set(parts) and "d" in parts):
        return None
    pieces = re.split(r"(%.)", pattern)
    out = []
    for piece in pieces:
        if re.fullmatch(r"%[^%]", piece):
            name, expression = _DIRECTIVES[piece[1]]
            if name == "d" and _may_be_padded(pattern):
                expression = r"[0-9 ][0-9]"
            out.append(f"(?P<{name}>{expression})")
        else:
            # Python's strptime matches any amount of whitespace: here only the format's own, the rest is left to it.
            out.append(re.escape("%" if piece == "%%" else piece))
    return rf"\A{''.join(out)}\z"


def _iso_of_parts(fields: pa.Array, parts: tuple[str, ...], year: Year | None, *, is_padded: bool) -> pa.Array:
    """The parts of timestamps joined to ISO 8601 with a zone; null stays null."""
    part = {name: fields.field(name) for name in parts}
    zero = pa.scalar("00")
    day = part["d"]
    if is_padded:
        day = pc.replace_substring(day, " ", "0")
    month = part.get("m")
    if month is None:
        numbers = pa.array([f"{number:02d}" for number in range(1, 13)])
        month = numbers.take(pc.index_in(part["b"], value_set=pa.array(_MONTHS)))
    date = pc.binary_join_element_wise(_year_of(part, month, day, year), month, day, "-")
    time = pc.binary_join_element_wise(part.get("H", zero), part.get("M", zero), part.get("S", zero), ":")
    fraction = part.get("f", zero)
    zone = part.get("z", pa.scalar("Z"))
    return pc.if_else(
        fields.is_valid(),
        pc.binary_join_element_wise(
            pc.binary_join_element_wise(date, time, "T"), pc.binary_join_element_wise(fraction, zone, ""), "."
        ),
        pa.scalar(None, pa.string()),
    )


def _year_of(part: Mapping[str, pa.Array], month: pa.Array, day: pa.Array, year: Year | None) -> pa.Array | pa.Scalar:
    """The four-digit year of each timestamp; see `strptime.year_of` for a format without one."""
    if "Y" in part:
        return part["Y"]
    if "y" in part:
        # POSIX: 69-99 are the years 1969-1999, 00-68 are 2000-2068.
        century = pc.if_else(pc.less(part["y"], "69"), "20", "19")
        return pc.binary_join_element_wise(century, part["y"], "")
    if isinstance(year, int):
        return pa.scalar(f"{year:04d}")
    assert year is not None, "without a year nothing is parsed by Arrow"
    is_in_last_year = pc.less_equal(pc.binary_join_element_wise(month, day, ""), pa.scalar(f"{year:%m%d}"))
    return pc.if_else(is_in_last_year, pa.scalar(f"{year.year:04d}"), pa.scalar(f"{year.year - 1:04d}"))
