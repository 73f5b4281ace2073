"""Objects in this process's memory: the reference for the contract, and what the explorer runs on."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from operator import attrgetter

from timeline.errors import AlreadyExistsError, NotFoundError
from timeline.stores.base import BaseStore, ObjectInfo


@dataclass
class MemoryStore(BaseStore):
    """An `ObjectStore` that lives and dies with the process."""

    url: str = "memory://"
    objects: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    is_shared = False

    @property
    def medium(self) -> str:
        """See ObjectStore."""
        return "/".join(self.url.split("/")[:3])

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

    def size(self, path: str) -> int | None:
        """See ObjectStore."""
        with self.lock:
            return len(self.objects[path]) if path in self.objects else None

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

    def delete(self, path: str) -> None:
        """See ObjectStore."""
        with self.lock:
            self.objects.pop(path, None)
