from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from ingest.recovery import RecoveryStep, Settled, StepKind
from tests.unit.look import made_histories as made
from tests.unit.look.made_reports import pending, report
from timeline.html import Html, element, facts_table, moment, table, text
from timeline.instant import Action, Instant, State, commit_completed, commit_requested
from timeline.store import MemoryStore
from timeline.view import Timeline

HOSTILE = "<script>alert(1)</script> \"double\" 'single' & \x00\x1b[31m\ud800"

VOID = {"meta", "img", "br", "link"}


class WellFormed(HTMLParser):
    """Fails where an element is not closed, or another one is."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(page: str) -> list[str]:
    """Names of all elements of well-formed HTML."""
    parser = WellFormed()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser.seen


def test_a_string_is_always_text() -> None:
    made_of = element("p", HOSTILE, title=HOSTILE)
    assert elements(made_of) == ["p"]
    assert "&lt;script&gt;" in made_of
    assert "&quot;double&quot; &#x27;single&#x27; &amp;" in made_of
    made_of.encode("utf-8")
    assert not {"\x00", "\x1b"} & set(made_of)


def test_html_is_taken_as_it_is_and_only_that() -> None:
    assert element("b", element("i", "x"), Html("<br>")) == "<b><i>x</i><br></b>"
    assert text("<br>") == "&lt;br&gt;"
    # What is put together with a plain string is a plain string again.
    assert text(Html("<br>") + HOSTILE).startswith("&lt;br&gt;")


def test_attributes_have_names_of_html() -> None:
    assert element("p", class_="a", aria_label="b", id=None) == '<p class="a" aria-label="b"></p>'
    assert element("img", alt="x") == '<img alt="x">'


def test_a_table_keeps_empty_cells_and_facts_leave_them_out() -> None:
    assert table(("a", "b"), [(None, 0)]).count("<td") == 2
    assert facts_table([("a", None), ("b", ""), ("c", 0)]).count("<tr>") == 1


@pytest.mark.parametrize(
    ("instant", "said"),
    [
        (commit_requested("20260301090000000"), "○ requested"),
        (commit_completed("20260301090000000", "20260301090002500"), "completed 2.5 s later"),
        (Instant("20260301090000000", Action.ROLLBACK, State.INFLIGHT), "rollback"),
    ],
)
def test_an_instant_is_one_line(instant: Instant, said: str) -> None:
    line = instant._repr_html_()
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
    shown = Timeline._repr_html_(Timeline.load(store))
    elements(shown)
    assert "31 instants, 1 pending" in shown
    assert shown.count("<tr>") == 21
    assert "11 older instants not shown" in shown
    assert "20260301090029000" in shown
    assert "20260301090000000" not in shown
    assert "not read: &lt;b&gt;strange" in shown


def test_a_timeline_of_names_alone_or_of_nothing_is_shown_as_well() -> None:
    assert "0 instants, 0 pending" in Timeline()._repr_html_()
    assert "1 instant, 1 pending" in Timeline._repr_html_(
        Timeline.from_names(iter(["20260301100000000.commit.requested"]))
    )


def test_an_epoch_says_what_was_decided_by_whom_and_why() -> None:
    rows = made.eventful().epochs()
    undone = rows[5]._repr_html_()
    elements(undone)
    for words in ("epoch 5", "✕ rolled back", "not prepared", made.RESCUER, "rollback, 2026-03-01 09:00:15 UTC"):
        assert words in undone
    assert "rows" not in undone, "nothing tells how many there would have been"
    assert "● committed" in rows[0]._repr_html_()
    assert "○ pending" in rows[7]._repr_html_()


def test_texts_of_an_epoch_are_escaped() -> None:
    row = replace(made.eventful().epochs()[5], reason=HOSTILE, by=HOSTILE)
    assert "script" not in elements(row._repr_html_())


def test_recovery_says_what_it_found_and_what_became_of_it() -> None:
    evidence, step = pending(StepKind.CLAIM_ROLLBACK, HOSTILE)
    recovery = report(found=((evidence, step),)).recovery
    assert recovery is not None
    shown = replace(recovery, settled=[Settled(evidence, RecoveryStep(StepKind.ROLLBACK, "gone"), True)])._repr_html_()
    assert "script" not in elements(shown)
    assert "claim rollback" in shown
    assert "generation 2" in shown
    assert "✕ rolled back" in shown
    assert "nothing is pending" in replace(recovery, found=())._repr_html_()


@pytest.mark.parametrize("kind", StepKind)
def test_every_step_says_why(kind: StepKind) -> None:
    shown = RecoveryStep(kind, "because")._repr_html_()
    elements(shown)
    assert kind.value in shown
    assert "because" in shown
    evidence, step = pending(kind)
    settled = Settled(evidence, step, kind not in (StepKind.WAIT, StepKind.HALT))._repr_html_()
    assert evidence.instant in settled
    assert ("rolled back" in settled) == (kind is StepKind.ROLLBACK)


def test_moments_are_in_utc() -> None:
    assert moment(datetime(2026, 3, 1, 9, tzinfo=UTC)) == "2026-03-01 09:00:00 UTC"
    assert moment(None) == ""
