"""A timeline and an epoch as HTML, for notebooks. Instants show themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from timeline.errors import FormatError
from timeline.html import Html, element, facts_table, mark, moment, table
from timeline.instant import Instant, parse_time
from timeline.units import count

if TYPE_CHECKING:
    from timeline.rows import EpochRow
    from timeline.view import Timeline

MOST_ROWS = 20
"""Instants that a timeline shows in a notebook, the newest."""


def timeline_html(timeline: Timeline) -> Html:
    """How many instants there are in which state, and the newest ones, from their file names alone; reads no body."""
    instants = timeline.instants
    pending = sum(instant.is_pending for instant in instants)
    words = f"{len(instants):,} instant{'' if len(instants) == 1 else 's'}, {pending:,} pending"
    place = f" at {timeline.store.url}" if timeline.store is not None else ""
    head = element("div", element("b", f"Timeline{place}: "), words)
    unread = [element("div", f"not read: {name}") for name in timeline.unreadable[:MOST_ROWS]]
    if not instants:
        return element("div", head, *unread)
    rows = [
        (
            element("code", each.time),
            each.action.value,
            mark(each.state.value),
            moment(_moment(each.time)),
            _took(each),
        )
        for each in instants[-MOST_ROWS:]
    ]
    left = len(instants) - len(rows)
    older = element("div", f"{count(left, 'older instant')} not shown; to_pandas() has all of them") if left else None
    heads = ("instant", "action", "state", "requested", "seconds")
    return element("div", head, table(heads, rows), older, *unread)


def epoch_html(row: EpochRow) -> Html:
    """One epoch: what was decided, by whom, why, and what came of it."""
    amounts = (
        ("rows", row.rows),
        ("dropped", row.dropped),
        ("rejected", row.rejected),
        ("lost", row.lost),
        ("files", row.files),
        ("bytes", row.bytes),
    )
    facts: list[tuple[str, object]] = [
        ("state", mark(row.state)),
        ("instant", element("code", row.instant)),
        (
            "decided",
            None if row.outcome is None else f"{row.outcome}{f', {moment(row.decided)}' if row.decided else ''}",
        ),
        ("why", row.reason),
        ("by", None if row.by is None else f"{row.by}, generation {row.generation}"),
        ("requested", moment(row.requested)),
        ("prepared", moment(row.prepared)),
        ("completed", moment(row.completed)),
        *((name, None if amount is None else f"{amount:,}") for name, amount in amounts),
    ]
    return element("div", element("b", f"epoch {row.epoch}"), facts_table(facts))


def _took(instant: Instant) -> str:
    start, end = _moment(instant.time), _moment(instant.completion_time or "")
    return "" if start is None or end is None else f"{(end - start).total_seconds():.1f}"


def _moment(time: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(parse_time(time) / 1000, UTC)
    except (FormatError, OverflowError):
        return None
