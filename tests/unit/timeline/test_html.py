from __future__ import annotations

from datetime import UTC, datetime

from tests.unit.timeline.well_formed import HOSTILE, elements
from timeline.html import Html, element, facts_table, moment, table, text


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
    # Html joined with a plain string is a plain string again.
    assert text(Html("<br>") + HOSTILE).startswith("&lt;br&gt;")


def test_attributes_have_names_of_html() -> None:
    assert element("p", class_="a", aria_label="b", id=None) == '<p class="a" aria-label="b"></p>'
    assert element("img", alt="x") == '<img alt="x">'


def test_a_table_keeps_empty_cells_and_facts_leave_them_out() -> None:
    assert table(("a", "b"), [(None, 0)]).count("<td") == 2
    assert facts_table([("a", None), ("b", ""), ("c", 0)]).count("<tr>") == 1


def test_moments_are_in_utc() -> None:
    assert moment(datetime(2026, 3, 1, 9, tzinfo=UTC)) == "2026-03-01 09:00:00 UTC"
    assert moment(None) == ""
