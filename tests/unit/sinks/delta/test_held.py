"""The epochs that a table still has, determined from its log entries alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sinks.delta.entry import EntryFacts, TableOverwrite, read_entry
from sinks.delta.held import LogWalk, held_in
from sinks.held import Base, Held, in_spans, lost_since, span_text, spans

OVERWRITE = EntryFacts(taken=TableOverwrite("overwritten (WRITE)"))
OTHER = EntryFacts()


def own(epoch: int, **fields: Any) -> EntryFacts:
    return EntryFacts(marker=epoch, written_ms=epoch * 1000, **fields)


def restore(version: int | None, at_ms: int | None = None) -> EntryFacts:
    return EntryFacts(taken=TableOverwrite(f"restored to version {version}", True, version, at_ms))


def held(*log: EntryFacts | None, known: Base | None = None, markers: Mapping[int, int] | None = None) -> Held:
    """The epochs of a table with these log entries; its marker is the newest one ever put, as in delta-rs."""
    applied = max((seen.marker for seen in log if seen is not None and seen.marker is not None), default=None)

    def entry(version: int) -> EntryFacts | None:
        return log[version]

    return held_in(LogWalk(entry, lambda version: (markers or {}).get(version)), "t", len(log) - 1, applied, known)


@pytest.mark.parametrize(
    ("log", "missing"),
    [
        ([own(0), own(1), own(2)], ()),
        ([own(0), own(1), OTHER, OTHER], ()),
        ([own(0), own(3), own(7)], ()),
        ([own(0), own(1), own(2), restore(0)], ((1, 2),)),
        ([own(0), own(1), own(2), restore(0), OTHER], ((1, 2),)),
        ([own(0), own(1), OTHER, restore(2)], ()),
        ([own(0), own(1), OTHER, restore(1)], ()),
        ([own(0), own(1), OVERWRITE], ((0, 1),)),
        ([own(0), own(1), OVERWRITE, restore(1)], ()),
        ([own(0), own(1), OVERWRITE, restore(0)], ((1, 1),)),
        ([own(0), own(1), restore(0), restore(1)], ()),
        ([own(0), own(1), own(2), restore(0), own(3), restore(3)], ((1, 3),)),
        ([OTHER, own(0), own(1), restore(0)], ((0, 1),)),
        ([own(0), own(1, missing=((0, 0),))], ((0, 0),)),
        ([own(0), own(1, missing=((0, 0),)), OTHER, restore(1)], ((0, 0),)),
        ([own(0), own(1), own(2), restore(None, at_ms=1500)], ((2, 2),)),
    ],
)
def test_a_walk_from_the_newest_entry_tells_what_is_missing(
    log: list[EntryFacts], missing: tuple[tuple[int, int], ...]
) -> None:
    assert held(*log).missing == missing
    assert not held(*log).doubt


def test_what_is_known_to_be_in_order_is_not_looked_at_again() -> None:
    log = [own(0), own(1), OVERWRITE, OTHER]
    assert held(*log, known=Base("t", 2, 1)).missing == ()
    assert held(*log, known=Base("other", 2, 1)).missing == ((0, 1),)
    assert held(*log, OVERWRITE, known=Base("t", 2, 1)).missing == ((0, 1),)
    assert held(*log, restore(2), known=Base("t", 2, 1)).missing == ()
    assert held(*log, restore(0), known=Base("t", 2, 1)).missing == ((1, 1),)


def test_a_walk_that_ends_at_entries_that_were_cleaned_up_says_so() -> None:
    found = held(None, None, own(1), known=None)
    assert not found.doubt and found.missing == ()
    found = held_in(LogWalk(lambda version: None, lambda version: 5), "t", 9, 5, None)
    assert found.missing == () and "cleaned up" in found.doubt
    found = held(None, own(1), restore(0))
    assert found.doubt and found.how == "restored to version 0 by version 2"
    found = held(own(0), EntryFacts(taken=TableOverwrite("changed (FSCK)", is_unclear=True)))
    assert found.missing and "took out some files, or all" in found.doubt
    found = held(own(0), restore(None))
    assert "cannot be told" in found.doubt


@pytest.mark.parametrize(
    ("info", "has_removes", "words"),
    [
        ({"operation": "RESTORE", "operationParameters": {"version": "3"}}, True, "restored to version 3"),
        (
            {"operation": "RESTORE", "operationParameters": {"version": 3, "timestamp": None}},
            False,
            "restored to version 3",
        ),
        ({"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}, True, "overwritten (WRITE)"),
        (
            {"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "predicate": "[]"}},
            True,
            "overwritten (WRITE)",
        ),
        ({"operation": "CREATE OR REPLACE TABLE AS SELECT"}, True, "overwritten (CREATE OR REPLACE TABLE AS SELECT)"),
        ({"operation": "STREAMING UPDATE"}, True, "overwritten (STREAMING UPDATE)"),
        ({}, True, "changed (an entry that does not say what it did)"),
        ({"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}, False, None),
        ({"operation": "WRITE", "operationParameters": {"mode": "Append"}}, False, None),
        ({"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "predicate": "id = 1"}}, True, None),
        ({"operation": "WRITE", "operationParameters": {"isDynamicPartitionOverwrite": True}}, True, None),
        ({"operation": "DELETE"}, True, None),
        ({"operation": "MERGE"}, True, None),
    ],
)
def test_what_others_did_is_told_by_what_their_entry_says(
    info: dict[str, Any], has_removes: bool, words: str | None
) -> None:
    actions = [{"commitInfo": info}, *([{"remove": {"path": "a", "dataChange": True}}] if has_removes else [])]
    seen = read_entry("log", "\n".join(map(json.dumps, actions)).encode(), "app")
    assert (seen.taken.words if seen.taken is not None else None) == words


def test_files_that_are_only_moved_are_no_loss() -> None:
    body = json.dumps({"remove": {"path": "a", "dataChange": False}}).encode()
    assert read_entry("log", body, "app").taken is None


@pytest.mark.parametrize(
    ("base", "now", "how"),
    [
        (Base("t", 1, 4), Held("t", 2, 4), None),
        (Base(None, 0, 4), Held("t", 2, 4), None),
        (Base("t", 1, None), Held(None), None),
        (Base("t", 1, 4), Held("t", 2, 5), None),
        (Base("t", 1, 4), Held(None), "was deleted"),
        (Base("t", 1, 4), Held("u", 0), "was made anew (its id is u, and was t)"),
        (Base(None, 0, 4), Held("u", 0), "has no epoch"),
        (Base("t", 1, 4), Held("t", 0, 2), "has epochs up to 2 only"),
        (
            Base("t", 1, 4),
            Held("t", 3, 4, ((1, 4),), "restored to version 0 by version 3"),
            "was restored to version 0",
        ),
    ],
)
def test_a_target_is_compared_with_what_it_was(base: Base, now: Held, how: str | None) -> None:
    gone = lost_since(base, now)
    assert (gone is None) == (how is None)
    assert gone is None or gone.how.startswith(how or "?")


def test_epochs_are_told_as_ranges() -> None:
    assert spans([5, 3, 4, 9, 4]) == ((3, 5), (9, 9))
    assert span_text(spans([3, 4, 9])) == "epochs 3-4, 9"
    assert span_text(spans([3])) == "epoch 3"
    assert in_spans(4, [(3, 5)]) and not in_spans(6, [(3, 5)])
