"""What a timeline shows: an immutable view of its instants, with filters. One listing; bodies only for `by_epoch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from timeline.decision import read_decision
from timeline.epoch import PLAN
from timeline.errors import FormatError
from timeline.fsspec_store import open_store
from timeline.history import History
from timeline.hudi import read_epoch_of
from timeline.instant import TIMELINE_FOLDER, Action, Instant, State, commit_requested, parse_file_name
from timeline.store import ObjectStore, Retry, read_or_none

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
    """

    instants: tuple[Instant, ...] = ()
    unreadable: tuple[str, ...] = ()
    unrequested: frozenset[str] = frozenset()
    modified_ms: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    store: ObjectStore | None = field(default=None, compare=False, repr=False)
    retry: Retry = field(default_factory=Retry, compare=False, repr=False)

    @classmethod
    def load(
        cls, store: ObjectStore | str, retry: Retry | None = None, *, storage: Mapping[str, Any] | None = None
    ) -> Timeline:
        """The timeline as it is now: one listing, however many instants there are.

        Args:
            store: the timeline's store, or the path or URL of the table that it belongs to.
            retry: bounds of retries.
            storage: with a URL: fsspec's options for it (credentials, endpoint).

        Raises:
            ConfigError: no store is known for the URL.
            StoreUnavailableError: it could not be listed.
        """
        opened = open_store(store, storage) if isinstance(store, str) else store
        bounds = retry or Retry()
        listed = bounds.call(lambda: opened.list(TIMELINE_FOLDER))
        modified_ms = {info.path.rpartition("/")[2]: info.modified_ms for info in listed}
        return replace(cls.from_names(iter(modified_ms)), modified_ms=modified_ms, store=opened, retry=bounds)

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

        return self._where(belongs)

    def history(self) -> History:
        """What the bodies of these instants say, and views of it; reads up to four objects for each: filter before.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        assert self.store is not None, "a view that was made of names has no bodies"
        return History.read(self.store, self.instants, self.retry, self.modified_ms)

    def to_arrow(self, view: str = "instants") -> pa.Table:
        """One view of the timeline as an Arrow table.

        Args:
            view: instants, epochs, offsets, files or rejected; columns are those of the rows in `timeline.history`.

        Raises:
            ValueError: no such view.
            StoreUnavailableError: the store does not answer.
        """
        from timeline.arrow import view_table

        return view_table(self.history(), view)

    def to_pandas(self, view: str = "instants") -> pd.DataFrame:
        """The same as a pandas data frame; see `to_arrow`."""
        frame: pd.DataFrame = self.to_arrow(view).to_pandas()
        return frame

    def find(self, time: str, action: Action = Action.COMMIT) -> Instant | None:
        """The instant of this time and action."""
        return next((instant for instant in self.instants if (instant.time, instant.action) == (time, action)), None)

    @property
    def latest_time(self) -> str | None:
        """The latest time that any instant bears, completion times included; new times must be later."""
        times = [instant.completion_time or instant.time for instant in self.instants]
        return max([*times, *(instant.time for instant in self.instants)], default=None)

    def _where(self, keep: Callable[[Instant], bool]) -> Timeline:
        return replace(self, instants=tuple(filter(keep, self.instants)))
