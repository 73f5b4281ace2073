"""Lookup of a planned range's file when a task reads it: as planned, or as a rotation left it since.

::

    at its path, or renamed ── same bytes before the range's end ──→ read there
    another file with a rotation's name: a copy, or compressed ── same bytes ──→ read there
    none of these ──→ RangeGoneError
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

from fsspec import AbstractFileSystem

from ingest.sources.files.decompress import DecompressedFile
from ingest.sources.files.listing import (
    TAIL_BYTES,
    FileInfo,
    file_info,
    files_below,
    files_beside,
    tail_before,
    tail_hash,
)
from ingest.sources.files.lookup_retry import retry_lookup
from ingest.sources.files.names import COMPRESSIONS, may_become
from ingest.sources.files.raw import RawFile, unavailable
from timeline.epoch import OffsetRange
from timeline.errors import RangeGoneError, RangeRewrittenError
from timeline.units import count


@dataclass(frozen=True)
class Located:
    """The current file of a range.

    Attributes:
        path: the file's path.
        size: bytes, as stored.
        archive: its compression where the range's offsets count decompressed bytes.
    """

    path: str
    size: int
    archive: str | None = None


def locate(fs: AbstractFileSystem, offsets: OffsetRange) -> Located:
    """Find the file of a range, and compare its content with the plan.

    A rotation during the lookup may hide a file under both of its names; retries find it.

    Raises:
        RangeGoneError: the file is missing, shorter than planned, or has other content.
        SourceError: the file cannot be opened.
        StoreUnavailableError: the store does not answer.
    """
    look = partial(_locate_once, fs, offsets)
    return retry_lookup(look, look, RangeGoneError)


def _locate_once(fs: AbstractFileSystem, offsets: OffsetRange) -> Located:
    path, identity = str(offsets.detail["path"]), offsets.detail.get("id")
    try:
        found = _find(fs, offsets)
        why = f"file {path} does not exist any more" if found is None else _difference(fs, offsets, found)
        if found is not None and why is None:
            kind = str(offsets.detail["compression"]) if is_of_archive(offsets) else None
            return Located(found.path, found.size, kind)
        for archive in _made_of(fs, offsets):
            return archive
    except FileNotFoundError as failure:
        raise range_gone(offsets, f"file {path} does not exist any more") from failure
    except OSError as failure:
        unavailable(path, failure)
    if found is not None and found.identity == identity is not None:
        raise rewritten(offsets, str(why))
    raise range_gone(offsets, str(why))


def require_still(fs: AbstractFileSystem, offsets: OffsetRange, path: str) -> None:
    """Check, after the last row, that a local file was not truncated and rewritten while it was read.

    Objects are replaced as a whole and are not checked.

    Args:
        fs: the store.
        offsets: the range that was read.
        path: path of the file that was read.

    Raises:
        RangeGoneError: the file was truncated or rewritten.
    """
    identity = offsets.detail.get("id")
    if isinstance(identity, str) and identity.startswith("ino:"):
        at = _tail_at(offsets)
        try:
            is_same = tail_before(fs, path, at) == offsets.detail["tail"]
        except FileNotFoundError:
            return  # deleted or renamed while the reader had it open
        if not is_same:
            # The path may be another file's by now; the reader's file was checked when it was opened.
            now = _find(fs, offsets)
            if now is not None and now.identity == identity and _difference(fs, offsets, now) is not None:
                raise rewritten(offsets, f"file {path} was truncated or rewritten while it was read")


def is_of_archive(offsets: OffsetRange) -> bool:
    """Whether a range was planned as decompressed bytes of a compressed file."""
    return "archive_size" in offsets.detail


def limit_of(offsets: OffsetRange) -> int:
    """End of the bytes that counted when the range was planned."""
    return cast(int, offsets.detail["limit"])


def range_gone(offsets: OffsetRange, found: str) -> RangeGoneError:
    """The error of a range that can no longer be read as planned."""
    return RangeGoneError(
        f"shard {offsets.shard}, range [{offsets.start}, {offsets.until}): {found}; bring the planned file back, or "
        "roll the epoch back with `tideline recover` and start again"
    )


def rewritten(offsets: OffsetRange, found: str) -> RangeGoneError:
    """The error of a range whose file was truncated in place, or rewritten.

    Only a committed position lets the next plan detect the change; a file that no epoch has read stops the job.
    """
    gone = range_gone(offsets, found)
    return RangeRewrittenError(str(gone)) if offsets.start > 0 else gone


def _tail_at(offsets: OffsetRange) -> int:
    return cast(int, offsets.detail["tail_at"])


def _find(fs: AbstractFileSystem, offsets: OffsetRange) -> FileInfo | None:
    """The file by path, or by identity among the files of `_elsewhere`; else another file at the path, or None."""
    path, identity = str(offsets.detail["path"]), offsets.detail.get("id")
    try:
        found: FileInfo | None = file_info(fs, path)
    except FileNotFoundError:
        found = None
    if identity is None or (found is not None and found.identity == identity):
        return found
    return next((file for file in _elsewhere(fs, offsets) if file.identity == identity), found)


def _elsewhere(fs: AbstractFileSystem, offsets: OffsetRange) -> Iterator[FileInfo]:
    """Files that a rotation may have made of the range's: in its folder first, then all that the job's path matches."""
    yield from files_beside(fs, str(offsets.detail["path"]))
    root, glob = offsets.detail.get("root"), offsets.detail.get("glob")
    if isinstance(root, str):
        yield from files_below(fs, root, glob if isinstance(glob, str) else None)


def _difference(fs: AbstractFileSystem, offsets: OffsetRange, found: FileInfo) -> str | None:
    """Difference between a file and the planned one, human-readable; None where there is none."""
    detail = offsets.detail
    size, at, tail = limit_of(offsets), _tail_at(offsets), detail["tail"]
    if is_of_archive(offsets):
        size = at = cast(int, detail["archive_size"])
        tail = detail["archive_tail"]
    if found.size < size or (is_of_archive(offsets) and found.size != size):
        return f"file {found.path} has {found.size:,} of {count(size, 'byte')}"
    if tail_before(fs, found.path, at) != tail:
        return f"file {found.path} has other bytes before {at} than when it was planned"
    return None


def _made_of(fs: AbstractFileSystem, offsets: OffsetRange) -> Iterator[Located]:
    """Files that a rotation may have made of the range's plain file, and that have its content."""
    path = str(offsets.detail["path"])
    if offsets.detail.get("compression") is not None or "fresh_line" not in offsets.detail:
        return
    for file in _elsewhere(fs, offsets):
        if not may_become(path, file.path):
            continue
        kind = next((kind for ending, kind in COMPRESSIONS.items() if file.path.endswith(ending)), None)
        if kind is None:
            if _difference(fs, offsets, file) is None:
                yield Located(file.path, file.size)
        elif _holds(fs, offsets, file, kind):
            yield Located(file.path, file.size, kind)


def _holds(fs: AbstractFileSystem, offsets: OffsetRange, file: FileInfo, kind: str) -> bool:
    """Whether a compressed file has the planned length and the same bytes before the range's end."""
    at, limit = _tail_at(offsets), limit_of(offsets)
    content = DecompressedFile(lambda: RawFile(fs, file.path, file.size), kind)
    try:
        content.seek(max(0, at - TAIL_BYTES))
        tail = content.read(min(at, TAIL_BYTES))
        content.seek(limit - 1)
        return tail_hash(tail) == offsets.detail["tail"] and len(content.read(1)) == 1
    finally:
        content.close()
