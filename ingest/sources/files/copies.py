"""Copies among files that no epoch has read: a log, and files that a rotation copied or compressed from it.

::

    named as a rotation names a log's file, in or below its folder, and the log begins with its whole content
        its lines carry date and time ─────────────────────────────────→ a copy
        in the log's folder, as long, local, not changed before it ────→ a copy
        else at least 4 KiB ───────────────────────────────────────────→ a copy
        compressed, broken, and changed just now ──────────────────────→ being written: wait
    anything else ─────────────────────────────────────────────────────→ a file of its own

Logs without times in their lines may be equal, such as one that says ``started`` after each rotation: a file that is
not proved to be a copy is read. A rotation by renaming changes the old file for the last time before the new one
begins; a copy is made after its last line was written. An object's time is its upload time and proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.sources.files.contents import Contents
from ingest.sources.files.file_position import HEAD_BYTES, Copy
from ingest.sources.files.listing import FileInfo, file_info, is_local, tail_before, tail_hash
from ingest.sources.files.names import log_name, may_become

WRITTEN_FOR_S = 10.0
"""Seconds after its last change for which a broken compressed file counts as being written."""

_MOMENT = re.compile(
    rb"\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:?\d\d:?\d\d"
    rb"|\d\d/[A-Z][a-z]{2}/\d{4}[: ]\d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d"
    rb"|(?<!\d)1\d{9}(?:\d{3}|\d{6}|\d{9})?(?!\d)"
)
"""Date and time, or seconds, milliseconds, micro- or nanoseconds since 1970."""


@dataclass(frozen=True)
class Copied:
    """A file that is not read, because another file holds its whole content.

    Attributes:
        path: the copy's path.
        log: path of the other file.
        is_dated: its lines carry date and time; else only length or the files' times prove the copy.
        state: `FileInfo.state` of the copy; each state is logged once.
    """

    path: str
    log: str
    is_dated: bool
    state: Copy


@dataclass(frozen=True)
class NewFiles:
    """Files without a shard: those to read, and their copies.

    Attributes:
        logs: by path of each file to read, its copies.
        copied: one entry per copy, for log messages.
        settles_in_s: seconds until archives that are being written can be compared.
    """

    logs: Mapping[str, Sequence[FileInfo]]
    copied: Sequence[Copied] = ()
    settles_in_s: Sequence[float] = field(default=())


def without_copies(contents: Contents, files: Sequence[FileInfo], now_s: float) -> NewFiles:
    """Separate new files from copies of other new files.

    Args:
        contents: reads files.
        files: files without a shard.
        now_s: seconds since 1970.
    """
    logs: dict[str, list[FileInfo]] = {file.path: [] for file in files}
    copied: list[Copied] = []
    waits: list[float] = []
    pairs = list(_pairs(files))
    contents.fetch(
        (file, 0, min(HEAD_BYTES, file.size))
        for copy, near in pairs
        for file in (copy, *near)
        if contents.compression_of(file.path) is None
    )
    for copy, near in pairs:
        for log in near:
            found = _compare(contents, log, copy, now_s) if log.path in logs else None
            if found is None:
                continue
            own = logs.pop(copy.path)
            if isinstance(found, Copied):
                logs[log.path] += [copy, *own]
                copied.append(found)
            else:
                waits.append(found)
            break
    return NewFiles(logs, copied, waits)


def tells_time(head: bytes, end: bytes) -> bool:
    """Whether the first line and the last bytes of a content carry a date and a time."""
    return _MOMENT.search(head.partition(b"\n")[0]) is not None and _MOMENT.search(end) is not None


def _pairs(files: Iterable[FileInfo]) -> Iterator[tuple[FileInfo, list[FileInfo]]]:
    """Files that may be copies by their names, each with its possible originals, the log itself first."""
    places: dict[tuple[str, str, str], list[FileInfo]] = {}
    for file in sorted(files, key=_age):
        if file.size:
            name = log_name(file.path)
            places.setdefault((name.family, name.folder, name.date), []).append(file)
    for (_, folder, date), group in places.items():
        for copy in group:
            name = log_name(copy.path)
            if not name.is_rotated:
                continue
            dates = dict.fromkeys(("", date))
            beside = [log for each in dates for log in places.get((name.family, folder, each), ())]
            above = [log for each in _parents(folder) for log in places.get((name.family, each, ""), ())]
            near = [log for log in (*beside, *above) if _may_be_of(log, copy)]
            if near:
                yield copy, near


def _age(file: FileInfo) -> tuple[bool, bool, int, str]:
    name = log_name(file.path)
    return name.is_compressed, name.is_rotated, name.number or 0, file.path


def _parents(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _may_be_of(log: FileInfo, copy: FileInfo) -> bool:
    if not may_become(log.path, copy.path):
        return False
    one, other = log_name(log.path), log_name(copy.path)
    if one.is_compressed:
        return log.size == copy.size and one.folder == other.folder
    # A file that was rotated once stays in its folder.
    return one.folder == other.folder or not one.is_rotated


def _compare(contents: Contents, log: FileInfo, copy: FileInfo, now_s: float) -> Copied | float | None:
    """The copy; or seconds until an archive that is being written can be compared; or None: another file."""
    kind = contents.compression_of(copy.path)
    own_kind = contents.compression_of(log.path)
    head = contents.head(copy, kind)
    if contents.head(log, own_kind)[: len(head)] != head:
        return None
    size, end = copy.size, b""
    if kind is None or own_kind is not None:
        end = contents.end_of(copy)
        kind = own_kind = None  # two archives are compared as they are stored
    else:
        archive = contents.archive(copy, kind, ())
        left_s = WRITTEN_FOR_S - (now_s - copy.mtime_s)
        if archive.broken is not None and left_s > 0:
            return left_s
        size, end = archive.size, archive.end
    if size > log.size and is_local(log):  # the log may have grown after its listing, before the copy
        log = replace(file_info(contents.fs, log.path), path=log.path)
    if not 0 < size <= log.size or tail_before(contents.fs, log.path, size) != tail_hash(end):
        return None
    is_dated = tells_time(head, end)
    if not _is_proved(log, copy, size, is_dated=is_dated):
        return None
    if is_dated or contents.begins_with(log, copy, kind, size):
        return Copied(copy.path, log.path, is_dated, copy.state)
    return None


def _is_proved(log: FileInfo, copy: FileInfo, size: int, *, is_dated: bool) -> bool:
    """Whether equality to the last byte proves that a content, which a log begins with, is a copy's.

    Args:
        log: the log.
        copy: the file that may be its copy.
        size: bytes of the content.
        is_dated: its lines carry date and time.
    """
    if is_dated:
        return True
    is_beside = log_name(log.path).folder == log_name(copy.path).folder
    if is_beside and size == log.size and is_local(log):
        # Tools that copy a time may cut it to seconds.
        return copy.mtime_s >= (log.mtime_s if copy.mtime_s % 1 else log.mtime_s // 1)
    return size >= HEAD_BYTES
