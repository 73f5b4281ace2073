"""Data of a Gantt chart: each instant as a bar of consecutive phases."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.reports.pictures.palette import SpanPhase
from timeline.errors import FormatError
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.history.rows import InstantRow
from timeline.instant import Action, parse_time

TIDELINE = "tideline"


class InstantOutcome(enum.Enum):
    """Outcome of an instant, as the charts mark it."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "pending"
    OTHER = "other"


@dataclass(frozen=True)
class Span:
    """One phase of an instant.

    Attributes:
        phase: the phase.
        start: its start, UTC.
        end: its end, UTC; None while the phase lasts.
    """

    phase: SpanPhase
    start: datetime
    end: datetime | None


@dataclass(frozen=True)
class Bar:
    """One instant from its request to its end.

    Attributes:
        instant: its time on the timeline; for a rollback, the time of the commit that was undone.
        label: its short name.
        fate: its outcome.
        spans: its phases, in order; at least one.
        note: human-readable remark; empty for an ordinary commit.
    """

    instant: str
    label: str
    fate: InstantOutcome
    spans: tuple[Span, ...]
    note: str = ""

    @property
    def start(self) -> datetime:
        """Start of the first phase."""
        return self.spans[0].start

    @property
    def end(self) -> datetime | None:
        """End of the last phase; None while the instant is pending."""
        return self.spans[-1].end

    @property
    def seconds(self) -> float | None:
        """Duration from start to end; None while the instant is pending."""
        return None if self.end is None else (self.end - self.start).total_seconds()


def bars(history: History) -> list[Bar]:
    """A bar for each instant, in the order of their starts; instants without a request time are left out."""
    found = [
        bar
        for entry, row in zip(history.entries, history.instants(), strict=True)
        if (bar := _bar(entry, row)) is not None
    ]
    return sorted(found, key=lambda bar: bar.start)


def newest(all_bars: Sequence[Bar], most: int) -> list[Bar]:
    """At most `most` bars, in order: pending ones are kept first, then rollbacks, then the newest.

    Rollbacks take at most a third of the room, so that committed instants are shown too.
    """
    if len(all_bars) <= most:
        return list(all_bars)
    pending = [bar for bar in all_bars if bar.fate is InstantOutcome.PENDING][-most:]
    rolled_back = [bar for bar in all_bars if bar.fate is InstantOutcome.ROLLED_BACK][-max(1, most // 3) :]
    kept = list(pending)
    for bar in (*reversed(rolled_back), *reversed(all_bars)):
        if len(kept) < most and bar not in kept:
            kept.append(bar)
    return sorted(kept, key=lambda bar: bar.start)


def _bar(entry: Entry, row: InstantRow) -> Bar | None:
    if row.requested is None:
        return None
    if entry.instant.action is Action.ROLLBACK:
        return _rollback(entry, row, row.requested)
    epoch = f"epoch {row.epoch}" if row.epoch is not None else row.action
    if row.writer != TIDELINE:
        note = "" if row.completed else "pending"
        fate = InstantOutcome.OTHER if row.completed else InstantOutcome.PENDING
        return Bar(row.time, row.action, fate, (Span(SpanPhase.OTHER, row.requested, row.completed),), note)
    spans = tuple(_phases(row, row.requested))
    if row.completed is None:
        return Bar(row.time, epoch, InstantOutcome.PENDING, spans, _pending_note(row))
    is_claimed = entry.decision is not None and entry.plan is not None and entry.decision.by != entry.plan.writer
    note = f"finished by {entry.decision.by}" if is_claimed and entry.decision is not None else ""
    return Bar(row.time, epoch, InstantOutcome.COMMITTED, spans, note)


def _pending_note(row: InstantRow) -> str:
    if row.outcome is not None:
        return f"pending, decided: {row.outcome}"
    return "pending, prepared" if row.prepared or row.rows is not None else "pending, not prepared"


def _phases(row: InstantRow, requested: datetime) -> Iterator[Span]:
    """Phases of an instant: each ends where the next one begins; moments that are not recorded are skipped."""
    since = requested
    # A store that tells no times of its objects tells none of the manifest.
    decided = SpanPhase.DECIDE if row.prepared is not None else SpanPhase.WRITE
    reached = ((SpanPhase.WRITE, row.prepared), (decided, row.decided), (SpanPhase.APPLY, row.completed))
    for phase, moment in reached:
        if moment is not None and not (row.completed is None and phase is SpanPhase.APPLY):
            # Two clocks (the store's and the writer's) may disagree by a little: no phase goes backwards.
            until = max(since, moment if row.completed is None else min(moment, row.completed))
            yield Span(phase, since, until)
            since = until
    if row.completed is None:
        yield Span(SpanPhase.OPEN, since, None)


def _rollback(entry: Entry, row: InstantRow, requested: datetime) -> Bar:
    """Bar from the request of the undone commit to the end of its rollback."""
    reason = entry.rollback.reason if entry.rollback else entry.extra.get("tideline.reason", "")
    gone = next(iter(entry.undone), "")
    since = min(_moment(gone) or requested, requested)
    label = f"epoch {row.epoch}" if row.epoch is not None else "rollback"
    if row.completed is None:
        spans: tuple[Span, ...] = (Span(SpanPhase.GIVEN_UP, since, requested), Span(SpanPhase.OPEN, requested, None))
        return Bar(gone or row.time, label, InstantOutcome.PENDING, spans, f"rollback pending: {reason}".rstrip(": "))
    spans = (Span(SpanPhase.GIVEN_UP, since, max(since, row.completed)),)
    return Bar(gone or row.time, label, InstantOutcome.ROLLED_BACK, spans, f"rolled back: {reason}".rstrip(": "))


def _moment(time: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(parse_time(time) / 1000, UTC)
    except FormatError:
        return None
