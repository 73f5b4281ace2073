"""Listings of an fsspec store below a path, with each file's identity across renames."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ingest.sources.files.raw import require_readable
from ingest.sources.files.walk import cannot_be_listed, matches_glob, walk_files
from timeline.errors import SourceError
from timeline.redact import without_credentials, without_secrets
from timeline.stores.opening import absolute
from timeline.stores.trust import check_authorities, untrusted

_MAGIC = "*?["
TAIL_BYTES = 256
"""Number of bytes before an offset that tell whether a file still has the content that was read."""


@dataclass(frozen=True)
class FileInfo:
    """One listed file.

    Attributes:
        path: as the store names it, without protocol and credentials.
        size: bytes.
        mtime_s: modification time, seconds since 1970; 0 where the store does not report it.
        identity: kept when the file is renamed (local: inode; object stores: etag); None where there is none.
        is_link: the path is a link to the file.
        names: all paths of a file that has several (hard links), `path` first; else empty.
    """

    path: str
    size: int
    mtime_s: float
    identity: str | None
    is_link: bool = False
    names: tuple[str, ...] = ()

    @property
    def state(self) -> tuple[str, int, float]:
        """Key of the file while it is unchanged; a local file keeps the key when it is renamed."""
        return (str(self.identity) if is_local(self) else self.path, self.size, self.mtime_s)


def is_local(file: FileInfo) -> bool:
    """Whether a file lies on a file system, where identity and time belong to the file and not to an upload."""
    return file.identity is not None and file.identity.startswith("ino:")


@dataclass(frozen=True)
class Location:
    """A source's path, resolved: the store, the fixed folder that shard names are relative to, and the files to list.

    Attributes:
        fs: the store.
        root: the folder without any wildcard.
        glob: the pattern to list; None when `root` is walked.
        single: path of the only file, where the path has no wildcard and is no folder.
    """

    fs: AbstractFileSystem
    root: str
    glob: str | None = None
    single: str | None = None

    def name_of(self, path: str) -> str:
        """A file's path below the root."""
        return path[len(self.root) :].lstrip("/") if path.startswith(self.root) else path

    def lists(self, path: str) -> bool:
        """Whether a listing includes a file of this path, if it exists."""
        if self.single is not None:
            return path == self.single
        return path.startswith(f"{self.root.rstrip('/')}/") and (self.glob is None or matches_glob(self.glob, path))


def resolve(url: str, storage: Mapping[str, Any]) -> Location:
    """The store and the fixed folder of a path, glob or URL; a local path is normalised, as in listings.

    Raises:
        ConfigError: storage names a file of certificates that cannot be read.
        SourceError: no store has the URL's protocol, its options are wrong, or the store does not answer.
    """
    check_authorities(storage)
    try:
        fs, path = url_to_fs(url, **storage)
        path = absolute(path) if isinstance(fs, LocalFileSystem) else path.rstrip("/") or "/"
        if not any(mark in path for mark in _MAGIC):
            if fs.isdir(path):
                return Location(fs, path)
            return Location(fs, path.rpartition("/")[0], single=path)
    except Exception as failure:  # of fsspec, or of the storage's SDK when the storage does not answer
        raise SourceError(
            f"the source's path {without_credentials(url)} cannot be opened: "
            f"{untrusted(failure) or without_secrets(str(failure), storage)}; check it and storage"
        ) from failure
    parts = path.split("/")
    fixed = next(place for place, part in enumerate(parts) if any(mark in part for mark in _MAGIC))
    return Location(fs, "/".join(parts[:fixed]), glob=path)


def list_files(location: Location, known: Collection[str], *, may_be_missing: bool = False) -> list[FileInfo]:
    """Current files of the source, sorted by path, without hidden ones (``.`` and ``_``) and second names of one file.

    Args:
        location: the source's path.
        known: paths that records were read from before.
        may_be_missing: a missing folder that no record was read from is no error; it may be created later.

    Raises:
        SourceError: the folder, or the bucket, does not exist, or some folder or link cannot be read.
    """
    fs = location.fs
    fs.invalidate_cache()
    try:
        if location.single is not None:
            found: Mapping[str, Mapping[str, Any]] = {location.single: fs.info(location.single)}
        else:
            found = walk_files(fs, location.root, location.glob)
    except FileNotFoundError:
        found = {}
    except SourceError:
        raise
    except Exception as failure:  # see resolve
        raise cannot_be_listed(fs, location.single or location.root, failure) from failure
    if not found:
        was_folder = any(path.startswith(f"{location.single}/") for path in known)
        if known or location.fs.async_impl or not may_be_missing:
            _require_place(location, is_known=bool(known), was_folder=was_folder)
    named = [
        (path, info)
        for path, info in sorted(found.items())
        if location.single is not None or not _is_hidden(location.name_of(path))
    ]
    files = [file for path, info in named if (file := _file_info(fs, path, info)) is not None]
    for file in files:
        _require_text(file.path)
    real = {(file.identity, file.size, file.mtime_s) for file in files if not file.is_link}
    return _one_of_each(
        fs, [file for file in files if not (file.is_link and (file.identity, file.size, file.mtime_s) in real)]
    )


def _require_place(location: Location, *, is_known: bool, was_folder: bool) -> None:
    """Where nothing is listed, raise unless the source's path exists, or, for a known file, its folder.

    Object stores have no folders: there, only the bucket has to exist.
    """
    fs = location.fs
    if fs.async_impl:
        missing = location.root.lstrip("/").partition("/")[0]
        is_there = _bucket_is_there(fs, missing)
    elif location.single is not None and not was_folder and (is_known or fs.exists(location.single)):
        # A file is missing for a moment while it is rotated; its folder is not.
        missing, is_there = location.root or "/", fs.exists(location.root or "/")
    else:
        missing = location.single or location.root
        is_there = fs.exists(missing)
    if is_there:
        return
    if is_known:
        raise SourceError(
            f"{missing} does not exist any more, though records were read from there: is it mounted, was it moved? "
            "Bring it back, or correct source.path"
        )
    raise SourceError(f"{missing} does not exist; give a folder, a file or a glob")


def _bucket_is_there(fs: AbstractFileSystem, bucket: str) -> bool:
    try:
        fs.invalidate_cache()
        fs.ls(bucket, detail=False)
    except FileNotFoundError:
        return False
    except Exception:  # a user who may list a prefix may lack permission to list the bucket
        return True
    return True


def _one_of_each(fs: AbstractFileSystem, files: list[FileInfo]) -> list[FileInfo]:
    """Merge files of one inode: hard links, or a file that was renamed while it was listed.

    Inode numbers are unique within one device, which a listing does not report.
    """
    if not isinstance(fs, LocalFileSystem):
        return files
    groups: dict[str | None, list[FileInfo]] = {}
    for file in files:
        groups.setdefault(file.identity, []).append(file)
    kept: list[FileInfo] = []
    for group in groups.values():
        if len(group) == 1:
            kept += group
            continue
        devices: dict[int | None, list[FileInfo]] = {}
        for file in group:
            devices.setdefault(_device(file.path), []).append(file)
        # A path that no longer exists is the old name of another file of the group.
        gone = devices.pop(None, [])
        kept += [replace(same[0], names=tuple(each.path for each in same)) for same in devices.values()]
        kept += [] if devices else gone[:1]
    return sorted(kept, key=lambda file: file.path)


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except FileNotFoundError:
        return None


def file_info(fs: AbstractFileSystem, path: str) -> FileInfo:
    """Current state of one file; raises FileNotFoundError where it does not exist."""
    fs.invalidate_cache()
    found = _file_info(fs, path, fs.info(path))
    if found is None:
        raise FileNotFoundError(path)
    return found


def files_beside(fs: AbstractFileSystem, path: str) -> Iterator[FileInfo]:
    """The files in the folder of `path`."""
    fs.invalidate_cache()
    for info in fs.ls(path.rpartition("/")[0], detail=True):
        found = _file_info(fs, info["name"], info)
        if found is not None:
            yield found


def files_below(fs: AbstractFileSystem, root: str, glob: str | None) -> Iterator[FileInfo]:
    """All files below a folder or of a glob; see `walk_files`.

    Args:
        fs: the store.
        root: the folder; of a glob, its part without wildcards.
        glob: the pattern; None: everything below the folder.
    """
    for path, info in walk_files(fs, root, glob).items():
        found = _file_info(fs, path, info)
        if found is not None:
            yield found


def read_bytes(fs: AbstractFileSystem, path: str, start: int, until: int) -> bytes:
    """Bytes ``[start, until)`` of a file, fewer where it ends before.

    Args:
        fs: the store.
        path: the file's path.
        start: first offset.
        until: first offset after the span.
    """
    try:
        return bytes(fs.cat_file(path, start=start, end=until)) if until > start else b""
    except OSError as failure:
        require_readable(path, failure)
        raise


def tail_hash(tail: bytes) -> str:
    """Hash of the last 256 bytes before a position: enough to detect other content, too little to reveal it."""
    return hashlib.blake2b(tail[-TAIL_BYTES:], digest_size=12).hexdigest()


def head_hash(head: bytes) -> str:
    """Hash of all the given first bytes of a file, as `tail_hash`."""
    return hashlib.blake2b(head, digest_size=12).hexdigest()


def tail_before(fs: AbstractFileSystem, path: str, offset: int) -> str:
    """The hash of the (up to 256) bytes before an offset.

    Args:
        fs: the store.
        path: the file's path.
        offset: first offset after the bytes.
    """
    return tail_hash(read_bytes(fs, path, max(0, offset - TAIL_BYTES), offset))


def _file_info(fs: AbstractFileSystem, path: str, info: Mapping[str, Any]) -> FileInfo | None:
    """The file of a listing's entry; follows a local link; None where the entry is no file."""
    is_link = bool(info.get("islink", False))
    if is_link and isinstance(fs, LocalFileSystem):
        try:
            info = fs.info(os.path.realpath(path))
        except FileNotFoundError:
            return None
        except OSError as failure:
            require_readable(path, failure)
            raise
    if info["type"] != "file":
        return None
    return FileInfo(path, int(info["size"] or 0), _mtime_s(info), _identity(info), is_link)


def _identity(info: Mapping[str, Any]) -> str | None:
    if info.get("ino"):
        return f"ino:{info['ino']}"
    for key in ("ETag", "etag", "md5Hash"):
        if info.get(key):
            return f"etag:{str(info[key]).strip(chr(34))}"
    return None


def _mtime_s(info: Mapping[str, Any]) -> float:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        match info.get(key):
            case datetime.datetime() as moment:
                return moment.timestamp()
            case int() | float() as seconds:
                return float(seconds)
            case str() as text:
                return datetime.datetime.fromisoformat(text).timestamp()
    return 0.0


def _require_text(path: str) -> None:
    """Raise for a path that is not valid UTF-8: JSON, which stores shard names, would not preserve it."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"the name of {path!r} is not valid UTF-8: rename the file or exclude it") from error


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))
