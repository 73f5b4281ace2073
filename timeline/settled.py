"""The settled mark: a time before which no instant is pending, so that a start lists only later instants.

::

    .hoodie/settled.json

    ──────────── settled ────────────┬──── recent: what a start lists ────▶ time
    completed, or rolled back        T    an instant that was completed; it and all behind it are listed

Why no instant that matters can be before the mark:

- T is the instant of a completed epoch, and no instant before it was pending in a listing that was made after the
  decision on that epoch, or on a later one.
- A process that plans a later epoch has read the decision of that one, and draws a later time
  (`ingest.protocol.steps.open_instant`): later epochs are after T, whatever the wall clocks say.
- So only a writer that planned an epoch up to that one can still put files before T. Its epoch is already decided
  against it: it loses, and deletes its files. If it is killed before that, its files are never visible; a start
  that lists the whole timeline finds them (`ingest.protocol.recovery`).

The mark is a hint: a lost, damaged or outdated mark costs a longer listing and nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from timeline.body import BodyFormat
from timeline.errors import FormatError
from timeline.stores.base import ObjectStore, Retry, read_or_none

log = logging.getLogger(__name__)

SETTLED_PATH = ".hoodie/settled.json"
"""Path of the mark, below the timeline's base path."""


@dataclass(frozen=True)
class SettledMark:
    """The mark: every instant requested before `time` is completed, or rolled back and deleted.

    Attributes:
        time: the time of a completed commit.
        latest: the latest time of any instant when the mark was written, completion times included.
    """

    time: str
    latest: str


SETTLED = BodyFormat("settled", SettledMark)


def read_settled(store: ObjectStore, retry: Retry) -> SettledMark | None:
    """The mark; None if there is none that this version can read, so that the whole timeline must be listed."""
    body = read_or_none(store, SETTLED_PATH, retry)
    if body is None:
        return None
    try:
        return SETTLED.load(SETTLED_PATH, body)
    except FormatError as error:
        log.warning("%s: looking at the whole timeline instead: %s", store.url, error)
        return None
