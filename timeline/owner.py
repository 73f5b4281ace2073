"""Owner of a timeline: the job's name, and its source.

::

    .hoodie/owner.json    created by the first writer; replaced only where a person says that the job has moved

Two job files that share a timeline by mistake would each continue the other's offsets, and roll back the other's
epochs without checking its targets.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeline.body import BodyFormat
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

OWNER_PATH = ".hoodie/owner.json"
"""Path of the owner's object, below the timeline's base path."""


@dataclass(frozen=True)
class Owner:
    """The job that a timeline belongs to.

    Attributes:
        name: the job's name.
        source: normalized location of its source, without credentials.
    """

    name: str
    source: str

    def __str__(self) -> str:
        return f"job {self.name!r}, which reads {self.source}"


OWNER = BodyFormat("owner", Owner)


def read_owner(store: ObjectStore, retry: Retry) -> Owner | None:
    """The owner; None if no writer of a version that records owners has written the timeline."""
    body = read_or_none(store, OWNER_PATH, retry)
    return None if body is None else OWNER.load(OWNER_PATH, body)


def claim_timeline(store: ObjectStore, owner: Owner, retry: Retry) -> Owner:
    """Become the owner if there is none; returns the timeline's owner.

    Args:
        store: the timeline's store.
        owner: the owner to record.
        retry: retry bounds.
    """
    return OWNER.load(OWNER_PATH, create_or_read(store, OWNER_PATH, OWNER.dump(owner), retry))


def move_timeline(store: ObjectStore, owner: Owner, retry: Retry) -> None:
    """Replace the owner. For the timeline's writer, at a person's request only.

    Args:
        store: the timeline's store.
        owner: the new owner.
        retry: retry bounds.
    """
    retry.call(lambda: store.put(OWNER_PATH, OWNER.dump(owner)))
