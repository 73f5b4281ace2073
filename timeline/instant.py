"""Instants and their file names on a Hudi timeline, both ways.

::

    layout 2  .hoodie/timeline/   <t>.commit.requested ───► <t>.inflight ──────────► <t>_<c>.commit
                                  <t>.rollback.requested ─► <t>.rollback.inflight ─► <t>_<c>.rollback
    layout 1  .hoodie/            <t>.commit.requested ───► <t>.inflight ──────────► <t>.commit

`t` is the time of the request, `c` the time of completion: ``yyyyMMddHHmmssSSS``. Tideline writes layout 2, in UTC,
and only reads layout 1. Only ``commit`` leaves its action out of the inflight name, and three actions are completed
under another name: a completed compaction is a commit (`Action.when_completed`).
Source: Apache Hudi technical specification 1.0, "ActiveTimeline" (layout version 2); of layout 1 and of the actions,
``HoodieTimeline``, ``HoodieInstant`` and ``InstantComparatorV1`` of Apache Hudi 0.15.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from timeline.errors import FormatError

TIMELINE_FOLDER = ".hoodie/timeline"
"""Folder of the instants' files, below the timeline's base path."""

META_FOLDER = ".hoodie"
"""Folder of all that Hudi stores about a table; in layout 1 also of the instants' files."""

_DIGITS = 17
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Action(enum.Enum):
    """Action of an instant on the table."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    REPLACECOMMIT = "replacecommit"
    DELTACOMMIT = "deltacommit"
    COMPACTION = "compaction"
    LOGCOMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    INDEXING = "indexing"

    @property
    def when_completed(self) -> Action:
        """The action in the name of the completed file."""
        return _WHEN_COMPLETED.get(self, self)


_WHEN_COMPLETED = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOGCOMPACTION: Action.DELTACOMMIT,
    Action.CLUSTERING: Action.REPLACECOMMIT,
}


class State(enum.Enum):
    """State of an instant."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"

    @property
    def rank(self) -> int:
        """Position in the order requested, inflight, completed."""
        return _RANKS[self]


_RANKS = {state: rank for rank, state in enumerate(State)}


class TimelineLayout(enum.Enum):
    """Layout of a timeline: Hudi's ``hoodie.timeline.layout.version``. Tideline writes layout 2."""

    ONE = 1
    TWO = 2

    @property
    def folder(self) -> str:
        """Folder of the instants' files, below the timeline's base path."""
        return META_FOLDER if self is TimelineLayout.ONE else TIMELINE_FOLDER


InstantKey = tuple[str, str]
"""An instant's time, and its action when completed."""


def format_time(epoch_ms: int) -> str:
    """An instant time for milliseconds since 1970 (UTC): 17 digits that sort as text."""
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    return moment.strftime("%Y%m%d%H%M%S") + f"{epoch_ms % 1000:03d}"


def utc_of(time: str) -> datetime:
    """The UTC time of an instant time.

    Raises:
        FormatError: it is none.
    """
    return datetime.fromtimestamp(parse_time(time) / 1000, UTC)


def parse_time(time: str) -> int:
    """Milliseconds since 1970 (UTC) of an instant time.

    Hudi before 0.10 wrote seconds only, 14 digits; as in Hudi, such a time means the last millisecond of its second.

    Raises:
        FormatError: the text is not a time of 17 or 14 digits.
    """
    # Not strptime: a timeline of 10,000 instants parses 20,000 times, and this is ten times faster.
    if not (len(time) in (14, 17) and time.isascii() and time.isdigit()):
        raise FormatError(f"instant time {time!r}: expected 17 digits yyyyMMddHHmmssSSS (Hudi before 0.10: 14)")
    try:
        day = int(time[:4]), int(time[4:6]), int(time[6:8])
        moment = datetime(*day, int(time[8:10]), int(time[10:12]), int(time[12:14]), tzinfo=UTC)
    except ValueError as error:
        raise FormatError(f"instant time {time!r} names no moment: {error}") from error
    return (moment - _EPOCH) // timedelta(seconds=1) * 1000 + int(time[14:] or 999)


@dataclass(frozen=True)
class Instant:
    """One action on the timeline at one time, in one state.

    Attributes:
        time: time of the request; unique on a timeline together with the action.
        action: its action on the table.
        state: its state.
        completion_time: time of completion; set exactly for completed instants of layout 2. In layout 1, the completed
            file's modification time is the time of completion.
        layout: layout of its timeline.
    """

    time: str
    action: Action
    state: State
    completion_time: str | None = None
    layout: TimelineLayout = field(default=TimelineLayout.TWO, repr=False)

    def __post_init__(self) -> None:
        parse_time(self.time)
        if self.layout is TimelineLayout.ONE:
            if self.completion_time is not None:
                raise FormatError(f"instant {self.time}: layout 1 names no completion time")
            return
        if len(self.time) != _DIGITS:
            raise FormatError(f"instant time {self.time!r}: layout 2 has 17 digits yyyyMMddHHmmssSSS")
        if (self.state is State.COMPLETED) != (self.completion_time is not None):
            raise FormatError(f"instant {self.time}: a completion time goes with the state completed and no other")
        if self.completion_time is not None:
            parse_time(self.completion_time)

    @property
    def key(self) -> InstantKey:
        """Key that all states of the instant share: files with the same key are one instant."""
        return self.time, self.action.when_completed.value

    @property
    def is_pending(self) -> bool:
        """Whether the instant is not completed."""
        return self.state is not State.COMPLETED

    @property
    def file_name(self) -> str:
        """The instant's file name in the timeline folder."""
        match self.state:
            case State.COMPLETED if self.layout is TimelineLayout.ONE:
                return f"{self.time}.{self.action.value}"
            case State.COMPLETED:
                return f"{self.time}_{self.completion_time}.{self.action.value}"
            case State.INFLIGHT if self.action is Action.COMMIT:
                return f"{self.time}.inflight"
            case State.INFLIGHT | State.REQUESTED:
                return f"{self.time}.{self.action.value}.{self.state.value}"

    @property
    def path(self) -> str:
        """The file's path below the timeline's base path."""
        return f"{self.layout.folder}/{self.file_name}"


_STATE = r"(\.(?P<action>[a-z]+))?\.(?P<state>requested|inflight)"
_NAMES = {
    TimelineLayout.ONE: re.compile(rf"(?P<time>[0-9]{{14}}([0-9]{{3}})?)({_STATE}|(?P<completed>)\.(?P<done>[a-z]+))"),
    TimelineLayout.TWO: re.compile(rf"(?P<time>[0-9]{{17}})(_(?P<completed>[0-9]{{17}})\.(?P<done>[a-z]+)|{_STATE})"),
}
_EXPECTED = {
    TimelineLayout.ONE: "<time>.<action>.<state> or <time>.<action>",
    TimelineLayout.TWO: "<time>.<action>.<state> or <time>_<completed>.<action>",
}


def parse_file_name(name: str, layout: TimelineLayout = TimelineLayout.TWO) -> Instant:
    """The instant of a file name in the timeline folder.

    Raises:
        FormatError: not an instant's name, or an action that this version does not know.
    """
    match = _NAMES[layout].fullmatch(name)
    if match is None:
        raise FormatError(f"timeline file {name!r}: expected {_EXPECTED[layout]}")
    state = State.COMPLETED if match["done"] else State(match["state"])
    word = match["done"] or match["action"] or (Action.COMMIT.value if state is State.INFLIGHT else None)
    try:
        action = Action(word)
    except ValueError:
        allowed = ", ".join(action.value for action in Action)
        raise FormatError(f"timeline file {name!r}: action {word!r}, known are {allowed}") from None
    instant = Instant(match["time"], action, state, match["completed"] or None, layout)
    if instant.file_name != name:
        raise FormatError(f"timeline file {name!r}: this instant's file is called {instant.file_name!r}")
    return instant


def commit_requested(time: str) -> Instant:
    """A commit that has been planned."""
    return Instant(time, Action.COMMIT, State.REQUESTED)


def commit_inflight(time: str) -> Instant:
    """A commit whose data may exist."""
    return Instant(time, Action.COMMIT, State.INFLIGHT)


def commit_completed(time: str, completion_time: str) -> Instant:
    """A commit that every target has applied."""
    return Instant(time, Action.COMMIT, State.COMPLETED, completion_time)
