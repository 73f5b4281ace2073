from __future__ import annotations

from dataclasses import replace

from tests.unit.ingest.reports import made_histories as made
from tests.unit.timeline.well_formed import HOSTILE, elements


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
