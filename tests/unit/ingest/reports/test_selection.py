"""Selection of instants, and lookup of one instant by the beginning of its time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ingest.reports.selection import Selection, find_instant, parse_since, select
from timeline.active import ActiveTimeline
from timeline.errors import ConfigError
from timeline.history.timeline import Timeline
from timeline.instant import Action, parse_time

NOW = "20260301101530123"
NAMES = (
    "20260301090000000_20260301090500000.commit",
    "20260301091000000_20260301091000001.rollback",
    "20260301100000000.commit.requested",
    "20260301100000000.inflight",
)


def times(timeline: Timeline) -> Sequence[str]:
    return [instant.time for instant in timeline]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2h", "20260301081530123"),
        ("90 s", "20260301101400123"),
        ("3d", "20260226101530123"),
        ("1.5h", "20260301084530123"),
        ("2026-03-01", "20260301000000000"),
        ("2026-03-01T10:15", "20260301101500000"),
        ("2026-03-01T10:15:30.120Z", "20260301101530120"),
        ("2026-03-01T10:15+02:00", "20260301081500000"),
        ("20260301", "20260301000000000"),
        ("20260301101530", "20260301101530000"),
        (NOW, NOW),
        ("999999d", "19700101000000000"),
    ],
)
def test_since_is_an_age_a_moment_or_an_instant_time(text: str, time: str) -> None:
    assert parse_since(text, parse_time(NOW)) == time


@pytest.mark.parametrize("text", ["", "yesterday", "2 parsecs", "2026", "20261399", "-1h", "2026-13-01", "\u0661h"])
def test_since_that_is_none_of_these_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed are an age \(30m, 2h, 3d\)"):
        parse_since(text, parse_time(NOW))


def test_since_counts_from_when_something_happened() -> None:
    timeline = Timeline(ActiveTimeline.from_names(iter(NAMES)))
    chosen, _ = select(timeline, Selection(since="20260301090400000"))
    assert times(chosen) == list(times(timeline)), "the first one was requested before, and completed since"
    chosen, _ = select(timeline, Selection(since="20260301090500001"))
    assert times(chosen) == list(times(timeline))[1:]


def test_the_limit_leaves_out_the_oldest_and_counts_them() -> None:
    timeline = Timeline(ActiveTimeline.from_names(iter(NAMES)))
    chosen, hidden = select(timeline, Selection(limit=1))
    assert (times(chosen), hidden) == (["20260301100000000"], 2)
    chosen, hidden = select(timeline, Selection(actions=(Action.ROLLBACK,), limit=1))
    assert (times(chosen), hidden) == (["20260301091000000"], 0)


def test_an_ambiguous_beginning_names_what_it_may_mean() -> None:
    timeline = Timeline(ActiveTimeline.from_names(iter(NAMES)))
    with pytest.raises(ConfigError, match=r"2 instants begin so .20260301090000000, 20260301091000000.; give more"):
        find_instant(timeline, "2026030109")
    assert find_instant(timeline, "20260301091").action is Action.ROLLBACK
