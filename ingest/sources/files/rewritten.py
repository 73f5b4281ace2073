"""Whether another file at a shard's path, with the bytes that were read, is the shard's or a new log with equal lines.

Another inode or creation time is another file: an editor, ``cp -a`` or rsync rewrote the log, or a rotation renamed
it and the next log repeats its lines.

::

    the time of the shard's file ───────────────────────────→ the shard's file, copied
    lines that carry date and time ─────────────────────────→ the shard's file, rewritten
    a shard without a file continues in it, by its name ────→ that shard's file
    beside it is a file with a rotation's name and without
    a shard, in which the shard continues:
        with the time of the shard's file ──────────────────→ a new log
        with another time ──────────────────────────────────→ taken for a new log
    other rotated files of the log have higher numbers now ─→ taken for a new log
    anything else ──────────────────────────────────────────→ taken for the shard's file, rewritten

A file that is taken for one of the two is reported in a warning.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingest.sources.files.contents import Contents, tail_span
from ingest.sources.files.copies import tells_time
from ingest.sources.files.creation_times import creation_time_s
from ingest.sources.files.file_position import FilePosition
from ingest.sources.files.listing import FileInfo, is_local
from ingest.sources.files.names import log_name, may_become
from ingest.sources.files.renamed import keeps_time
from ingest.sources.files.rotated import KnownShard
from ingest.sources.files.vanished import LoggedOnce


class RewriteMatch(enum.Enum):
    """Relation of another file at a shard's path to the shard."""

    OWN = "own"
    TAKEN_FOR_OWN = "taken for own"
    NEW = "new"
    TAKEN_FOR_NEW = "taken for new"

    @property
    def is_own(self) -> bool:
        """Whether the file counts as the shard's."""
        return self in (RewriteMatch.OWN, RewriteMatch.TAKEN_FOR_OWN)


@dataclass(frozen=True)
class Rewritten:
    """A file that begins with the bytes read of another file at its path, without proof whether it is the same log.

    Attributes:
        path: the file's path.
        offset: how far the other file was read.
        is_read: the file is read from its beginning.
    """

    path: str
    offset: int
    is_read: bool


def reuses_inode(file: FileInfo, place: FilePosition) -> bool:
    """Whether a file with a shard's path and inode is another file, which reuses the inode of a deleted one.

    The creation time is read only where the modification time differs. On an overlay a changed file of a lower layer
    counts as another one too: its content decides.
    """
    if place.created_s is None or file.mtime_s == place.mtime_s:
        return False
    return creation_time_s(file) not in (None, place.created_s)


def is_later_copy(file: FileInfo, place: FilePosition, rest: int, *, is_packed: bool) -> bool:
    """Whether a file in which a shard continues was made by copying, or is a later log with equal lines.

    Renaming keeps the inode, and compression keeps the time of a file that was read to its end.

    Args:
        file: a file of another name than the shard's own, which is missing.
        place: the shard's position.
        rest: bytes of the file after those that were read.
        is_packed: the file is compressed.
    """
    return is_local(file) and not keeps_time(file, place) and (rest == 0 or not is_packed)


class Rewrites:
    """Classifier of files that are at a shard's path and are not the file that was there."""

    def __init__(
        self,
        contents: Contents,
        lost: Sequence[KnownShard],
        free: Iterable[FileInfo],
        moved: Iterable[tuple[str, str]],
    ) -> None:
        """Index names; nothing is read.

        Args:
            contents: reads files.
            lost: shards whose files were not found by path, inode and creation time.
            free: files without a shard.
            moved: paths of other shards' files, before and now.
        """
        self._contents = contents
        self._lost: dict[str, list[KnownShard]] = {}
        for one in sorted(lost, key=lambda each: -each.place.mtime_s):
            self._lost.setdefault(log_name(one.place.path).family, []).append(one)
        self._free: dict[str, list[FileInfo]] = {}
        for file in free:
            family = log_name(file.path).family
            if family in self._lost and log_name(file.path).is_rotated:
                self._free.setdefault(family, []).append(file)
        self._shifted = {_log_of(before) for before, now in moved if _is_shifted(before, now)}
        self._heirs: dict[str, str | None] = {}

    def judge(self, one: KnownShard, file: FileInfo) -> RewriteMatch:
        """Classify a file that is at a shard's path and holds the bytes read of it; see the module."""
        if keeps_time(file, one.place) or self._is_dated(one, file):
            return RewriteMatch.OWN
        if self._heir(file) is not None:
            return RewriteMatch.NEW
        for other in self._free.get(log_name(file.path).family, ()):
            if other is not file and self._heir(other) == one.shard:
                return RewriteMatch.NEW if keeps_time(other, one.place) else RewriteMatch.TAKEN_FOR_NEW
        return RewriteMatch.TAKEN_FOR_NEW if _log_of(file.path) in self._shifted else RewriteMatch.TAKEN_FOR_OWN

    def _heir(self, file: FileInfo) -> str | None:
        """The shard that continues in a file with a rotation's name; of several, that with its time, or the newest."""
        if file.path not in self._heirs:
            near = [
                one
                for one in self._lost.get(log_name(file.path).family, ())
                if _is_rotation(one.place.path, file.path)
                and file.state not in one.place.copies
                and self._goes_on(one, file)
            ]
            near.sort(key=lambda one: not keeps_time(file, one.place))
            self._heirs[file.path] = near[0].shard if near else None
        return self._heirs[file.path]

    def _goes_on(self, one: KnownShard, file: FileInfo) -> bool:
        if one.is_whole:
            return file.size == one.offset and self._contents.tail(file, one.offset) == one.place.tail
        kind = self._contents.compression_of(file.path)
        return self._contents.holds(file, one.place, one.offset, kind, from_head=True)

    def _is_dated(self, one: KnownShard, file: FileInfo) -> bool:
        kind = self._contents.compression_of(file.path)
        head = self._contents.head(file, kind)
        if kind is not None:
            return tells_time(head, self._contents.archive(file, kind, ()).end)
        return tells_time(head, self._contents.read(*tail_span(file, one.offset)))


def tell_of_rewritten(rewritten: Sequence[Rewritten], told: LoggedOnce) -> None:
    """Log the decision for each file at another one's path: once per path, since rsync rewrites the file each time."""
    for one in rewritten:
        if one.is_read:
            told.warn(
                _key(one.path, one.is_read),
                "%s is another file than the one that was read up to byte %d, begins with the same bytes, and the log "
                "was rotated: it is read as a new log. If it is the old one, written anew, its rows are read twice: "
                "give its lines a time",
                one.path,
                one.offset,
            )
        else:
            told.warn(
                _key(one.path, one.is_read),
                "%s is another file than the one that was read up to byte %d, and begins with the same bytes: taken "
                "for that one, written anew; these bytes are not read again. If it is a new log with equal lines, give "
                "them a time, or let source.path match what became of the old one",
                one.path,
                one.offset,
            )


def _key(path: str, is_read: bool) -> str:
    return f"rewritten {path} {is_read}"


def _is_rotation(before: str, after: str) -> bool:
    """Whether a rotation can turn one path into another, in its folder or below."""
    folder, own = log_name(before).folder, log_name(after).folder
    return may_become(before, after) and (own == folder or own.startswith(f"{folder}/"))


def _is_shifted(before: str, now: str) -> bool:
    """Whether a rotated file has a higher number now."""
    one, other = log_name(before), log_name(now)
    is_same = (one.folder, one.family, one.date) == (other.folder, other.family, other.date)
    return is_same and one.number is not None and other.number is not None and one.number < other.number


def _log_of(path: str) -> tuple[str, str]:
    name = log_name(path)
    return name.folder, name.family
