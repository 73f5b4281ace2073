"""Objects in this process's memory: the reference for the contract suite, and the explorer's store."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from operator import attrgetter

from timeline.errors import AlreadyExistsError, NotFoundError
from timeline.stores.base import BaseStore, ObjectInfo, StoreTraits


@dataclass
class MemoryStore(BaseStore):
    """An `ObjectStore` whose objects last as long as the process."""

    url: str = "memory://"
    objects: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def traits(self) -> StoreTraits:
        """See ObjectStore."""
        return StoreTraits("/".join(self.url.split("/")[:3]), is_shared=False)

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        with self.lock:
            if path in self.objects:
                raise AlreadyExistsError(f"{self.url}/{path} exists")
            self.objects[path] = body

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        with self.lock:
            self.objects[path] = body

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with self.lock:
            try:
                return self.objects[path]
            except KeyError:
                raise NotFoundError(f"{self.url}/{path} does not exist") from None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore."""
        with self.lock:
            return {path: len(self.objects[path]) for path in paths if path in self.objects}

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore."""
        prefix = f"{folder}/" if folder else ""
        with self.lock:
            found = [
                ObjectInfo(path, len(body))
                for path, body in self.objects.items()
                if path > after and path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])
            ]
        return sorted(found, key=attrgetter("path"))[: limit or None]

    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore."""
        with self.lock:
            for path in paths:
                self.objects.pop(path, None)
