"""Calls about many objects, as the steps that they are made of: a process can die, and others run, in between.

Beside the explorer, whose own stack is no part of a state: how far such a call has come is one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class StepStore(Protocol):
    """A store that takes one object in a step."""

    def sizes_of_one(self, path: str) -> dict[str, int]:
        """Its size, where it exists."""

    def delete_one(self, path: str) -> None:
        """Remove it."""


def sizes_one_by_one(store: StepStore, paths: Collection[str]) -> dict[str, int]:
    """`ObjectStore.sizes`, a step for each object."""
    found: dict[str, int] = {}
    for path in sorted(paths):
        found |= store.sizes_of_one(path)
    return found


def delete_one_by_one(store: StepStore, paths: Collection[str]) -> None:
    """`ObjectStore.delete`, a step for each object."""
    for path in sorted(paths):
        store.delete_one(path)
