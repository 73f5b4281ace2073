"""Whose a timeline is: the job's name, and the place that it reads from.

::

    .hoodie/owner.json    created by the first writer; replaced only where a person says that the job has moved

Two job files that share a timeline by mistake would each continue the other's offsets, and roll its epochs back
without a look at its targets.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeline.body import BodyFormat
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

OWNER_PATH = ".hoodie/owner.json"
"""Where it lies, below the timeline's base path."""


@dataclass(frozen=True)
class Owner:
    """The job that a timeline belongs to.

    Attributes:
        name: the job's name.
        source: where it reads from, in one spelling, without credentials.
    """

    name: str
    source: str

    def __str__(self) -> str:
        return f"job {self.name!r}, which reads {self.source}"


OWNER = BodyFormat("owner", Owner)


def read_owner(store: ObjectStore, retry: Retry) -> Owner | None:
    """The owner; None of a timeline that has had no writer since owners are told."""
    body = read_or_none(store, OWNER_PATH, retry)
    return None if body is None else OWNER.load(OWNER_PATH, body)


def claim_timeline(store: ObjectStore, owner: Owner, retry: Retry) -> Owner:
    """Become the owner where there is none; returns who is it, by whomever."""
    return OWNER.load(OWNER_PATH, create_or_read(store, OWNER_PATH, OWNER.dump(owner), retry))


def move_timeline(store: ObjectStore, owner: Owner, retry: Retry) -> None:
    """Give the timeline to another owner. For its writer, where a person has said so."""
    retry.call(lambda: store.put(OWNER_PATH, OWNER.dump(owner)))
