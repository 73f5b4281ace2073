"""What a timeline shows: an immutable view of its instants, with filters. One listing; bodies only when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from timeline.decision import read_decision
from timeline.entry import archived_entry
from timeline.epoch import PLAN
from timeline.errors import FormatError
from timeline.fsspec_store import open_store
from timeline.history import History
from timeline.html_views import timeline_html
from timeline.hudi import read_epoch_of, read_layout
from timeline.hudi_archive import Archive
from timeline.instant import Action, Instant, InstantKey, Layout, State, commit_requested, parse_file_name
from timeline.settled import Settled, read_settled
from timeline.store import ObjectStore, Retry, read_or_none

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_DIGITS = 17
_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class Timeline:
    """The instants of a timeline in order of their times, each in the furthest state it has reached.

    Attributes:
        instants: one for each time and action.
        unreadable: files in the timeline folder that are no instants this version knows.
        unrequested: times of commits that have an inflight file and no requested one: what a writer
            left that woke up after its instant had been rolled back.
        modified_ms: when each file was last written, by name and by the store's clock.
        store: where its bodies are; None of a view that was made of names alone.
        retry: bounds of retries for reading them.
        archive: where the bodies of those among `instants` are that are archived; None where none was asked for.
        settled: what is known of the instants before these, which were not looked at; None where all were.
    """

    instants: tuple[Instant, ...] = ()
    unreadable: tuple[str, ...] = ()
    unrequested: frozenset[str] = frozenset()
    modified_ms: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    store: ObjectStore | None = field(default=None, compare=False, repr=False)
    retry: Retry = field(default_factory=Retry, compare=False, repr=False)
    archive: Archive | None = field(default=None, compare=False, repr=False)
    settled: Settled | None = None

    @classmethod
    def load(
        cls,
        store: ObjectStore | str,
        retry: Retry | None = None,
        *,
        storage: Mapping[str, Any] | None = None,
        archived: bool = False,
    ) -> Timeline:
        """The timeline as it is now: one listing, however many instants there are.

        Timelines of Apache Hudi are read too: layout 2 as Tideline's own, and layout 1 (table versions before 8)
        where the timeline folder is empty and the table's properties say so. What cannot be read is in
        `unreadable`, and everything else is read.

        Args:
            store: the timeline's store, or the path or URL of the table that it belongs to.
            retry: bounds of retries.
            storage: with a URL: fsspec's options for it (credentials, endpoint).
            archived: read the instants too that Hudi has moved out of the active timeline; without it they are
                not there. Reads each file of the archive once, and once more for the bodies.

        Raises:
            ConfigError: no store is known for the URL.
            StoreUnavailableError: it could not be listed.
        """
        opened = open_store(store, storage) if isinstance(store, str) else store
        bounds = retry or Retry()
        timeline = cls._listed(opened, Layout.TWO, bounds)
        layout = Layout.TWO
        if not timeline.instants:
            layout = read_layout(opened, bounds)
            timeline = cls._listed(opened, layout, bounds) if layout is Layout.ONE else timeline
        return timeline._with_archive(Archive.load(opened, layout, bounds)) if archived else timeline

    @classmethod
    def recent(cls, store: ObjectStore, retry: Retry) -> Timeline:
        """What may still need something to be done: the instants from the settled mark on, all where there is none.

        For processes that write or recover; see `timeline.settled` for what can be before the mark.
        """
        settled = read_settled(store, retry)
        if settled is None:
            return cls.load(store, retry)
        return replace(cls.since(store, settled.time, retry), settled=settled)

    @classmethod
    def since(cls, store: ObjectStore, time: str, retry: Retry) -> Timeline:
        """The instants of layout 2 that were requested at a time or later; those before cost nothing."""
        return cls._listed(store, Layout.TWO, retry, time)

    @classmethod
    def _listed(cls, store: ObjectStore, layout: Layout, retry: Retry, since: str = "") -> Timeline:
        # A file's name goes on behind the time, so it sorts behind the time alone.
        after = f"{layout.folder}/{since}" if since else ""
        listed = retry.call(lambda: store.list(layout.folder, after=after))
        modified_ms = {info.path.rpartition("/")[2]: info.modified_ms for info in listed}
        timeline = cls.from_names(filter(partial(_is_candidate, layout), modified_ms), layout)
        return replace(timeline, modified_ms=modified_ms, store=store, retry=retry)

    @classmethod
    def from_names(cls, names: Iterable[str], layout: Layout = Layout.TWO) -> Timeline:
        """The timeline that these file names make up."""
        names = [*names]
        completed = _completed(names) if layout is Layout.TWO else {}
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

    def _repr_html_(self) -> str:
        """In a notebook: the newest instants; reads no body."""
        return timeline_html(self)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    def pending(self) -> Timeline:
        """Instants for which something is still to be done, oldest first."""
        return self.where(lambda instant: instant.is_pending)

    def completed(self) -> Timeline:
        """Instants that are done."""
        return self.where(lambda instant: not instant.is_pending)

    def by_action(self, *actions: Action) -> Timeline:
        """Instants of these actions."""
        return self.where(lambda instant: instant.action in actions)

    def between(self, first: str, last: str) -> Timeline:
        """Instants requested from `first` to `last`, both included."""
        return self.where(lambda instant: first <= instant.time <= last)

    def where(self, keep: Callable[[Instant], bool]) -> Timeline:
        """Instants that `keep` says yes to."""
        return replace(self, instants=tuple(filter(keep, self.instants)))

    def shares(self, size: int) -> Iterator[Timeline]:
        """The same in pieces of at most `size` instants, each with no more than it needs: to be sent elsewhere.

        At least one piece; whether files are unreadable is told by the whole only.
        """
        by_time: dict[str, dict[str, int]] = {}
        for name, modified_ms in self.modified_ms.items():
            by_time.setdefault(name[:_DIGITS].partition(".")[0], {})[name] = modified_ms
        for first in range(0, max(1, len(self.instants)), size):
            instants = self.instants[first : first + size]
            modified = {name: ms for each in instants for name, ms in by_time.get(each.time, {}).items()}
            archive = self.archive.only(instants) if self.archive is not None else None
            yield replace(self, instants=instants, unreadable=(), modified_ms=modified, archive=archive)

    def by_epoch(self, store: ObjectStore, epoch: int, retry: Retry) -> Timeline:
        """One epoch's commit, pending or completed, and the completed rollbacks of its attempts.

        File names do not tell the epoch: this reads the epoch's decision, the plans of pending commits and
        the bodies of rollbacks, but no completed commit's. Committed offsets are in `timeline.chain.Chain`.
        """
        decision = read_decision(store, epoch, retry)

        def belongs(instant: Instant) -> bool:
            match instant.action:
                case Action.COMMIT if instant.is_pending:
                    path = commit_requested(instant.time).path
                    body = read_or_none(store, path, retry)
                    return body is not None and PLAN.load(path, body).ref.epoch == epoch
                case Action.COMMIT:
                    return decision is not None and decision.commits(instant.time)
                case Action.ROLLBACK if not instant.is_pending:
                    return read_epoch_of(store, instant, retry) == epoch
                case _:
                    return False

        return self.where(belongs)

    def history(self) -> History:
        """What the bodies of these instants say, and views of it; reads up to four objects for each: filter before.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        assert self.store is not None, "a view that was made of names has no bodies"
        archived = [instant for instant in self.instants if self.is_archived(instant)]
        active = [instant for instant in self.instants if not self.is_archived(instant)]
        history = History.read(self.store, active, self.retry, self.modified_ms)
        if self.archive is None or not archived:
            return history
        read = self.archive.read(archived)
        entries = {entry.instant: entry for entry in history.entries}
        entries |= {instant: archived_entry(read[instant]) for instant in archived}
        return History(tuple(entries[instant] for instant in self.instants))

    def is_archived(self, instant: Instant) -> bool:
        """Whether an instant of this view has been moved out of the active timeline."""
        return self.archive is not None and instant in self.archive

    def to_arrow(self, view: str = "instants") -> pa.Table:
        """One view of the timeline as an Arrow table.

        Args:
            view: instants, epochs, offsets, files or rejected; columns are those of the rows in `timeline.rows`.

        Raises:
            ValueError: no such view.
            StoreUnavailableError: the store does not answer.
        """
        from timeline.arrow import view_table

        return view_table(self.history(), view)

    def to_pandas(self, view: str = "instants") -> pd.DataFrame:
        """The same as a pandas data frame; see `to_arrow`. Whole numbers stay whole where some are missing.

        Raises:
            ConfigError: pandas is not installed.
        """
        from timeline.arrow import view_frame

        return view_frame(self.history(), view)

    def find(self, time: str, action: Action = Action.COMMIT) -> Instant | None:
        """The instant of this time and action."""
        return next((instant for instant in self.instants if (instant.time, instant.action) == (time, action)), None)

    @property
    def latest_time(self) -> str | None:
        """The latest time that any instant bears, completion times included; new times must be later."""
        times = [instant.completion_time or instant.time for instant in self.instants]
        before = [self.settled.latest] if self.settled is not None else []
        return max([*times, *(instant.time for instant in self.instants), *before], default=None)

    def _with_archive(self, archive: Archive) -> Timeline:
        """These instants and the archived ones; one that is being archived is in both, and counts as active."""
        active = {instant.key for instant in self.instants}
        archive = archive.without(active)
        instants = sorted((*self.instants, *archive.instants), key=lambda instant: instant.key)
        unreadable = (*self.unreadable, *archive.unreadable)
        return replace(self, instants=tuple(instants), unreadable=unreadable, archive=archive)


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


def _is_candidate(layout: Layout, name: str) -> bool:
    """Whether a file can be meant for an instant: not Hadoop's checksum of one, nor Hudi's other files of layout 1."""
    return name[:1].isdigit() if layout is Layout.ONE else not (name.startswith(".") and name.endswith(".crc"))
