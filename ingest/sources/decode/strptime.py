"""Formats of strptime directives: a check that a format determines a time, and the time of one text.

Texts match as in Python's ``datetime.strptime`` in the C locale (``Lib/_strptime.py`` of CPython 3.11): names of
months and days are English in every locale of the process, and blanks of a format match any blanks. Unlike in Python,
a missing year is never filled in (1900), and a day that the year or week does not have (day 366, week 53) is no time,
where Python continues into the next year. A format of dates without a day or month means the first one.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Year: TypeAlias = int | datetime.date
"""The year for a text without one: this year, or the year within the twelve months that end with this day."""

_MONTHS = tuple(name.lower() for name in calendar.month_name if name)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
"""In the order of `datetime.date.weekday`."""

_WEEK = r"5[0-3]|[0-4]\d|\d"
_EXPRESSIONS: Mapping[str, str] = {
    "Y": r"\d\d\d\d",
    "y": r"\d\d",
    "G": r"\d\d\d\d",
    "m": r"1[0-2]|0[1-9]|[1-9]",
    "B": "january|february|march|april|may|june|july|august|september|october|november|december",
    "b": "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
    "d": r"3[0-1]|[1-2]\d|0[1-9]|[1-9]| [1-9]",
    "j": r"36[0-6]|3[0-5]\d|[1-2]\d\d|0[1-9]\d|00[1-9]|[1-9]\d|0[1-9]|[1-9]",
    "U": _WEEK,
    "W": _WEEK,
    "V": r"5[0-3]|0[1-9]|[1-4]\d|\d",
    "A": "|".join(_DAYS),
    "a": "|".join(day[:3] for day in _DAYS),
    "u": "[1-7]",
    "w": "[0-6]",
    "H": r"2[0-3]|[0-1]\d|\d",
    "I": r"1[0-2]|0[1-9]|[1-9]",
    "p": "am|pm",
    "M": r"[0-5]\d|\d",
    "S": r"6[0-1]|[0-5]\d|\d",
    "f": r"[0-9]{1,6}",
    "z": r"[+-]\d\d:?[0-5]\d(?::?[0-5]\d(?:\.\d{1,6})?)?|(?-i:Z)",
}
_BY_MACHINE: Mapping[str, str] = {
    "c": "how it is written depends on the machine; write it out: %a %b %d %H:%M:%S %Y",
    "x": "how it is written depends on the machine; write it out: %m/%d/%y",
    "X": "how it is written depends on the machine; write it out: %H:%M:%S",
    "Z": "a zone's name has no offset; write the name itself into the format and say timezone, or use %z (+0100)",
}
_SAME_PART = ("YyG", "mBb", "HI", "Aauw", "UWV", "dj")
_TIME = frozenset("HIpMSfz")
_ISO_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)(?::?(\d\d)(?:\.(\d{1,6}))?)?")


def directives(pattern: str) -> tuple[str, ...]:
    """The directives of a format, in order; ``%%`` is none."""
    return tuple(found[1:] for found in re.findall(r"%.?", pattern, re.DOTALL) if found != "%%")


def says_year(pattern: str) -> bool:
    """Whether a format has a directive for the year."""
    return not set("YyG").isdisjoint(directives(pattern))


def says_time(pattern: str) -> bool:
    """Whether a format has a directive for a time of day or a zone."""
    return not _TIME.isdisjoint(directives(pattern))


def format_error(pattern: str) -> str | None:
    """Why a format is invalid or ambiguous; None for a format that determines a time, perhaps without its year."""
    parts = directives(pattern)
    for part in parts:
        if part not in _EXPRESSIONS:
            why = _BY_MACHINE.get(part, f"allowed are %% and {' '.join(f'%{name}' for name in _EXPRESSIONS)}")
            return f"%{part}: {why}"
        if parts.count(part) > 1:
            return f"%{part} is there twice"
    said = set(parts)
    for same in _SAME_PART:
        both = [f"%{part}" for part in parts if part in same]
        if len(both) > 1:
            return f"{' and '.join(both)} say the same part twice"
    if ("I" in said) != ("p" in said):
        return "%I (hours to 12) and %p (AM, PM) need each other; %H is hours to 24"
    for part, needed in (("M", "HI"), ("S", "M"), ("f", "S")):
        if part in said and said.isdisjoint(needed):
            return f"%{part} needs %{needed[0]}"
    return _flaw_of_day(said)


def _flaw_of_day(said: set[str]) -> str | None:
    weekday, month = said & set("Aauw"), said & set("mBb")
    if "V" in said or "G" in said:
        if not ({"V", "G"} <= said and weekday) or month or said & set("dj"):
            return "a day by ISO week is %G, %V and one of %u %w %a %A, without a month or day besides"
        return None
    if said & set("UW"):
        if not (said & set("Yy") and weekday) or month or said & set("dj"):
            return "a day by week is %U or %W, %Y or %y and one of %u %w %a %A, without a month or day besides"
        return None
    if "j" in said:
        return "%j is the day of the year; leave the month out" if month else None
    if "d" in said and not month:
        return "a day without its month; add %m or %b, or use %j (day of the year)"
    if "d" not in said and not (said & set("Yy") and said.isdisjoint(_TIME)):
        return "it does not say which day; add %m or %b and %d, or %j (day of the year)"
    return None


@dataclass(frozen=True)
class ParsedTime:
    """The time of one text.

    Attributes:
        wall: the wall-clock time.
        offset: the clock's offset from UTC; None where the text has none.
    """

    wall: datetime.datetime
    offset: datetime.timedelta | None


def parse(text: str, pattern: str, year: Year | None) -> ParsedTime | None:
    """The time of a text by a format; None where the text does not match, or no such time exists.

    Args:
        text: the text.
        pattern: a format without a `format_error`.
        year: the year for a format without one; None where unknown: then the text has no time.
    """
    found = _expression(pattern).match(text)
    if found is None or found.end() != len(text):
        return None
    parts = found.groupdict()
    try:
        day = _day(parts, year)
        if day is None:
            return None
        time = datetime.time(_hour(parts), int(parts.get("M", 0)), int(parts.get("S", 0)), _micros(parts.get("f", "")))
        return ParsedTime(datetime.datetime.combine(day, time), _offset(parts["z"]) if "z" in parts else None)
    except (ValueError, OverflowError):
        return None


def year_of(month: int, day: int, year: Year) -> int:
    """The year of a month and day that were written without one.

    Args:
        month: 1 to 12.
        day: day of the month, from 1.
        year: see `Year`.
    """
    if isinstance(year, int):
        return year
    return year.year if (month, day) <= (year.month, year.day) else year.year - 1


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    """A format as a regular expression that is matched from the beginning of a text."""
    out = []
    for piece in re.split(r"(%.|\s+)", pattern, flags=re.DOTALL):
        if piece.isspace():
            out.append(r"\s+")
        elif len(piece) == 2 and piece[0] == "%" and piece != "%%":
            out.append(f"(?P<{piece[1]}>{_EXPRESSIONS[piece[1]]})")
        else:
            out.append(re.escape("%" if piece == "%%" else piece))
    return re.compile("".join(out), re.IGNORECASE)


def _day(parts: Mapping[str, str], year: Year | None) -> datetime.date | None:
    """The day; None or ValueError where no such day exists, None where the year is unknown."""
    if "G" in parts:
        return datetime.date.fromisocalendar(int(parts["G"]), int(parts["V"]), _weekday(parts) + 1)
    if "Y" in parts:
        year = int(parts["Y"])
    elif "y" in parts:
        # POSIX: 69-99 are the years 1969-1999, 00-68 are 2000-2068.
        year = int(parts["y"]) + (2000 if int(parts["y"]) <= 68 else 1900)
    if year is None:
        return None
    if "j" in parts:
        return _day_of_year(int(parts["j"]), year)
    if "U" in parts or "W" in parts:
        assert isinstance(year, int)
        return _day_of_week(parts, year)
    month, day = _month(parts), int(parts.get("d", 1))
    return datetime.date(year_of(month, day, year), month, day)


def _day_of_year(number: int, year: Year) -> datetime.date | None:
    if not isinstance(year, int):
        year = year.year if number <= year.timetuple().tm_yday else year.year - 1
    day = datetime.date(year, 1, 1) + datetime.timedelta(days=number - 1)
    return day if day.year == year else None


def _day_of_week(parts: Mapping[str, str], year: int) -> datetime.date | None:
    """The day of a week: week 1 begins with the year's first Sunday (%U) or Monday (%W), week 0 is before it."""
    first = datetime.date(year, 1, 1)
    begins = 6 if "U" in parts else 0
    week = int(parts["U"] if "U" in parts else parts["W"])
    week_one = first + datetime.timedelta(days=(begins - first.weekday()) % 7)
    day = week_one + datetime.timedelta(days=7 * (week - 1) + (_weekday(parts) - begins) % 7)
    return day if day.year == year else None


def _month(parts: Mapping[str, str]) -> int:
    if "b" in parts:
        return _index(parts["b"], [month[:3] for month in _MONTHS]) + 1
    return _index(parts["B"], _MONTHS) + 1 if "B" in parts else int(parts.get("m", 1))


def _weekday(parts: Mapping[str, str]) -> int:
    if "u" in parts:
        return int(parts["u"]) - 1
    if "w" in parts:
        return (int(parts["w"]) - 1) % 7
    return _index(parts["a"], [day[:3] for day in _DAYS]) if "a" in parts else _index(parts["A"], _DAYS)


def _index(name: str, names: Sequence[str]) -> int:
    return names.index(name.lower())


def _hour(parts: Mapping[str, str]) -> int:
    if "I" not in parts:
        return int(parts.get("H", 0))
    return int(parts["I"]) % 12 + (12 if parts["p"].lower() == "pm" else 0)


def _micros(digits: str) -> int:
    return int(f"{digits:0<6}")


def _offset(text: str) -> datetime.timedelta:
    """The offset of a text such as ``+01:00``, zero for ``Z``; ValueError for a day or more."""
    found = _ISO_OFFSET.fullmatch(text)
    if found is None:
        return datetime.timedelta()
    sign, hours, minutes, seconds, digits = found.groups()
    offset = datetime.timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0), microseconds=_micros(digits or "")
    )
    if offset >= datetime.timedelta(days=1):
        raise ValueError(f"{text} is no offset")
    return -offset if sign == "-" else offset
