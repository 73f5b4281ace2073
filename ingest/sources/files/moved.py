"""Whether a file is one that a shard had below another ``source.path``: the source was moved (``--new-source``).

A shard whose file today's path cannot list was read through another one. A file that no shard has, with the same
name below the source's root and with the content that was read, is then

::

    named otherwise when the shard began, or its old path is there still ──→ doubtful
    changed last when the shard was read: ``cp -a``, ``rsync -a``, ``mv`` ─→ the shard's file
    an object, whose time is its upload's ─────────────────────────────────→ taken for it
    with lines that tell date and time ────────────────────────────────────→ taken for it
    longer than what was read, of which at least 4 KiB ────────────────────→ taken for it
    anything else ─────────────────────────────────────────────────────────→ doubtful

A doubtful file is read as one of its own. Files of one name in several folders below one root are not asked for
here: today's path lists all of them.
"""

from __future__ import annotations

import enum

from ingest.sources.files.file_position import HEAD_BYTES, FilePosition
from ingest.sources.files.listing import FileInfo, Location, is_local
from ingest.sources.files.renamed import keeps_time


class Moved(enum.Enum):
    """How a file stands to a shard that was read through another path."""

    KNOWN = "known"
    TAKEN = "taken"
    DOUBTFUL = "doubtful"


def may_be_moved(location: Location, place: FilePosition, file: FileInfo) -> bool:
    """Whether a shard's last path is not below the source's path any more, and ends as the file's name below its root.

    Args:
        location: the source's path today.
        place: the shard's.
        file: below that path.
    """
    return place.path.endswith(f"/{location.name_of(file.path)}") and not location.lists(place.path)


def found_below_another_path(
    location: Location, shard: str, place: FilePosition, offset: int, file: FileInfo, *, is_dated: bool
) -> Moved:
    """What a file is that `may_be_moved` and has the shard's content; see the module.

    Args:
        location: the source's path today.
        shard: the shard's name, which is its file's below the root of then.
        place: the shard's.
        offset: how far the shard was read.
        file: below today's path.
        is_dated: its lines tell date and time.
    """
    first_name = shard.rpartition("#")[0] or shard
    is_renamed = place.path.endswith(f"/{first_name}") and first_name != location.name_of(file.path)
    if is_renamed or (is_local(file) and location.fs.exists(place.path)):
        return Moved.DOUBTFUL
    if is_local(file) and keeps_time(file, place):
        return Moved.KNOWN
    has_grown = offset >= HEAD_BYTES and file.size > offset
    return Moved.TAKEN if not is_local(file) or is_dated or has_grown else Moved.DOUBTFUL
