"""Frames of `tideline watch`: each reads one listing, the writer's record and the bodies that are new.

::

    timeline ── list ──┐
    new bodies ── get ─┼─► Watcher.look() ─► Frame ─► watch_screen: a picture of it, made by a pure function
    writer's record ───┤
    LagProbe ──────────┘   asks the source in a thread of its own: the source may be slow, or not answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from ingest.driver.build import TimelineHandle
from ingest.reports.instants import InstantView, shown_instants
from ingest.reports.offsets import ShardState, SourceEnds, shard_state, source_ends
from ingest.sources.base import ShardEnd, Source, Unit
from ingest.sources.lag import Lag
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain
from timeline.decision import read_decision
from timeline.errors import TidelineError
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.history.rows import EpochRow
from timeline.history.timeline import Timeline
from timeline.instant import Action, Instant
from timeline.lease import LeaseObserver, LeaseState

NEWEST = 40
"""Instants that are read, beside what is pending."""

ROLLBACKS = 5
"""Rollbacks that are shown, however old."""

LAG_EVERY_S = 10.0
"""Least seconds between two measurements of the lag."""
MOST_BEHIND = 3
"""Shards named in a frame, those furthest behind."""


@dataclass(frozen=True)
class LagReport:
    """The lag of a job at one moment, or why it is not known.

    Attributes:
        at: when the source answered, UTC.
        unit: what offsets count; None where the source cannot say.
        lag: the lag; None where it is not known.
        shards: number of shards.
        lost: shards that lost records before they were read.
        waits: `ShardEnd.note` by shard: what exists and does not count yet.
        unknown: why the lag is not known; None where it is.
    """

    at: datetime
    unit: Unit | None
    lag: Lag | None = None
    shards: int = 0
    lost: int = 0
    waits: tuple[tuple[str, str], ...] = ()
    unknown: str | None = None


@dataclass(frozen=True)
class Writer:
    """The timeline's latest writer.

    Attributes:
        generation: its number.
        process: its process.
        job: its job's name.
        lease: state of its lease.
        has_beaten: whether a heartbeat was observed, so that it certainly lives.
        is_released: whether it has released its lease.
        silent_s: seconds since its record changed.
        ttl_s: silence in seconds after which it counts as dead.
        ended_by: the error that ended it; "" where none did, or none is recorded.
    """

    generation: int
    process: str
    job: str
    lease: LeaseState
    has_beaten: bool
    is_released: bool
    silent_s: float
    ttl_s: float
    ended_by: str = ""


@dataclass(frozen=True)
class IngestRate:
    """Rates over the latest committed epochs and the pauses between them.

    Attributes:
        epochs: number of epochs.
        over_s: seconds from the first epoch's request to the last one's completion.
        rows_per_s: accepted rows per second.
        bytes_per_s: bytes written to all targets per second.
    """

    epochs: int
    over_s: float
    rows_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Frame:
    """State of a job at one moment.

    Attributes:
        at: time of the frame, UTC, by this machine's clock.
        job: the job's name.
        timeline: its URL.
        seen_at: when storage last answered, UTC; earlier than `at` while it does not; None where it never did.
        problem: the error of storage; None where it answered.
        instants: number of active instants.
        epochs: the newest epochs, oldest first.
        pending: pending instants, oldest first.
        rollbacks: the newest rollbacks, newest first.
        rate: None before the first commit.
        writer: None before the first writer.
        lag: None before the source's first answer.
        warning: why a start of the job would be refused; "" where it would not.
    """

    at: datetime
    job: str
    timeline: str
    seen_at: datetime | None = None
    problem: str | None = None
    instants: int = 0
    epochs: tuple[EpochRow, ...] = ()
    pending: tuple[InstantView, ...] = ()
    rollbacks: tuple[InstantView, ...] = ()
    rate: IngestRate | None = None
    writer: Writer | None = None
    lag: LagReport | None = None
    warning: str = ""


def now_utc() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


class LagSource(Protocol):
    """Reports the lag of a job."""

    def latest(self) -> LagReport | None:
        """The latest report; never waits."""


class LagMeter:
    """Measures the lag: reads decisions newer than the last measurement, and the ends of the source's shards."""

    def __init__(self, opened: TimelineHandle, source: Source | None, now: Callable[[], datetime] = now_utc) -> None:
        self._opened = opened
        self._source = source
        self._now = now
        self._chain: Chain | None = None

    def latest(self) -> LagReport:
        """Measure now; a source or store that does not answer is part of the report."""
        try:
            self._chain = self._advanced(self._chain)
            said = source_ends(self._source, self._chain.positions)
        except (TidelineError, OSError) as error:
            said = SourceEnds(None, unknown=str(error), is_silent=True)
        at = self._now()
        if said.ends is None or said.unit is None or self._chain is None:
            return LagReport(at, said.unit, unknown=said.unknown)
        return _reported(at, Lag.of(said.unit, said.ends), said.ends, self._chain)

    def _advanced(self, chain: Chain | None) -> Chain:
        store, retry = self._opened.store, self._opened.retry
        if chain is None:
            return load_chain(store, ActiveTimeline.load(store, retry), retry)
        while (decision := read_decision(store, chain.next_epoch, retry)) is not None:
            chain = chain.advanced(decision)
        return chain


def _reported(at: datetime, lag: Lag, ends: Mapping[str, ShardEnd], chain: Chain) -> LagReport:
    states = [shard_state(chain.positions.get(shard), end) for shard, end in ends.items()]
    notes = [(shard, end.note) for shard, end in ends.items() if end.note and end.newest is not None]
    return LagReport(at, lag.unit, lag, len(ends), states.count(ShardState.LOST), tuple(notes[:MOST_BEHIND]))


class Watcher:
    """Makes frames; each reads one listing, the writer's record, and the bodies that are new.

    Args:
        opened: the job.
        lag: reports its lag.
        observer: observes its writer.
        now: clock for ages.
        warning: see `Frame`.
    """

    def __init__(
        self,
        opened: TimelineHandle,
        lag: LagSource,
        *,
        observer: LeaseObserver | None = None,
        now: Callable[[], datetime] = now_utc,
        warning: str = "",
    ) -> None:
        self._warning = warning
        self._opened = opened
        self._lag = lag
        self._observer = observer or LeaseObserver(opened.store, opened.retry)
        self._now = now
        self._entries: dict[str, Entry] = {}
        self._last = Frame(now(), opened.config.name, opened.store.url)

    def look(self) -> Frame:
        """The next frame; where storage does not answer, the last frame with the error."""
        try:
            self._last = self._look()
        except (TidelineError, OSError) as error:
            self._last = replace(self._last, at=self._now(), problem=str(error))
        return self._last

    def _look(self) -> Frame:
        opened = self._opened
        timeline = ActiveTimeline.load(opened.store, opened.retry)
        newest = timeline.instants[-NEWEST:]
        rollbacks = timeline.by_action(Action.ROLLBACK).instants[-ROLLBACKS:]
        entries = self._read(timeline, sorted({*newest, *timeline.pending(), *rollbacks}, key=_order))
        shown = shown_instants(History(entries))
        epochs = tuple(History(entries).epochs())
        at = self._now()
        return Frame(
            at,
            opened.config.name,
            opened.store.url,
            seen_at=at,
            instants=len(timeline),
            epochs=epochs,
            pending=tuple(each for each in shown if each.state != "completed"),
            rollbacks=tuple(each for each in reversed(shown) if each.action == Action.ROLLBACK.value)[:ROLLBACKS],
            rate=rate_of(epochs),
            writer=self._writer(),
            lag=self._lag.latest(),
            warning=self._warning,
        )

    def _read(self, timeline: ActiveTimeline, instants: Sequence[Instant]) -> tuple[Entry, ...]:
        """Entries of these instants; a completed instant never changes and is read once."""
        unknown = [instant for instant in instants if instant.file_name not in self._entries]
        read = Timeline(replace(timeline, instants=tuple(unknown))).history().entries
        found = self._entries | {entry.instant.file_name: entry for entry in read}
        self._entries = {instant.file_name: found[instant.file_name] for instant in instants if not instant.is_pending}
        return tuple(found[instant.file_name] for instant in instants)

    def _writer(self) -> Writer | None:
        lease = self._observer.look()
        record = self._observer.writer
        if record is None:
            return None
        ttl_s = record.ttl_ms / 1000
        return Writer(
            record.generation,
            str(record.process),
            record.job,
            lease,
            self._observer.has_beaten,
            record.released,
            max(0.0, ttl_s - self._observer.remaining_s()),
            ttl_s,
            record.ended_by or "",
        )


def _order(instant: Instant) -> tuple[str, str]:
    return instant.time, instant.action.value


def rate_of(epochs: Sequence[EpochRow], most: int = 10) -> IngestRate | None:
    """Rates over the newest committed epochs; None where there are none."""
    done = [epoch for epoch in epochs if epoch.state == "committed" and epoch.completed and epoch.requested][-most:]
    begins = [epoch.requested for epoch in done if epoch.requested is not None]
    ends = [epoch.completed for epoch in done if epoch.completed is not None]
    if not begins or not ends:
        return None
    over_s = max(1e-3, (max(ends) - min(begins)).total_seconds())
    rows, size = sum(epoch.rows or 0 for epoch in done), sum(epoch.bytes or 0 for epoch in done)
    return IngestRate(len(done), over_s, rows / over_s, size / over_s)
