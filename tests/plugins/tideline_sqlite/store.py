"""Objects as rows of one SQLite file: ``sqlite:///folder/file.db/folder/in/it``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

from timeline.errors import AlreadyExistsError, ConfigError, NotFoundError, StoreUnavailableError
from timeline.stores.base import BaseStore, ObjectInfo, StoreTraits


@dataclass(frozen=True)
class SqliteStore(BaseStore):
    """An `ObjectStore` in a SQLite file.

    Attributes:
        file: absolute path of the file; it need not exist.
        prefix: the beginning of all keys: "", or a path with a slash at its end.
    """

    file: str
    prefix: str = ""

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any]) -> Self:
        """The entry point; see StoreOpener."""
        file, ends_in_db, folder = url.partition("://")[2].partition(".db")
        if not ends_in_db or folder[:1] not in ("", "/"):
            raise ConfigError(f"{url}: allowed is sqlite:///folder/file.db, and a folder in it behind another slash")
        return cls(os.path.abspath(f"{file}.db"), f"{folder[1:]}/" if folder else "")

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return f"sqlite://{self.file}/{self.prefix}".rstrip("/")

    @property
    def traits(self) -> StoreTraits:
        """See ObjectStore: other machines do not reach this file, so a job on a cluster is refused."""
        return StoreTraits(self.url, is_shared=False)

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore: one INSERT, which the primary key refuses where the object exists."""
        with self._connected() as db:
            try:
                db.execute("INSERT INTO objects VALUES (?, ?)", (self.prefix + path, body))
            except sqlite3.IntegrityError as error:
                raise AlreadyExistsError(f"{self.url}/{path} exists") from error

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        with self._connected() as db:
            db.execute("INSERT OR REPLACE INTO objects VALUES (?, ?)", (self.prefix + path, body))

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with self._connected() as db:
            found = db.execute("SELECT body FROM objects WHERE path = ?", (self.prefix + path,)).fetchone()
        if found is None:
            raise NotFoundError(f"{self.url}/{path} does not exist")
        return bytes(found[0])

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore; not needed, but cheaper than to read the objects."""
        found: dict[str, int] = {}
        with self._connected() as db:
            for path in paths:
                row = db.execute("SELECT length(body) FROM objects WHERE path = ?", (self.prefix + path,)).fetchone()
                if row is not None:
                    found[path] = int(row[0])
        return found

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore: "0" sorts right behind "/", and SQLite sorts texts as Python does."""
        first = f"{self.prefix}{folder}/" if folder else self.prefix
        behind = f"{first[:-1]}0" if first else "\U0010ffff"
        with self._connected() as db:
            rows = db.execute(
                "SELECT path, length(body) FROM objects WHERE path >= ? AND path < ? AND path > ? ORDER BY path",
                (first, behind, self.prefix + after),
            )
            found = ((path, size) for path, size in rows if recursive or "/" not in path[len(first) :])
            return [ObjectInfo(path[len(self.prefix) :], size) for path, size in islice(found, limit or None)]

    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore."""
        with self._connected() as db:
            db.executemany("DELETE FROM objects WHERE path = ?", [(self.prefix + path,) for path in paths])

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection for one call, so that the store can be pickled and forked; every statement is a transaction."""
        try:
            os.makedirs(os.path.dirname(self.file), exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as db:
                db.execute("CREATE TABLE IF NOT EXISTS objects (path TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
                yield db
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailableError(f"{self.url}: {error}") from error
