"""Log messages about files that count as known ones, or as new, on no evidence but equal content and name."""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.sources.files.copies import Copied
from ingest.sources.files.file_position import Copy
from ingest.sources.files.vanished import LoggedOnce


class MatchReason(enum.Enum):
    """Reason to read a file from an offset, or from its beginning; each value is the log message."""

    RENAMED = (
        "%s has the content of %s, which is gone: taken for that one, nothing before byte %d is read again. "
        "If it is another log, give its lines a time, or leave the old one where it is"
    )
    MOVED = (
        "%s has the content of %s, which source.path does not match any more: taken for that one, moved with the "
        "source; nothing before byte %d is read again"
    )
    UNPACKED = "%s is %s, unpacked: nothing before byte %d is read"
    MUST_BE_UNPACKED = (
        "%s has the name and the time of %s, which was read and is gone: taken for that one, unpacked; nothing before "
        "byte %d is read. If it is another file, give it another name"
    )
    OTHER_TIME = (
        "%s has the content of %s, which is gone, and another time: it is read as a file of its own. If it is "
        "that one, changed and renamed, its rows are read twice"
    )
    MAY_BE_MOVED = (
        "%s has the name and the content of %s, which source.path does not match any more, and has another time, or "
        "that one is there still: it is read as a file of its own. If it is that one, its rows are read twice: a "
        "source is moved with its files' times (cp -a, rsync -a), and the old files are removed before the next run"
    )
    MAY_BE_UNPACKED = (
        "%s has the name of %s, which was read packed and is gone, and another time: it is read as a file of its own. "
        "If it is that one, unpacked, its rows are read twice"
    )

    @property
    def is_read(self) -> bool:
        """Whether the file is read as a new file, from its beginning."""
        return self in (MatchReason.OTHER_TIME, MatchReason.MAY_BE_MOVED, MatchReason.MAY_BE_UNPACKED)


@dataclass(frozen=True)
class Lookalike:
    """A file that may be one that was read before, under another name.

    Attributes:
        path: the file's path.
        state: `FileInfo.state`; each state is logged once.
        of: path of the other file.
        offset: how far the other file was read.
        why: the decision about the file.
        is_dated: its lines carry date and time.
    """

    path: str
    state: Copy
    of: str
    offset: int
    why: MatchReason
    is_dated: bool = False


def tell_of_taken(taken: Sequence[Lookalike], told: LoggedOnce) -> None:
    """Log the decision for each file that may be another one, once per file."""
    for one in taken:
        level = logging.INFO if one.is_dated or one.why is MatchReason.UNPACKED else logging.WARNING
        where = (one.path, one.of) if one.why.is_read else (one.path, one.of, one.offset)
        told.log(level, _key(one.path, one.state), one.why.value, *where)


def tell_of_copies(copied: Sequence[Copied], told: LoggedOnce) -> None:
    """Log each copy that is not read because its log is, once per copy."""
    for one in copied:
        told.log(
            logging.INFO if one.is_dated else logging.WARNING,
            _key(one.path, one.state),
            "%s is a copy of %s, which is read: nothing of it is read%s",
            one.path,
            one.log,
            "" if one.is_dated else "; its lines tell no time: if it is another log, give it a name of its own",
        )


def _key(path: str, state: Copy) -> str:
    return f"{path} {state}"
