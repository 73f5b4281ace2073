"""Whether a file is the one that a shard had below another ``source.path``: the source was moved (``--new-source``).

A shard whose last path today's ``source.path`` does not match was read through another one. A file without a shard,
with the same name below the source's root and with the content that was read, is then

::

    named otherwise when the shard began, or its old path still exists ────→ doubtful
    changed last when the shard was read: ``cp -a``, ``rsync -a``, ``mv`` ─→ the shard's file
    an object, whose time is its upload's ─────────────────────────────────→ taken for it
    with lines that carry date and time ───────────────────────────────────→ taken for it
    longer than the bytes read, which are at least 4 KiB ──────────────────→ taken for it
    anything else ─────────────────────────────────────────────────────────→ doubtful

A doubtful file is read as a new file. Files of one name in several folders below one root are not compared here:
today's path lists all of them.
"""

from __future__ import annotations

import enum

from ingest.sources.files.file_position import HEAD_BYTES, FilePosition
from ingest.sources.files.listing import FileInfo, Location, is_local
from ingest.sources.files.renamed import keeps_time


class MoveMatch(enum.Enum):
    """Relation of a file to a shard that was read through another path."""

    KNOWN = "known"
    TAKEN = "taken"
    DOUBTFUL = "doubtful"


def may_be_moved(location: Location, place: FilePosition, file: FileInfo) -> bool:
    """Whether today's path does not match a shard's last path, which ends with the file's name below the root.

    Args:
        location: the source's path today.
        place: the shard's position.
        file: below today's path.
    """
    return place.path.endswith(f"/{location.name_of(file.path)}") and not location.lists(place.path)


def found_below_another_path(
    location: Location, shard: str, place: FilePosition, offset: int, file: FileInfo, *, is_dated: bool
) -> MoveMatch:
    """Relation of a file that `may_be_moved` to the shard whose content it has; see the module.

    Args:
        location: the source's path today.
        shard: the shard's name, which is its file's first name below the former root.
        place: the shard's position.
        offset: how far the shard was read.
        file: below today's path.
        is_dated: its lines carry date and time.
    """
    first_name = shard.rpartition("#")[0] or shard
    is_renamed = place.path.endswith(f"/{first_name}") and first_name != location.name_of(file.path)
    if is_renamed or (is_local(file) and location.fs.exists(place.path)):
        return MoveMatch.DOUBTFUL
    if is_local(file) and keeps_time(file, place):
        return MoveMatch.KNOWN
    has_grown = offset >= HEAD_BYTES and file.size > offset
    return MoveMatch.TAKEN if not is_local(file) or is_dated or has_grown else MoveMatch.DOUBTFUL
