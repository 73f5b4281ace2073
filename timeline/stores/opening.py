"""Opening the `ObjectStore` of a URL with fsspec options."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from timeline.errors import ConfigError
from timeline.stores.base import ObjectStore
from timeline.stores.local import LocalStore
from timeline.stores.memory import MemoryStore

STORE_GROUP = "tideline.stores"
"""Entry point group for stores of other packages: the name is a URL scheme, the object a `StoreOpener`."""

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


class StoreOpener(Protocol):
    """The object of an entry point in the group ``tideline.stores``; for example a store's class method."""

    def __call__(self, url: str, options: Mapping[str, Any]) -> ObjectStore:
        """The store below a URL; touches no storage.

        Args:
            url: with the entry point's scheme, without credentials and without a trailing slash. Further path
                segments are folders: the store of ``scheme://place/a`` has all objects of ``scheme://place/a/b``.
            options: the job file's ``storage``; may hold secrets.

        Raises:
            ConfigError: the URL or an option is wrong.
        """


def open_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store below a URL; touches no storage.

    ==================================  =====================================================
    ``lake/web``, ``file:///lake/web``  files; a relative path is below the current directory
    ``s3://bucket/web``                 S3, or a store that honours ``If-None-Match: *``
    ``memory://web``                    this process's memory, one store for each URL
    another scheme                      a store of that name in the group ``tideline.stores``
    ==================================  =====================================================

    All stores except those in memory can be pickled and opened in another process.

    Args:
        url: root of the store, without credentials.
        options: fsspec's options for the protocol: credentials, endpoint.

    Raises:
        ConfigError: the URL holds credentials, its path has more than one spelling, or no known store for its
            scheme creates objects exclusively, as the protocol requires.
    """
    protocol, path = url.split("://", 1) if "://" in url else ("file", url)
    match protocol:
        case "file" | "local":
            return LocalStore(local_root(path))
        case "memory":
            with _memory_lock:
                return _memory_stores.setdefault(url, MemoryStore(url))
        case "s3" | "s3a":
            if "@" in path.split("/", 1)[0]:
                raise ConfigError(
                    f"s3://…@{urlsplit(url).hostname}: credentials in a URL end up in logs; give them in storage, "
                    'for example storage: {key: "${AWS_ACCESS_KEY_ID}", secret: "${AWS_SECRET_ACCESS_KEY}"}'
                )
            try:
                from timeline.stores.s3 import S3Store
            except ImportError as error:
                raise ConfigError(f"{url}: S3 needs the package s3fs: pip install 'tideline[s3]'") from error
            return S3Store(s3_root(path), dict(options or {}))
        case _:
            return _open_installed(protocol, url, options or {})


@cache
def installed_stores() -> EntryPoints:
    """Entry points of installed stores, cached: the lookup reads a file of every installed package."""
    return entry_points(group=STORE_GROUP)


def store_package(url: str) -> str | None:
    """The package of a URL's store; None for Tideline's own stores, and for an unknown scheme."""
    found = installed_stores().select(name=url.partition("://")[0]) if "://" in url else ()
    return next((entry.module.partition(".")[0] for entry in found), None)


def _open_installed(scheme: str, url: str, options: Mapping[str, Any]) -> ObjectStore:
    found = installed_stores().select(name=scheme)
    if not found:
        more = "".join(f", {name}://" for name in sorted(installed_stores().names))
        raise ConfigError(
            f"{scheme}://: no store that creates objects exclusively is known for this protocol; "
            f"allowed are local paths, file://, s3://, memory://{more}"
        )
    if "@" in url.partition("://")[2].split("/", 1)[0]:
        raise ConfigError(f"{scheme}://…: credentials in a URL end up in logs; give them in storage")
    homes = sorted({entry.value for entry in found})
    if len(homes) > 1:
        raise ConfigError(f"several packages have a store for {scheme}://: {', '.join(homes)}; uninstall all but one")
    try:
        opener = cast(StoreOpener, next(iter(found)).load())
    except Exception as error:  # code of another package
        raise ConfigError(
            f"the store of {scheme}:// ({homes[0]}) cannot be imported: {type(error).__name__}: {error}; install what "
            "it needs"
        ) from error
    try:
        return opener(url.rstrip("/"), options)
    except TypeError as error:  # Python names the abstract methods that a subclass of `BaseStore` lacks
        raise ConfigError(
            f"the store of {scheme}:// ({homes[0]}) cannot be opened: {error}; see docs/how-to/write-your-own-store.md"
        ) from error


def local_root(path: str) -> str:
    """The absolute form of a local path; ``~`` is the home folder.

    Raises:
        ConfigError: the path is empty.
    """
    if not path:
        raise ConfigError("the path is empty; allowed are a local path, file://, s3://, memory://")
    return absolute(path)


def absolute(path: str) -> str:
    """The absolute, normalized form of a local path; ``~`` is the home folder.

    Raises:
        ConfigError: the path is relative to the current directory, which was removed.
    """
    expanded = os.path.expanduser(path)
    try:
        path_from_root = os.path.abspath(expanded)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: {GONE}") from error
    # POSIX paths keep two leading slashes; on all systems that run Python they mean one.
    return f"/{path_from_root.lstrip('/')}" if path_from_root.startswith("//") else path_from_root


def is_below_removed_directory(error: FileNotFoundError) -> bool:
    """Whether a relative path was not found because the current directory was removed."""
    if error.filename is not None and os.path.isabs(os.fsdecode(error.filename)):
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


GONE = "the current directory was removed, and the path is relative to it; go to another one, or give the whole path"


def s3_root(path: str) -> str:
    """The normalized URL of a prefix on S3, ``s3://bucket/prefix``.

    Args:
        path: bucket and prefix, without protocol.

    Raises:
        ConfigError: a folder has an empty name, ``.`` or ``..``: some servers and clients resolve ``a//b`` to
            ``a/b`` and some do not, so an object that one of them lists may be missing for another.
    """
    root = path.strip("/")
    unnamed = [part for part in root.split("/")[1:] if part in ("", ".", "..")]
    if unnamed:
        raise ConfigError(
            f"s3://{path}: a folder is named {unnamed[0]!r}, which not every server and client takes for the same "
            "place; names other than '', '.' and '..' are allowed"
        )
    return f"s3://{root}"
