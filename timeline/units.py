"""Sizes, durations and paths in a job file: ``256MB``, ``10s``, ``lake/events``.

MB is 10^6 bytes and MiB is 2^20, as the SI and IEC 80000-13 define them; units are not
case-sensitive. A number without a unit is bytes, or seconds.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_BYTES: Mapping[str, int] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SECONDS: Mapping[str, Decimal] = {
    "": Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_LONGEST = 30  # characters; no real quantity is longer, and decimals stay exact


def _number_and_unit(value: object, what: str, example: str) -> tuple[Decimal, str]:
    """Number and unit of a quantity; the YAML parser may already have parsed the number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"a {what} is allowed, for example {example}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a finite {what} is allowed, for example {example}")
    text = format(Decimal(str(value)), "f") if isinstance(value, float) else str(value).strip()
    found = _QUANTITY.fullmatch(text)
    if found is None or len(text) > _LONGEST:
        raise ValueError(f"a {what} of 0 or more is allowed, for example {example}")
    return Decimal(found.group(1)), found.group(2).lower()


def parse_byte_size(value: object) -> int:
    """Bytes in ``256MB``, ``1GiB``, ``10 kb`` or a plain number of bytes.

    Raises:
        ValueError: the value is not a size, the unit is unknown, or the size is not a whole number of bytes.
    """
    number, unit = _number_and_unit(value, "size", "256MB or 1GiB")
    if unit not in _BYTES:
        raise ValueError(f"unknown unit {unit!r}; allowed are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB")
    size = number * _BYTES[unit]
    if size != int(size):
        raise ValueError("a whole number of bytes is allowed")
    return int(size)


def parse_duration(value: object) -> float:
    """Seconds in ``10s``, ``500ms``, ``2m``, ``1h``, ``1d`` or a plain number of seconds.

    Raises:
        ValueError: the value is not a duration, or the unit is unknown.
    """
    number, unit = _number_and_unit(value, "duration", "10s, 500ms or 2m")
    if unit not in _SECONDS:
        raise ValueError(f"unknown unit {unit!r}; allowed are ms, s, m, h, d")
    return float(number * _SECONDS[unit])


ByteSize = Annotated[int, BeforeValidator(parse_byte_size)]
"""An option in bytes; see `parse_byte_size`."""

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""An option in seconds; see `parse_duration`."""


def count(number: int, noun: str) -> str:
    """``1 file``, ``1,200 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def iso_utc(at: datetime) -> str:
    """A UTC time in ISO 8601, to the millisecond: ``2026-03-01T12:00:00.000Z``."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def visible_path(path: str) -> str:
    """A path of a job file, without invisible characters.

    Store clients cut off or encode invisible characters, each in its own way: one path would mean two locations.

    Raises:
        ValueError: the path has control characters, or blanks around it.
    """
    hidden = next((letter for letter in path if unicodedata.category(letter) in ("Cc", "Zl", "Zp")), None)
    if hidden is not None or path != path.strip():
        what = f"the character {hidden!r}" if hidden is not None else "blanks around it"
        raise ValueError(f"it has {what}; allowed is a path without control characters, and without blanks around it")
    return path


VisiblePath = Annotated[str, AfterValidator(visible_path)]
"""A path in a job file; see `visible_path`."""
