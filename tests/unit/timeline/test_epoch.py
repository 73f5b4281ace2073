"""Plans, manifests and decisions: their message texts, their counts and their stored form."""

from __future__ import annotations

import json

import pytest

from timeline.decision import DECISION, Decision, Outcome
from timeline.epoch import (
    MANIFEST,
    PLAN,
    EpochRef,
    Manifest,
    OffsetRange,
    Part,
    Plan,
    Position,
    ShardCount,
    WrittenFile,
)
from timeline.errors import FormatError

REF = EpochRef(7, "20240101000000000", 3)
PLANNED = Plan(
    REF,
    "web",
    "process 1 on a",
    (OffsetRange("a.jsonl", 10, 20, {"path": "x/a.jsonl"}, {"etag": "1"}), OffsetRange("b.jsonl", 0, 5)),
    ("table", "quarantine"),
    {"ts": "timestamp", "host": "string"},
    "token",
)
PREPARED = Manifest(
    REF,
    (ShardCount("a.jsonl", 4, 3, 1), ShardCount("b.jsonl", 2, 2, 0)),
    (
        Part("table", REF, 5, 100, (WrittenFile("d=1/x.parquet", 100, 5, {"d": "1", "n": None}, {"numRecords": 5}),)),
        Part("quarantine", REF, 1, 10, (WrittenFile("y.parquet", 10, 1),)),
    ),
)


def test_a_plan_says_where_its_shards_stand_once_it_is_committed() -> None:
    assert PLANNED.positions == {"a.jsonl": Position(20, {"etag": "1"}), "b.jsonl": Position(5)}


def test_a_manifest_counts_rows_over_all_shards() -> None:
    assert (PREPARED.rows, PREPARED.rejected) == (5, 1)


def test_ranges_and_epochs_name_themselves_in_messages() -> None:
    assert str(PLANNED.ranges[0]) == "a.jsonl[10, 20)"
    assert str(REF) == "epoch 7 (instant 20240101000000000)"


def test_bodies_are_read_back_as_they_were() -> None:
    assert PLAN.load("p", PLAN.dump(PLANNED)) == PLANNED
    assert MANIFEST.load("m", MANIFEST.dump(PREPARED)) == PREPARED


def test_a_plan_is_no_manifest_and_a_manifest_is_no_plan() -> None:
    with pytest.raises(FormatError, match="expected a manifest"):
        MANIFEST.load("m", PLAN.dump(PLANNED))
    with pytest.raises(FormatError, match="expected a plan"):
        PLAN.load("p", MANIFEST.dump(PREPARED))
    with pytest.raises(FormatError, match="not a manifest"):
        MANIFEST.load("m", b"")


def test_the_stored_fields_are_those_of_the_documented_format() -> None:
    plan, manifest = json.loads(PLAN.dump(PLANNED)), json.loads(MANIFEST.dump(PREPARED))
    assert list(plan) == ["format", "kind", "ref", "job", "writer", "ranges", "targets", "schema", "token", "reading"]
    assert list(plan["ref"]) == ["epoch", "instant", "generation"]
    assert list(plan["ranges"][0]) == ["shard", "start", "until", "detail", "after"]
    assert list(plan["schema"]) == ["ts", "host"], "the columns' order is kept"
    assert list(manifest) == ["format", "kind", "ref", "counts", "parts"]
    assert list(manifest["parts"][0]) == [
        *("target", "epoch", "rows", "bytes", "files", "dropped", "rejected", "detail"),
    ]
    assert list(manifest["parts"][0]["files"][0]) == ["path", "size", "rows", "partition", "stats", "crc32"]


@pytest.mark.parametrize(
    ("outcome", "instant", "commits"),
    [(Outcome.COMMIT, "1", True), (Outcome.COMMIT, "2", False), (Outcome.ROLLBACK, "1", False)],
)
def test_a_decision_makes_visible_its_own_instant_and_only_when_it_is_to_commit(
    outcome: Outcome, instant: str, commits: bool
) -> None:
    decision = Decision(0, outcome, instant, "3", 1, "me", "why", "token")
    assert decision.commits("1") is commits
    assert DECISION.load("d", DECISION.dump(decision)) == decision


def test_an_outcome_that_this_version_does_not_know_is_refused() -> None:
    body = DECISION.dump(Decision(0, Outcome.COMMIT, "1", "2", 1, "me", "why", "t")).replace(b'"commit"', b'"maybe"')
    with pytest.raises(FormatError, match=r"decision\.outcome.*maybe"):
        DECISION.load("d", body)
