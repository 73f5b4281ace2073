"""All files below a folder or of a glob, where a folder that cannot be read is an error and never "no files".

fsspec's own `find` and `glob` leave out folders that they cannot list. A listing that lacks a folder looks
like deleted files, so each folder is listed here by itself, and only folders that the glob can match.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.utils import glob_translate

from timeline.errors import SourceError
from timeline.redact import without_secrets
from timeline.stores.trust import untrusted

_RECURSIVE = "**"


def walk_files(fs: AbstractFileSystem, root: str, glob: str | None) -> dict[str, Mapping[str, Any]]:
    """Entries below a folder, or that match a glob, by path: everything that is no folder.

    Hidden folders (``.`` and ``_``) and links to folders are not entered.

    Args:
        fs: the store.
        root: the folder; of a glob, its part without wildcards.
        glob: the pattern; None: everything below the folder.

    Raises:
        FileNotFoundError: the folder does not exist.
        SourceError: a folder, which the message names, cannot be listed.
    """
    if fs.async_impl and (glob is None or _RECURSIVE in glob):
        # An object store lists a whole tree in pages, without a request per folder.
        found = dict(_listed(fs, root, partial(fs.find, root, detail=True)))
    else:
        found = dict(_walk(fs, root, _enters(root, glob)))
    if glob is None:
        return found
    return {path: info for path, info in found.items() if matches_glob(glob, path)}


def matches_glob(glob: str, path: str) -> bool:
    """Whether a glob matches a path; both as the store names them."""
    return _pattern(glob).match(path) is not None


@lru_cache(maxsize=16)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(glob_translate(glob))


def linked_folders(fs: AbstractFileSystem, root: str, glob: str | None) -> Iterator[str]:
    """Local links to folders, which `walk_files` would enter if they were folders.

    Args:
        fs: the store.
        root: the folder; of a glob, its part without wildcards.
        glob: the pattern; None: everything below the folder.
    """
    enters = _enters(root, glob)
    for path, info in _walk(fs, root, enters):
        if info.get("islink") and enters(path) and os.path.isdir(path):
            yield path


def cannot_be_listed(fs: AbstractFileSystem, path: str, failure: Exception) -> SourceError:
    """The error of an existing folder that cannot be read, with its SDK's message without credentials.

    Args:
        fs: the store.
        path: the folder, or the single file.
        failure: the error of the store or its SDK.
    """
    said = untrusted(failure) or without_secrets(str(failure), fs.storage_options)
    return SourceError(f"{path} cannot be listed: {said}")


def _walk(fs: AbstractFileSystem, root: str, enters: Callable[[str], bool]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            infos = _listed(fs, folder, partial(fs.ls, folder, detail=True))
        except FileNotFoundError:
            if folder == root:
                raise
            continue  # deleted after its parent was listed, as files may be
        for info in infos:
            path = str(info["name"]).rstrip("/")
            if path == folder and info["type"] != "directory" and not fs.async_impl:
                raise SourceError(f"{folder} is a file, and source.path has it as a folder; correct source.path")
            if info["type"] != "directory":
                yield path, info
            elif path != folder and not path.rpartition("/")[2].startswith((".", "_")) and enters(path):
                folders.append(path)


def _listed(fs: AbstractFileSystem, folder: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except FileNotFoundError:
        raise
    except Exception as failure:  # of fsspec, or of the storage's SDK when the storage does not answer
        raise cannot_be_listed(fs, folder, failure) from failure


def _enters(root: str, glob: str | None) -> Callable[[str], bool]:
    """Test of a folder's path: whether files that the glob matches can be below it."""
    if glob is None:
        return lambda _: True
    parts = glob.split("/")
    fixed = parts.index(_RECURSIVE) if _RECURSIVE in parts else len(parts)
    # The last part names files; a part with ** stands for any depth.
    levels = {
        depth: re.compile(glob_translate("/".join(parts[:depth])))
        for depth in range(root.count("/") + 1, min(fixed, len(parts) - 1) + 1)
    }

    def enters(path: str) -> bool:
        depth = path.count("/") + 1
        level = levels.get(depth)
        return depth > fixed if level is None else level.match(path) is not None

    return enters
