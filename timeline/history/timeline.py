"""Read-only view of a timeline: its instants, including those archived by Hudi, and tables of their bodies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from timeline.active import ActiveTimeline
from timeline.decision import read_decision
from timeline.epoch import PLAN
from timeline.history.entry import Entry, archived_entry, read_entry
from timeline.history.epochs import History
from timeline.history.html_views import timeline_html
from timeline.hudi.archive import Archive
from timeline.hudi.layout import read_epoch_of, read_layout
from timeline.instant import Action, Instant, commit_requested
from timeline.stores.base import ObjectStore, Retry, read_or_none
from timeline.stores.opening import open_store

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_DIGITS = 17


@dataclass(frozen=True)
class Timeline:
    """A timeline's instants, with filters, and all that is stored about them. Read-only; the protocol never uses it.

    Attributes:
        active: the instants, including the archived ones if the archive was read.
        archive: the archive with the bodies of archived instants; None if the archive was not read.
    """

    active: ActiveTimeline = field(default_factory=ActiveTimeline)
    archive: Archive | None = field(default=None, compare=False, repr=False)

    @classmethod
    def load(
        cls,
        store: ObjectStore | str | PathLike[str],
        retry: Retry | None = None,
        *,
        storage: Mapping[str, Any] | None = None,
        archived: bool = False,
    ) -> Timeline:
        """The current timeline; see `timeline.active.ActiveTimeline.load`.

        Args:
            store: the timeline's store, or the path or URL of its table.
            retry: retry bounds.
            storage: for a URL: fsspec's options (credentials, endpoint).
            archived: include the instants that Hudi has moved out of the active timeline. Reads each file of the
                archive once, and once more for the bodies.

        Raises:
            ConfigError: no store is known for the URL.
            StoreUnavailableError: the timeline could not be listed.
        """
        opened = open_store(os.fspath(store), storage) if isinstance(store, str | PathLike) else store
        bounds = retry or Retry()
        timeline = ActiveTimeline.load(opened, bounds)
        if not archived:
            return cls(timeline)
        layout = timeline.instants[0].layout if timeline.instants else read_layout(opened, bounds)
        return cls(timeline)._with_archive(Archive.load(opened, layout, bounds))

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.active)

    def __len__(self) -> int:
        return len(self.active)

    def _repr_html_(self) -> str:
        """Notebook view: the newest instants; reads no body."""
        return timeline_html(self.active)

    @property
    def instants(self) -> tuple[Instant, ...]:
        """The instants in order of their times, each in its furthest state."""
        return self.active.instants

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Files in the timeline folder that this version cannot parse as instants, and read errors of the archive."""
        return self.active.unreadable

    def where(self, keep: Callable[[Instant], bool]) -> Timeline:
        """Instants for which `keep` returns True."""
        return replace(self, active=self.active.where(keep))

    def pending(self) -> Timeline:
        """Instants that are not completed, oldest first."""
        return replace(self, active=self.active.pending())

    def completed(self) -> Timeline:
        """Completed instants."""
        return replace(self, active=self.active.completed())

    def by_action(self, *actions: Action) -> Timeline:
        """Instants of these actions."""
        return replace(self, active=self.active.by_action(*actions))

    def between(self, first: str, last: str) -> Timeline:
        """Instants requested from `first` to `last`, both included."""
        return self.where(lambda instant: first <= instant.time <= last)

    def by_epoch(self, epoch: int) -> Timeline:
        """One epoch's commit, pending or completed, and the completed rollbacks of its attempts.

        File names do not contain the epoch: this reads the epoch's decision, the plans of pending commits and the
        bodies of rollbacks, but no body of a completed commit. Committed offsets are in `timeline.chain.Chain`.
        """
        store, retry = self._store, self.active.retry
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
        """The history of these instants, with views as rows; reads up to four objects for each instant: filter first.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        archived = [instant for instant in self.instants if self.is_archived(instant)]
        active = [instant for instant in self.instants if not self.is_archived(instant)]
        history = History.read(self._store, active, self.active.retry, self.active.modified_ms)
        if self.archive is None or not archived:
            return history
        read = self.archive.read(archived)
        entries = {entry.instant: entry for entry in history.entries}
        entries |= {instant: archived_entry(read[instant]) for instant in archived}
        return History(tuple(entries[instant] for instant in self.instants))

    def entry(self, instant: Instant) -> Entry:
        """All that is stored about one active instant.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        return read_entry(self._store, instant, self.active.retry)

    def is_archived(self, instant: Instant) -> bool:
        """Whether an instant of this view is archived."""
        return self.archive is not None and instant in self.archive

    def to_arrow(self, view: str = "instants") -> pa.Table:
        """One view of the timeline as an Arrow table.

        Args:
            view: instants, epochs, offsets, files or rejected; for columns see the rows in `timeline.history.rows`.

        Raises:
            ValueError: the view is unknown.
            StoreUnavailableError: the store does not answer.
        """
        from timeline.history.arrow import view_table

        return view_table(self.history(), view)

    def to_pandas(self, view: str = "instants") -> pd.DataFrame:
        """One view as a pandas data frame; see `to_arrow`. Columns of integers stay integers if values are missing.

        Raises:
            ConfigError: pandas is not installed.
        """
        from timeline.history.arrow import view_frame

        return view_frame(self.history(), view)

    def shares(self, size: int) -> Iterator[Timeline]:
        """The timeline in parts of at most `size` instants, each with only the data it needs, to be sent elsewhere.

        At least one part; `unreadable` is empty in every part.
        """
        by_time: dict[str, dict[str, int]] = {}
        for name, modified_ms in self.active.modified_ms.items():
            by_time.setdefault(name[:_DIGITS].partition(".")[0], {})[name] = modified_ms
        for first in range(0, max(1, len(self.instants)), size):
            instants = self.instants[first : first + size]
            modified = {name: ms for each in instants for name, ms in by_time.get(each.time, {}).items()}
            archive = self.archive.only(instants) if self.archive is not None else None
            share = replace(self.active, instants=instants, unreadable=(), modified_ms=modified)
            yield Timeline(share, archive)

    @property
    def _store(self) -> ObjectStore:
        assert self.active.store is not None, "a view that was made of names has no bodies"
        return self.active.store

    def _with_archive(self, archive: Archive) -> Timeline:
        """This timeline with the archived instants; an instant in both, while Hudi archives it, counts as active."""
        active = {instant.key for instant in self.instants}
        archive = archive.without(active)
        instants = sorted((*self.instants, *archive.instants), key=lambda instant: instant.key)
        unreadable = (*self.unreadable, *archive.unreadable)
        whole = replace(self.active, instants=tuple(instants), unreadable=unreadable)
        return Timeline(whole, archive)
