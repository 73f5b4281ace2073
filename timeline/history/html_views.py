"""A timeline and its instants as HTML, for notebooks."""

from __future__ import annotations

from datetime import UTC, datetime

from timeline.active import ActiveTimeline
from timeline.errors import FormatError
from timeline.html import Html, element, mark, moment, table
from timeline.instant import Instant, parse_time, utc_of
from timeline.units import count

MOST_ROWS = 20
"""Most instants shown in a notebook, the newest ones."""


def timeline_html(timeline: ActiveTimeline) -> Html:
    """Number of instants and of pending ones, and the newest instants, from file names alone; reads no body."""
    instants = timeline.instants
    pending = sum(instant.is_pending for instant in instants)
    words = f"{count(len(instants), 'instant')}, {pending:,} pending"
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


def instant_html(instant: Instant) -> Html:
    """One line for an instant, from its file name alone."""
    requested_ms = parse_time(instant.time)
    requested = moment(datetime.fromtimestamp(requested_ms / 1000, UTC))
    took = ""
    if instant.completion_time is not None:
        took = f", completed {(parse_time(instant.completion_time) - requested_ms) / 1000:.1f} s later"
    time = element("code", instant.time)
    return element(
        "div", mark(instant.state.value), f" {instant.action.value} ", time, f", requested {requested}{took}"
    )


def _took(instant: Instant) -> str:
    start, end = _moment(instant.time), _moment(instant.completion_time or "")
    return "" if start is None or end is None else f"{(end - start).total_seconds():.1f}"


def _moment(time: str) -> datetime | None:
    try:
        return utc_of(time)
    except (FormatError, OverflowError):
        return None
