"""Calls about many objects, as the steps that they are made of: a process can die, and others run, in between.

Beside the explorer, whose own stack is no part of a state: how far such a call has come is one.
"""

from __future__ import annotations

from collections.abc import Collection

from timeline.stores.base import ObjectStore


def sizes_one_by_one(store: ObjectStore, paths: Collection[str]) -> dict[str, int]:
    """`ObjectStore.sizes` by `size`."""
    found: dict[str, int] = {}
    for path in sorted(paths):
        size = store.size(path)
        if size is not None:
            found[path] = size
    return found


def delete_one_by_one(store: ObjectStore, paths: Collection[str]) -> None:
    """`ObjectStore.delete_all` by `delete`."""
    for path in sorted(paths):
        store.delete(path)
