"""The names that a rotation gives a log: ``app.log`` becomes ``app.log.1``, ``app.log-20261123.gz``, ``app.1.log.zst``.

Names alone prove nothing; they bound which contents are compared, and keep two files whose contents happen
to be equal (a status of one line, a snapshot a day) from being taken for one log and its copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Compression by the ending of a file's name."""
_ASIDE = ".tmp"
"""Ending of a log's name while logrotate copies it to another device (renamecopy)."""

_DATE = re.compile(r"[-._](\d{4}[-_.]?\d{2}[-_.]?\d{2}\d*(?:[-_T:]\d+)*|\d{10})(?=$|\.)")
_NUMBER = re.compile(r"\.(\d{1,3})(?=$|\.[^.\d][^.]*$)")


@dataclass(frozen=True)
class LogName:
    """The parts of a log's path.

    Attributes:
        folder: the log's folder.
        family: the file's name before any rotation.
        date: the date that a rotation has put into the name; "" without one.
        number: number of rotations, from the name; None where the name has none.
        is_compressed: the name has a compressed file's ending.
    """

    folder: str
    family: str
    date: str
    number: int | None
    is_compressed: bool

    @property
    def is_rotated(self) -> bool:
        """Whether a rotation gave the name."""
        return self.is_compressed or bool(self.date) or self.number is not None


@lru_cache(maxsize=100_000)
def log_name(path: str) -> LogName:
    """The parts of a path."""
    folder, _, name = path.rpartition("/")
    ending = next((each for each in COMPRESSIONS if name.endswith(each)), "")
    family = name.removesuffix(ending).removesuffix(_ASIDE)
    date = _DATE.search(family)
    if date is not None:
        family = family[: date.start()] + family[date.end() :]
    number = _NUMBER.search(family)
    if number is not None:
        family = family[: number.start()] + family[number.end() :]
    return LogName(
        folder, family, date.group(1) if date else "", int(number.group(1)) if number else None, bool(ending)
    )


def base_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


def is_unpacked(before: str, after: str) -> bool:
    """Whether unpacking turns one path into another: the same name, in the same folder, without the ending."""
    return before in packed_names(after)


def packed_names(path: str) -> set[str]:
    """The paths that gzip and zstd give a file."""
    return {f"{path}{ending}" for ending in COMPRESSIONS}


def may_become(before: str, after: str) -> bool:
    """Whether a rotation can turn one path into another; a log never gets its old name back.

    A file of the same name in another folder is another host's, or another day's.
    """
    one, other = log_name(before), log_name(after)
    if base_name(before) == base_name(after) or one.family != other.family or not other.is_rotated:
        return False
    if (one.date and one.date != other.date) or (one.is_compressed and not other.is_compressed):
        return False
    if one.number is None:
        return True
    if other.number is None or other.number < one.number:
        return False
    # Renaming keeps the identity, by which the file is found; only compression creates another file.
    return other.is_compressed
