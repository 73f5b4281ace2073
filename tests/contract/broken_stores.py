"""Object stores that fail in a known way: one loses replies of a working store, one is unreachable."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from timeline.errors import StoreUnavailableError
from timeline.stores.base import BaseStore, ObjectInfo, ObjectStore, ObjectWriter


@dataclass
class LosingReplies(BaseStore):
    """Loses the replies of the first `losses` creations that take effect: each raises an error."""

    inner: ObjectStore
    losses: int = 1

    @property
    def url(self) -> str:
        return self.inner.url

    def put_if_absent(self, path: str, body: bytes) -> None:
        self.inner.put_if_absent(path, body)
        if self.losses > 0:
            self.losses -= 1
            raise StoreUnavailableError(f"{path}: the reply is lost")

    def put(self, path: str, body: bytes) -> None:
        self.inner.put(path, body)

    def get(self, path: str) -> bytes:
        return self.inner.get(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return self.inner.sizes(paths)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return self.inner.list(folder, recursive=recursive, after=after, limit=limit)

    def delete(self, paths: Collection[str]) -> None:
        self.inner.delete(paths)

    def open_write(self, path: str) -> ObjectWriter:
        return self.inner.open_write(path)

    def prune(self, folder: str) -> None:
        self.inner.prune(folder)

    def remove_stale_uploads(self) -> None:
        self.inner.remove_stale_uploads()

    def abandon(self, paths: Collection[str]) -> None:
        self.inner.abandon(paths)


@dataclass
class Unreachable(BaseStore):
    """Every call raises StoreUnavailableError."""

    url: str = "nowhere://"

    def put_if_absent(self, path: str, body: bytes) -> None:
        raise StoreUnavailableError(path)

    def put(self, path: str, body: bytes) -> None:
        raise StoreUnavailableError(path)

    def get(self, path: str) -> bytes:
        raise StoreUnavailableError(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        raise StoreUnavailableError(self.url)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        raise StoreUnavailableError(folder)

    def delete(self, paths: Collection[str]) -> None:
        raise StoreUnavailableError(self.url)

    def open_write(self, path: str) -> ObjectWriter:
        raise StoreUnavailableError(path)

    def prune(self, folder: str) -> None:
        raise StoreUnavailableError(self.url)

    def remove_stale_uploads(self) -> None:
        raise StoreUnavailableError(self.url)

    def abandon(self, paths: Collection[str]) -> None:
        raise StoreUnavailableError(self.url)
