"""What an fsspec store lists below a path, and how a file is recognised again after it was renamed."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from timeline.errors import SourceError
from timeline.redact import without_credentials, without_secrets
from timeline.trust import check_authorities, untrusted

_MAGIC = "*?["
TAIL_BYTES = 256
"""How many bytes before an offset tell whether a file still has the content that was read."""


@dataclass(frozen=True)
class FileInfo:
    """One listed file.

    Attributes:
        path: as the store names it, without protocol and credentials.
        size: bytes.
        mtime_s: last change, seconds since 1970; 0 where the store does not say.
        identity: stays with the file when it is renamed (local: inode; object stores: etag); None where there is none.
        is_link: the path is a link to the file.
    """

    path: str
    size: int
    mtime_s: float
    identity: str | None
    is_link: bool = False


@dataclass(frozen=True)
class Location:
    """A source's path, resolved: the store, the fixed folder that shard names are relative to, and what to list.

    Attributes:
        fs: the store.
        root: the folder without any wildcard.
        glob: the pattern to list; None when `root` is walked.
        single: the one file meant, if there is neither a wildcard nor a folder.
    """

    fs: AbstractFileSystem
    root: str
    glob: str | None = None
    single: str | None = None

    def name_of(self, path: str) -> str:
        """The path below the root."""
        return path[len(self.root) :].lstrip("/") if path.startswith(self.root) else path


def resolve(url: str, storage: Mapping[str, Any]) -> Location:
    """The store and the fixed folder of a path, glob or URL.

    Raises:
        ConfigError: storage names a file of certificates that cannot be read.
        SourceError: no store goes by the URL's protocol, its options are wrong, or it does not answer.
    """
    check_authorities(storage)
    try:
        fs, path = url_to_fs(url, **storage)
        path = path.rstrip("/") or "/"
        if not any(mark in path for mark in _MAGIC):
            if fs.isdir(path):
                return Location(fs, path)
            return Location(fs, path.rpartition("/")[0], single=path)
    except Exception as failure:  # of fsspec, or whatever the SDK of its storage raises when that does not answer
        raise SourceError(
            f"the source's path {without_credentials(url)} cannot be opened: "
            f"{untrusted(failure) or without_secrets(str(failure), storage)}; check it and storage"
        ) from failure
    parts = path.split("/")
    fixed = next(place for place, part in enumerate(parts) if any(mark in part for mark in _MAGIC))
    return Location(fs, "/".join(parts[:fixed]), glob=path)


def list_files(location: Location) -> list[FileInfo]:
    """Every file of the source now, by path; hidden ones (``.`` and ``_``) and second names of one file left out.

    Raises:
        SourceError: the store cannot be listed.
    """
    fs = location.fs
    fs.invalidate_cache()
    try:
        if location.single is not None:
            found = {location.single: fs.info(location.single)}
        elif location.glob is not None:
            found = fs.glob(location.glob, detail=True)
        else:
            found = fs.find(location.root, detail=True)
    except FileNotFoundError:
        return []
    except Exception as failure:  # see resolve
        said = untrusted(failure) or without_secrets(str(failure), fs.storage_options)
        raise SourceError(f"{location.root} cannot be listed: {said}") from failure
    named = [
        (path, info)
        for path, info in sorted(found.items())
        if location.single is not None or not _is_hidden(location.name_of(path))
    ]
    files = [file for path, info in named if (file := _file_info(fs, path, info)) is not None]
    for file in files:
        _require_text(file.path)
    real = {(file.identity, file.size, file.mtime_s) for file in files if not file.is_link}
    return [file for file in files if not (file.is_link and (file.identity, file.size, file.mtime_s) in real)]


def file_info(fs: AbstractFileSystem, path: str) -> FileInfo:
    """One file as it is now; FileNotFoundError where it is not."""
    fs.invalidate_cache()
    found = _file_info(fs, path, fs.info(path))
    if found is None:
        raise FileNotFoundError(path)
    return found


def find_renamed(fs: AbstractFileSystem, path: str, identity: str) -> FileInfo | None:
    """The file of this identity in the folder of `path`, after a rotation renamed it."""
    fs.invalidate_cache()
    for info in fs.ls(path.rpartition("/")[0], detail=True):
        found = _file_info(fs, info["name"], info)
        if found is not None and found.identity == identity:
            return found
    return None


def read_bytes(fs: AbstractFileSystem, path: str, start: int, until: int) -> bytes:
    """Bytes ``[start, until)`` of a file, fewer where it ends before."""
    return bytes(fs.cat_file(path, start=start, end=until)) if until > start else b""


def tail_hash(tail: bytes) -> str:
    """What a position keeps of the bytes before it: enough to notice other content, too little to read."""
    return hashlib.blake2b(tail[-TAIL_BYTES:], digest_size=12).hexdigest()


def tail_before(fs: AbstractFileSystem, path: str, offset: int) -> str:
    """The hash of the (up to 256) bytes before an offset."""
    return tail_hash(read_bytes(fs, path, max(0, offset - TAIL_BYTES), offset))


def _file_info(fs: AbstractFileSystem, path: str, info: Mapping[str, Any]) -> FileInfo | None:
    """The file behind a listing's entry, through a local link; None where it is no file."""
    is_link = bool(info.get("islink", False))
    if is_link and isinstance(fs, LocalFileSystem):
        try:
            info = fs.info(os.path.realpath(path))
        except FileNotFoundError:
            return None
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
    """A shard's name goes into JSON bodies: one that is not Unicode would come back as another."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"the name of {path!r} is not valid UTF-8: rename the file or exclude it") from error


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))
