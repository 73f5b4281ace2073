"""Bulk calls as one step for each object: between two steps, the process can crash and other processes can run.

In a module of its own: the explorer ignores the frames of its own modules, and the progress of a bulk call is state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class StepStore(Protocol):
    """A store with steps for single objects."""

    def sizes_of_one(self, path: str) -> dict[str, int]:
        """Size of an object by its path; empty if the object does not exist."""

    def delete_one(self, path: str) -> None:
        """Delete an object."""


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
