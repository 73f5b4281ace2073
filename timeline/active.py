"""The active timeline: the instants that one listing of its folder shows. No body is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from timeline.errors import FormatError
from timeline.hudi.layout import read_layout
from timeline.instant import Action, Instant, InstantKey, State, TimelineLayout, parse_file_name
from timeline.settled import SettledMark, read_settled
from timeline.stores.base import ObjectStore, Retry

_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class ActiveTimeline:
    """The instants of a timeline in order of their times, each in the furthest state it has reached.

    Attributes:
        instants: one for each time and action.
        unreadable: files in the timeline folder that are no instants this version knows.
        unrequested: times of commits that have an inflight file and no requested one: what a writer
            left that woke up after its instant had been rolled back.
        modified_ms: when each file was last written, by name and by the store's clock.
        store: where its bodies are; None of a view that was made of names alone.
        retry: bounds of retries for reading them.
        settled: what is known of the instants before these, which were not looked at; None where all were.
    """

    instants: tuple[Instant, ...] = ()
    unreadable: tuple[str, ...] = ()
    unrequested: frozenset[str] = frozenset()
    modified_ms: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    store: ObjectStore | None = field(default=None, compare=False, repr=False)
    retry: Retry = field(default_factory=Retry, compare=False, repr=False)
    settled: SettledMark | None = None

    @classmethod
    def load(cls, store: ObjectStore, retry: Retry | None = None) -> ActiveTimeline:
        """The timeline as it is now: one listing, however many instants there are.

        Timelines of Apache Hudi are read too: layout 2 as Tideline's own, and layout 1 (table versions before 8)
        where the timeline folder is empty and the table's properties say so. What cannot be read is in
        `unreadable`, and everything else is read.

        Raises:
            StoreUnavailableError: it could not be listed.
        """
        bounds = retry or Retry()
        timeline = cls._listed(store, TimelineLayout.TWO, bounds)
        if not timeline.instants and (layout := read_layout(store, bounds)) is TimelineLayout.ONE:
            return cls._listed(store, layout, bounds)
        return timeline

    @classmethod
    def recent(cls, store: ObjectStore, retry: Retry) -> ActiveTimeline:
        """What may still need something to be done: the instants from the settled mark on, all where there is none.

        For processes that write or recover; see `timeline.settled` for what can be before the mark.
        """
        settled = read_settled(store, retry)
        if settled is None:
            return cls.load(store, retry)
        return replace(cls.since(store, settled.time, retry), settled=settled)

    @classmethod
    def since(cls, store: ObjectStore, time: str, retry: Retry) -> ActiveTimeline:
        """The instants of layout 2 that were requested at a time or later; those before cost nothing."""
        return cls._listed(store, TimelineLayout.TWO, retry, time)

    @classmethod
    def _listed(cls, store: ObjectStore, layout: TimelineLayout, retry: Retry, since: str = "") -> ActiveTimeline:
        # A file's name goes on behind the time, so it sorts behind the time alone.
        after = f"{layout.folder}/{since}" if since else ""
        listed = retry.call(lambda: store.list(layout.folder, after=after))
        modified_ms = {info.path.rpartition("/")[2]: info.modified_ms for info in listed}
        timeline = cls.from_names(filter(partial(_is_candidate, layout), modified_ms), layout)
        return replace(timeline, modified_ms=modified_ms, store=store, retry=retry)

    @classmethod
    def from_names(cls, names: Iterable[str], layout: TimelineLayout = TimelineLayout.TWO) -> ActiveTimeline:
        """The timeline that these file names make up."""
        names = [*names]
        completed = _completed(names) if layout is TimelineLayout.TWO else {}
        # What a completed instant has behind it tells nothing more: two files of three need no reading.
        passed = {state for instant in completed.values() for state in states_before(instant)}
        furthest: dict[InstantKey, Instant] = {}
        requested: set[str] = set()
        unreadable: list[str] = []
        for name in names:
            if name in passed:
                continue
            try:
                instant = completed.get(name) or parse_file_name(name, layout)
            except FormatError:
                unreadable.append(name)
                continue
            if instant.state is State.REQUESTED:
                requested.add(instant.time)
            # A compaction that is completed is a commit: one instant under two names.
            key = instant.key
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

    def pending(self) -> ActiveTimeline:
        """Instants for which something is still to be done, oldest first."""
        return self.where(lambda instant: instant.is_pending)

    def completed(self) -> ActiveTimeline:
        """Instants that are done."""
        return self.where(lambda instant: not instant.is_pending)

    def by_action(self, *actions: Action) -> ActiveTimeline:
        """Instants of these actions."""
        return self.where(lambda instant: instant.action in actions)

    def where(self, keep: Callable[[Instant], bool]) -> ActiveTimeline:
        """Instants that `keep` says yes to."""
        return replace(self, instants=tuple(filter(keep, self.instants)))

    def find(self, time: str, action: Action = Action.COMMIT) -> Instant | None:
        """The instant of this time and action."""
        return next((instant for instant in self.instants if (instant.time, instant.action) == (time, action)), None)

    @property
    def latest_time(self) -> str | None:
        """The latest time that any instant bears, completion times included; new times must be later."""
        times = [instant.completion_time or instant.time for instant in self.instants]
        before = [self.settled.latest] if self.settled is not None else []
        return max([*times, *(instant.time for instant in self.instants), *before], default=None)


def _completed(names: Iterable[str]) -> dict[str, Instant]:
    """Completed commits and rollbacks by their files' names; what is none is left to whoever reads the others."""
    found: dict[str, Instant] = {}
    for name in names:
        if "_" in name and name.endswith((".commit", ".rollback")):
            with contextlib.suppress(FormatError):
                found[name] = parse_file_name(name)
    return found


def states_before(instant: Instant) -> tuple[str, str]:
    """Names of the files that a completed commit or rollback of layout 2 has gone through."""
    action = instant.action.value
    inflight = "inflight" if instant.action is Action.COMMIT else f"{action}.inflight"
    return f"{instant.time}.{action}.requested", f"{instant.time}.{inflight}"


def _is_candidate(layout: TimelineLayout, name: str) -> bool:
    """Whether a file can be meant for an instant: not Hadoop's checksum of one, nor Hudi's other files of layout 1."""
    return name[:1].isdigit() if layout is TimelineLayout.ONE else not (name.startswith(".") and name.endswith(".crc"))
