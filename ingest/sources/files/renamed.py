"""Whether a file that has a shard's identity and content, at another path, is the shard's file or a new one.

A file system gives the inode of a deleted file to the next new file, which may have the same content: a daily
snapshot in a daily folder. An etag belongs to the content.

::

    both creation times are known ── the same ───────────────────→ renamed
                                  ├─ another ────────────────────→ another file
                                  └─ another, on an overlay ─────→ taken for another file
    changed last when the shard was read, or created before ─────→ renamed
    named as a rotation names the shard's file ──────────────────→ renamed
    an object ───────────────────────────────────────────────────→ taken for renamed
    created after the last change that was seen, or, where
    creation times are not known, as long as the bytes read and
    changed later ───────────────────────────────────────────────→ taken for another file
    anything else: it grew, creation times are not known ────────→ taken for renamed

A file that is taken for one of the two is reported in a warning (`ingest.sources.files.alike`).
"""

from __future__ import annotations

import enum

from ingest.sources.files.creation_times import creation_time_s, keeps_creation_times
from ingest.sources.files.file_position import FilePosition
from ingest.sources.files.listing import FileInfo, is_local
from ingest.sources.files.names import may_become


class IdentityMatch(enum.Enum):
    """Relation of a file to the shard whose identity it has, at another path."""

    RENAMED = "renamed"
    OTHER = "other"
    TAKEN_FOR_RENAMED = "taken for renamed"
    TAKEN_FOR_OTHER = "taken for other"

    @property
    def is_renamed(self) -> bool:
        """Whether the file counts as the shard's."""
        return self in (IdentityMatch.RENAMED, IdentityMatch.TAKEN_FOR_RENAMED)


def found_by_identity(file: FileInfo, place: FilePosition, offset: int) -> IdentityMatch:
    """Relation of a file with a shard's identity to the shard, if it has the shard's content; see the module.

    Args:
        file: at another path than the shard's.
        place: the shard's position.
        offset: how far the shard was read.
    """
    created_s = creation_time_s(file)
    if created_s is not None and place.created_s is not None:
        if created_s == place.created_s:
            return IdentityMatch.RENAMED
        return IdentityMatch.OTHER if keeps_creation_times(file) else IdentityMatch.TAKEN_FOR_OTHER
    if file.mtime_s == place.mtime_s or (created_s is not None and created_s <= place.mtime_s):
        return IdentityMatch.RENAMED
    if may_become(place.path, file.path):
        return IdentityMatch.RENAMED
    if is_local(file) and (created_s is not None or file.size == offset):
        return IdentityMatch.TAKEN_FOR_OTHER
    return IdentityMatch.TAKEN_FOR_RENAMED


def keeps_time(file: FileInfo, place: FilePosition) -> bool:
    """Whether a local file has the modification time of a shard's file; tools that keep it may cut it to seconds."""
    return is_local(file) and file.mtime_s == (place.mtime_s if file.mtime_s % 1 else place.mtime_s // 1)
