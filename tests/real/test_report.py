"""The report page in a real browser: its visible content."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ingest.protocol.recovery import StepKind
from ingest.reports.pictures.palette import PHASES, VERMILION, SpanPhase
from ingest.reports.report import JobReport
from ingest.reports.report_page import page
from tests.conftest import or_absent
from tests.real import browser
from tests.real.browser import Browser, Seen
from tests.real.toolchain import MissingToolchainError
from tests.unit.ingest.reports import made_histories as made
from tests.unit.ingest.reports.made_reports import pending, report, shard

Look: TypeAlias = Callable[..., Seen]

pytestmark = pytest.mark.real

HOSTILE = """<script>document.title='taken'</script><img src="http://outside.invalid/x.png" onerror='x'>"&'"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    with or_absent():
        program = browser.ensure()
    return Browser(program, tmp_path_factory.mktemp("browser"))


@pytest.fixture
def look(chromium: Browser, tmp_path: Path) -> Look:
    """Loads a page, or the page of a report; `only` names the one picture to keep."""

    def at(what: str | JobReport, *, only: str | None = None, width: int = 1200, dark: bool = False) -> Seen:
        text = page(what) if isinstance(what, JobReport) else what
        if only is not None:
            text = re.sub(rf'<figure><img id="picture-(?!{only}").*?</figure>', "", text, flags=re.DOTALL)
        file = tmp_path / "report.html"
        file.write_text(text)
        return chromium.look(file, width=width, dark=dark)

    return at


def area(seen: Seen, colour: str) -> int:
    """Number of pixels of a screenshot that have about this colour."""
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((np.abs(shot(seen) - wanted).max(axis=2) < 14).sum())


def shot(seen: Seen) -> NDArray[np.int_]:
    return np.asarray(Image.open(seen.screenshot).convert("RGB")).astype(int)


def with_rollbacks(*at: int) -> JobReport:
    entries = made.steady(10, every_ms=8000)
    for epoch in at:
        entries[epoch] = made.rolled_back(epoch, made.START_MS + epoch * 8000)
    return report(*entries)


def test_a_rollback_shows_its_colour_in_proportion_and_a_page_without_one_does_not(look: Look) -> None:
    none, one, four = (area(look(with_rollbacks(*at), only="gantt"), VERMILION) for at in ((), (2,), (2, 3, 4, 5)))
    assert none == 0
    assert one > 1000
    assert 2.5 < four / one < 4.5


def test_states_take_the_room_that_they_took_in_time(look: Look) -> None:
    entries = [made.committed(epoch, made.START_MS + epoch * 3000) for epoch in range(10)]
    write, decide = PHASES[SpanPhase.WRITE].colour, PHASES[SpanPhase.DECIDE].colour
    before = look(report(*entries), only="gantt")
    # Nothing but the wait for the decision takes longer now.
    slow = made.Pace(write_ms=1500, decide_ms=1200, apply_ms=400)
    entries = [made.committed(epoch, made.START_MS + epoch * 3000, pace=slow) for epoch in range(10)]
    after = look(report(*entries), only="gantt")
    assert area(before, write) > 5000
    assert 2 < (area(after, decide) / area(after, write)) / (area(before, decide) / area(before, write)) < 10


def test_the_page_shows_what_it_says(look: Look) -> None:
    seen = look(report(*made.eventful().entries, found=(pending(StepKind.CLAIM_ROLLBACK),), released=False))
    for words in (
        "Something has to be done",
        "tideline recover job.yaml",
        "Epoch 6 is the last one that every target has",
        "claim rollback",
        "malformed JSON",
        "not prepared",
        "events-0",
    ):
        assert words in seen.dom, words
    alternatives = re.findall(r'<img id="picture-\w+" alt="([^"]+)"', seen.dom)
    assert len(alternatives) == 5
    assert "1 rolled back, 1 pending" in alternatives[0]
    # All pictures exist: five white cards with content.
    assert area(seen, PHASES[SpanPhase.WRITE].colour) > 3000
    assert area(seen, VERMILION) > 1000


def test_nothing_is_asked_for_outside(look: Look) -> None:
    # This page sends a request: the proxy records it.
    stranger = '<!DOCTYPE html><title>x</title><img src="http://outside.invalid/x.png">'
    assert any("outside.invalid" in line for line in look(stranger).asked)
    assert look(report(*made.eventful().entries)).asked == ()


def test_what_comes_from_storage_is_never_markup(look: Look) -> None:
    entries = (
        made.committed(0, made.START_MS, rejected=5, why_rejected=HOSTILE, by=HOSTILE, reason=HOSTILE),
        made.rolled_back(1, made.START_MS + 3000, reason=HOSTILE),
    )
    hostile = report(
        *entries,
        shards=(shard(HOSTILE, 7, note=HOSTILE),),
        found=(pending(StepKind.HALT, HOSTILE),),
        unknown=(HOSTILE,),
        unreadable=(HOSTILE,),
        job=HOSTILE,
    )
    seen = look(hostile)
    assert "taken" not in re.findall(r"<title>(.*?)</title>", seen.dom, re.DOTALL)
    assert "<script" not in seen.dom
    assert "<img src" not in seen.dom
    assert seen.dom.count("&lt;script&gt;") > 6
    assert seen.asked == ()


def test_it_is_dark_in_the_dark_and_its_pictures_stay_white(look: Look) -> None:
    wanted = report(*made.steady(5))
    light, dark = look(wanted), look(wanted, dark=True)
    assert shot(light)[5, 5].min() > 240
    assert shot(dark)[5, 5].max() < 60
    assert area(dark, PHASES[SpanPhase.WRITE].colour) == pytest.approx(
        area(light, PHASES[SpanPhase.WRITE].colour), rel=0.1
    )


def test_it_fits_a_phone(look: Look) -> None:
    pictures = shot(look(report(*made.eventful().entries), width=520))
    # Wide content scrolls inside its own box: nothing is cut off at the right edge.
    assert pictures[:, -4:].min() > 200


def test_a_machine_without_a_browser_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolchainError, match="apt-get install chromium"):
        browser.ensure()
