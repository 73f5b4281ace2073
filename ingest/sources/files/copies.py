"""Copies among files that no epoch has read: a log, and what a rotation copied or compressed of it before that.

::

    named as a rotation names a log's file, in or below its folder, and all of it is what the log begins with
        its lines tell date and time ──────────────────────────────────→ a copy
        in the log's folder, as long, local, not changed before it ────→ a copy
        else at least 4 KiB ───────────────────────────────────────────→ a copy
        compressed, ends in the middle, and was changed just now ──────→ being written: wait
    anything else ─────────────────────────────────────────────────────→ a file of its own

Logs whose lines tell no time may be equal, such as one that says ``started`` after each rotation: what is not known
for a copy is read. A rotation by renaming changes the old file last before the new one begins; a copy is made
behind the last line that it has. An object's time is when it was put and proves nothing.
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
"""A compressed file that ends in the middle is being written for so long after its last change."""

_MOMENT = re.compile(
    rb"\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:?\d\d:?\d\d"
    rb"|\d\d/[A-Z][a-z]{2}/\d{4}[: ]\d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d"
    rb"|(?<!\d)1\d{9}(?:\d{3}|\d{6}|\d{9})?(?!\d)"
)
"""Date and time, or seconds, milliseconds, micro- or nanoseconds since 1970."""


@dataclass(frozen=True)
class Copied:
    """A file that is not read, because another holds all of it.

    Attributes:
        path: its.
        log: the other's path.
        is_dated: its lines tell date and time; else only length or the files' times prove it.
        state: what it is, to be told once.
    """

    path: str
    log: str
    is_dated: bool
    state: Copy


@dataclass(frozen=True)
class NewFiles:
    """Files that no shard has, as they are to be read.

    Attributes:
        logs: each file to read, with its copies.
        copied: what tells of each copy.
        settles_in_s: when archives that are being written will tell what they are.
    """

    logs: Mapping[str, Sequence[FileInfo]]
    copied: Sequence[Copied] = ()
    settles_in_s: Sequence[float] = field(default=())


def without_copies(contents: Contents, files: Sequence[FileInfo], now_s: float) -> NewFiles:
    """Tell new files from copies of other new files.

    Args:
        contents: reads files.
        files: those that no shard has.
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
    """Whether the first line and the last bytes of a content tell a date and a time."""
    return _MOMENT.search(head.partition(b"\n")[0]) is not None and _MOMENT.search(end) is not None


def _pairs(files: Iterable[FileInfo]) -> Iterator[tuple[FileInfo, list[FileInfo]]]:
    """Every file that by its name may be a copy, with those that it may be one of, the log itself first."""
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
    # What was rotated once stays in its folder.
    return one.folder == other.folder or not one.is_rotated


def _compare(contents: Contents, log: FileInfo, copy: FileInfo, now_s: float) -> Copied | float | None:
    """A copy; or in how many seconds an archive that is being written will tell; or None: another file."""
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
    if size > log.size and is_local(log):  # it may have grown since it was listed, before it was copied
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
    """Whether a content that a log begins with can only be a copy's, if it is that to the last byte.

    Args:
        log: it.
        copy: the other file.
        size: bytes of the content.
        is_dated: its lines tell date and time.
    """
    if is_dated:
        return True
    is_beside = log_name(log.path).folder == log_name(copy.path).folder
    if is_beside and size == log.size and is_local(log):
        # Tools that copy a time may cut it to seconds.
        return copy.mtime_s >= (log.mtime_s if copy.mtime_s % 1 else log.mtime_s // 1)
    return size >= HEAD_BYTES
