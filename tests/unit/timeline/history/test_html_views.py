from __future__ import annotations

import pytest

from tests.unit.timeline.well_formed import elements
from timeline.active import ActiveTimeline
from timeline.history.html_views import instant_html, timeline_html
from timeline.history.timeline import Timeline
from timeline.instant import Action, Instant, State, commit_completed, commit_requested
from timeline.stores.memory import MemoryStore


@pytest.mark.parametrize(
    ("instant", "said"),
    [
        (commit_requested("20260301090000000"), "○ requested"),
        (commit_completed("20260301090000000", "20260301090002500"), "completed 2.5 s later"),
        (Instant("20260301090000000", Action.ROLLBACK, State.INFLIGHT), "rollback"),
    ],
)
def test_an_instant_is_one_line(instant: Instant, said: str) -> None:
    line = instant_html(instant)
    elements(line)
    assert said in line
    assert "2026-03-01 09:00:00 UTC" in line


def test_a_timeline_shows_its_newest_instants_and_reads_no_body() -> None:
    class Bodiless(MemoryStore):
        def get(self, path: str) -> bytes:
            raise AssertionError(f"{path} was read")

    store = Bodiless()
    for number in range(30):
        time = f"202603010900{number:02}000"
        store.put(f".hoodie/timeline/{time}_{time}.commit", b"body")
    store.put(".hoodie/timeline/20260301100000000.commit.requested", b"body")
    store.put(".hoodie/timeline/<b>strange", b"body")
    shown = Timeline.load(store)._repr_html_()
    elements(shown)
    assert "31 instants, 1 pending" in shown
    assert shown.count("<tr>") == 21
    assert "11 older instants not shown" in shown
    assert "20260301090029000" in shown
    assert "20260301090000000" not in shown
    assert "not read: &lt;b&gt;strange" in shown


def test_a_timeline_of_names_alone_or_of_nothing_is_shown_as_well() -> None:
    assert "0 instants, 0 pending" in Timeline()._repr_html_()
    assert "1 instant, 1 pending" in timeline_html(
        ActiveTimeline.from_names(iter(["20260301100000000.commit.requested"]))
    )
