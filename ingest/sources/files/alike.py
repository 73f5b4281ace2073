"""Words about files that count as known ones, or do not, though nothing but their equal content and name tells it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.sources.files.copies import Copied
from ingest.sources.files.place import Copy
from ingest.sources.files.vanished import Told


@dataclass(frozen=True)
class Taken:
    """A file with the content of one that is gone.

    Attributes:
        path: its.
        state: what it is, to be told once.
        of: the other's path.
        offset: how far the other was read.
        is_read: it counts as a file of its own; else as the other one, which goes on there.
        is_dated: its lines tell date and time.
    """

    path: str
    state: Copy
    of: str
    offset: int
    is_read: bool = False
    is_dated: bool = False


def tell_of_taken(taken: Sequence[Taken], told: Told) -> None:
    """Log what files with the content of others are taken for, each once."""
    for one in taken:
        level = logging.INFO if one.is_dated else logging.WARNING
        if one.is_read:
            told.log(
                level,
                _key(one.path, one.state),
                "%s has the content of %s, which is gone, and another time: it is read as a file of its own. If it is "
                "that one, changed and renamed, its rows are read twice",
                one.path,
                one.of,
            )
        else:
            told.log(
                level,
                _key(one.path, one.state),
                "%s has the content of %s, which is gone: taken for that one, nothing before byte %d is read again. "
                "If it is another log, give its lines a time, or leave the old one where it is",
                one.path,
                one.of,
                one.offset,
            )


def tell_of_copies(copied: Sequence[Copied], told: Told) -> None:
    """Log which files are not read because the log that they are copies of is, each once."""
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
