"""The active timeline: the instants in one listing of its folder. No body is read."""

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


@dataclass(frozen=True)
class ActiveTimeline:
    """The instants of a timeline in order of their times, each in its furthest state.

    Attributes:
        instants: one for each time and action.
        unreadable: files in the timeline folder that this version cannot parse as instants.
        unrequested: times of commits with an inflight file but no requested file: left by a late writer after the
            rollback of its instant.
        modified_ms: modification time of each file by name, in milliseconds since 1970 by the store's clock.
        store: the store of the instants' bodies; None for a view built from names alone.
        retry: retry bounds for reading bodies.
        settled: the settled mark where the listing started; None for any other listing.
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
        """The current timeline, from one listing regardless of the number of instants.

        Also reads timelines of Apache Hudi: layout 2 like Tideline's own, and layout 1 (table versions before 8) if
        layout 2's folder has no instants and the table's properties name layout 1, with a second listing. Files that
        this version cannot parse are in `unreadable`.

        Raises:
            StoreUnavailableError: the timeline could not be listed.
        """
        bounds = retry or Retry()
        timeline = cls._listed(store, TimelineLayout.TWO, bounds)
        if not timeline.instants and (layout := read_layout(store, bounds)) is TimelineLayout.ONE:
            return cls._listed(store, layout, bounds)
        return timeline

    @classmethod
    def recent(cls, store: ObjectStore, retry: Retry) -> ActiveTimeline:
        """The instants from the settled mark on, which may need work; all instants if there is no mark.

        For processes that write or recover; `timeline.settled` says which instants can be before the mark.
        """
        settled = read_settled(store, retry)
        if settled is None:
            return cls.load(store, retry)
        return replace(cls.since(store, settled.time, retry), settled=settled)

    @classmethod
    def since(cls, store: ObjectStore, time: str, retry: Retry) -> ActiveTimeline:
        """The instants of layout 2 requested at `time` or later; earlier ones are not listed.

        Args:
            store: the timeline's store.
            time: instant time.
            retry: retry bounds.
        """
        return cls._listed(store, TimelineLayout.TWO, retry, time)

    @classmethod
    def _listed(cls, store: ObjectStore, layout: TimelineLayout, retry: Retry, since: str = "") -> ActiveTimeline:
        # A file name begins with the time and is longer, so it sorts after the time alone.
        after = f"{layout.folder}/{since}" if since else ""
        listed = retry.call(lambda: store.list(layout.folder, after=after))
        modified_ms = {info.path.rpartition("/")[2]: info.modified_ms for info in listed}
        timeline = cls.from_names(filter(partial(_is_candidate, layout), modified_ms), layout)
        return replace(timeline, modified_ms=modified_ms, store=store, retry=retry)

    @classmethod
    def from_names(cls, names: Iterable[str], layout: TimelineLayout = TimelineLayout.TWO) -> ActiveTimeline:
        """The timeline built from file names alone."""
        names = [*names]
        completed = _completed(names) if layout is TimelineLayout.TWO else {}
        # The earlier states of a completed instant add nothing: two of three file names need no parsing.
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
            # A completed compaction is a commit: one instant under two action names.
            key = instant.key
            known = furthest.get(key)
            if known is None or known.state.rank < instant.state.rank:
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
        """Instants that are not completed, oldest first."""
        return self.where(lambda instant: instant.is_pending)

    def completed(self) -> ActiveTimeline:
        """Completed instants."""
        return self.where(lambda instant: not instant.is_pending)

    def by_action(self, *actions: Action) -> ActiveTimeline:
        """Instants of these actions."""
        return self.where(lambda instant: instant.action in actions)

    def where(self, keep: Callable[[Instant], bool]) -> ActiveTimeline:
        """Instants for which `keep` returns True."""
        return replace(self, instants=tuple(filter(keep, self.instants)))

    def find(self, time: str, action: Action = Action.COMMIT) -> Instant | None:
        """The instant of this time and action, or None."""
        return next((instant for instant in self.instants if (instant.time, instant.action) == (time, action)), None)

    @property
    def latest_time(self) -> str | None:
        """The latest time of any instant, completion times included; new times must be later."""
        times = [instant.completion_time or instant.time for instant in self.instants]
        before = [self.settled.latest] if self.settled is not None else []
        return max([*times, *(instant.time for instant in self.instants), *before], default=None)


def _completed(names: Iterable[str]) -> dict[str, Instant]:
    """Completed commits and rollbacks by file name; the caller parses all other names."""
    found: dict[str, Instant] = {}
    for name in names:
        if "_" in name and name.endswith((".commit", ".rollback")):
            with contextlib.suppress(FormatError):
                found[name] = parse_file_name(name)
    return found


def states_before(instant: Instant) -> tuple[str, str]:
    """File names of the earlier states of a completed commit or rollback of layout 2."""
    action = instant.action.value
    inflight = "inflight" if instant.action is Action.COMMIT else f"{action}.inflight"
    return f"{instant.time}.{action}.requested", f"{instant.time}.{inflight}"


def _is_candidate(layout: TimelineLayout, name: str) -> bool:
    """Whether a file may be an instant: excludes Hadoop's checksum files, and Hudi's other files of layout 1."""
    return name[:1].isdigit() if layout is TimelineLayout.ONE else not (name.startswith(".") and name.endswith(".crc"))
