"""Whether a file that has a shard's identity and content, at another path, is the shard's, or a new one.

A file system gives the inode of a deleted file to the next new one, and that may have the same content: a snapshot
a day, into a folder a day. An etag is the content's.

::

    both births are known ──── the same ─────────────────────────→ renamed
                          ├─── another ──────────────────────────→ another file
                          └─── another, on an overlay ───────────→ taken for another file
    changed last when the shard was read, or born before that ───→ renamed
    named as a rotation names the shard's file ──────────────────→ renamed
    an object ───────────────────────────────────────────────────→ taken for renamed
    born after the last change that was seen, or, where births
    are not known, as long as what was read and changed later ───→ taken for another file
    anything else: it grew, where births are not known ──────────→ taken for renamed

What is taken for one of the two is told in a warning (`ingest.sources.files.alike`).
"""

from __future__ import annotations

import enum

from ingest.sources.files.births import birth_s, births_hold
from ingest.sources.files.file_position import FilePosition
from ingest.sources.files.listing import FileInfo, is_local
from ingest.sources.files.names import may_become


class IdentityMatch(enum.Enum):
    """What a file is that has the identity of a shard's, at another path."""

    RENAMED = "renamed"
    OTHER = "other"
    TAKEN_FOR_RENAMED = "taken for renamed"
    TAKEN_FOR_OTHER = "taken for other"

    @property
    def is_renamed(self) -> bool:
        """Whether it counts as the shard's file."""
        return self in (IdentityMatch.RENAMED, IdentityMatch.TAKEN_FOR_RENAMED)


def found_by_identity(file: FileInfo, place: FilePosition, offset: int) -> IdentityMatch:
    """What a file with a shard's identity is, if it has the shard's content; see the module.

    Args:
        file: at another path than the shard's.
        place: the shard's.
        offset: how far the shard was read.
    """
    born_s = birth_s(file)
    if born_s is not None and place.born_s is not None:
        if born_s == place.born_s:
            return IdentityMatch.RENAMED
        return IdentityMatch.OTHER if births_hold(file) else IdentityMatch.TAKEN_FOR_OTHER
    if file.mtime_s == place.mtime_s or (born_s is not None and born_s <= place.mtime_s):
        return IdentityMatch.RENAMED
    if may_become(place.path, file.path):
        return IdentityMatch.RENAMED
    if is_local(file) and (born_s is not None or file.size == offset):
        return IdentityMatch.TAKEN_FOR_OTHER
    return IdentityMatch.TAKEN_FOR_RENAMED


def keeps_time(file: FileInfo, place: FilePosition) -> bool:
    """Whether a local file has the time of a shard's file; tools that keep a time may cut it to seconds."""
    return is_local(file) and file.mtime_s == (place.mtime_s if file.mtime_s % 1 else place.mtime_s // 1)
