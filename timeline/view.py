"""What a timeline shows: an immutable view of its instants, with filters. One listing, no bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from timeline.errors import FormatError
from timeline.instant import TIMELINE_FOLDER, Action, Instant, State, parse_file_name
from timeline.store import ObjectStore, Retry

_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class Timeline:
    """The instants of a timeline in order of their times, each in the furthest state it has reached.

    Attributes:
        instants: one for each time and action.
        unreadable: files in the timeline folder that are no instants this version knows.
        unrequested: times of commits that have an inflight file and no requested one: what a writer
            left that woke up after its instant had been rolled back.
    """

    instants: tuple[Instant, ...] = ()
    unreadable: tuple[str, ...] = ()
    unrequested: frozenset[str] = frozenset()

    @classmethod
    def load(cls, store: ObjectStore, retry: Retry | None = None) -> Timeline:
        """The timeline as it is now: one listing, however many instants there are.

        Raises:
            StoreUnavailableError: it could not be listed.
        """
        listed = (retry or Retry()).call(lambda: store.list(TIMELINE_FOLDER))
        return cls.from_names(info.path.rpartition("/")[2] for info in listed)

    @classmethod
    def from_names(cls, names: Iterator[str]) -> Timeline:
        """The timeline that these file names make up."""
        furthest: dict[tuple[str, str], Instant] = {}
        requested: set[str] = set()
        unreadable: list[str] = []
        for name in names:
            try:
                instant = parse_file_name(name)
            except FormatError:
                unreadable.append(name)
                continue
            if instant.state is State.REQUESTED:
                requested.add(instant.time)
            key = (instant.time, instant.action.value)
            known = furthest.get(key)
            if known is None or _PROGRESS[known.state] < _PROGRESS[instant.state]:
                furthest[key] = instant
        unrequested = frozenset(
            instant.time
            for instant in furthest.values()
            if instant.action is Action.COMMIT and instant.state is State.INFLIGHT and instant.time not in requested
        )
        return cls(tuple(furthest[key] for key in sorted(furthest)), tuple(unreadable), unrequested)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    def pending(self) -> Timeline:
        """Instants for which something is still to be done, oldest first."""
        return self._where(lambda instant: instant.is_pending)

    def completed(self) -> Timeline:
        """Instants that are done."""
        return self._where(lambda instant: not instant.is_pending)

    def by_action(self, *actions: Action) -> Timeline:
        """Instants of these actions."""
        return self._where(lambda instant: instant.action in actions)

    def between(self, first: str, last: str) -> Timeline:
        """Instants requested from `first` to `last`, both included."""
        return self._where(lambda instant: first <= instant.time <= last)

    def find(self, time: str, action: Action = Action.COMMIT) -> Instant | None:
        """The instant of this time and action."""
        return next((instant for instant in self.instants if (instant.time, instant.action) == (time, action)), None)

    @property
    def latest_time(self) -> str | None:
        """The latest time that any instant bears, completion times included; new times must be later."""
        times = [instant.completion_time or instant.time for instant in self.instants]
        return max([*times, *(instant.time for instant in self.instants)], default=None)

    def _where(self, keep: Callable[[Instant], bool]) -> Timeline:
        return Timeline(tuple(filter(keep, self.instants)), self.unreadable, self.unrequested)
