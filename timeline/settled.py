"""The settled mark: a time before which nothing on the timeline is left to do, so that a start looks behind it only.

::

    .hoodie/settled.json

    ──────────── settled ────────────┬──── recent: what a start lists ────▶ time
    completed, or rolled back        T    an instant that was completed; it and all behind it are listed

Why nothing that matters can be before the mark:

- T is the instant of a completed epoch, and no instant before it was pending in a listing that was made after that
  epoch, or a later one, had been decided.
- Whoever plans a later epoch has read the decision of that one, and draws a time behind it
  (`ingest.protocol.steps.open_instant`): later epochs are behind T, whatever the wall clocks say.
- So only a writer that planned an epoch up to that one can still put something before T, and its epoch is
  decided against it already: it loses, and removes what it put. If it is killed before that, what is left
  is never visible; a start that looks at the whole timeline finds it (`ingest.protocol.recovery`).

The mark is a hint: one that is lost, damaged or older than another costs a longer listing and nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from timeline.body import BodyFormat
from timeline.errors import FormatError
from timeline.stores.base import ObjectStore, Retry, read_or_none

log = logging.getLogger(__name__)

SETTLED_PATH = ".hoodie/settled.json"
"""Where the mark lives, below the timeline's base path."""


@dataclass(frozen=True)
class SettledMark:
    """Every instant that was requested before `time` is completed, or rolled back and gone.

    Attributes:
        time: the time of a completed commit.
        latest: the latest time that an instant bore when this was written, completion times included.
    """

    time: str
    latest: str


SETTLED = BodyFormat("settled", SettledMark)


def read_settled(store: ObjectStore, retry: Retry) -> SettledMark | None:
    """The mark; None where there is none that this version can read: the whole timeline has to be looked at then."""
    body = read_or_none(store, SETTLED_PATH, retry)
    if body is None:
        return None
    try:
        return SETTLED.load(SETTLED_PATH, body)
    except FormatError as error:
        log.warning("%s: looking at the whole timeline instead: %s", store.url, error)
        return None
