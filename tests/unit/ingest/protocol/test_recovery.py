"""The recovery policy over every combination of evidence, against the design's table written down by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ingest.protocol.evidence import Damaged, Evidence, Unknown
from ingest.protocol.recovery import RecoveryStep, StepKind, next_step
from timeline.decision import Decision, Outcome
from timeline.epoch import EpochRef, Manifest, Part, Plan, WrittenFile
from timeline.lease import LeaseState

MINE, OTHER = "20240101000000000", "20240101000000005"
REF = EpochRef(7, MINE, 3)

DECISIONS: dict[str, Decision | Unknown | None] = {
    "none": None,
    "unknown": Unknown("the store is away"),
    "commit this": Decision(7, Outcome.COMMIT, MINE, OTHER, 3, "writer", "written", "t"),
    "commit another": Decision(7, Outcome.COMMIT, OTHER, OTHER, 4, "writer", "written", "t"),
    "rollback this": Decision(7, Outcome.ROLLBACK, MINE, OTHER, 4, "recovery", "not prepared", "t"),
    "rollback another": Decision(7, Outcome.ROLLBACK, OTHER, OTHER, 4, "recovery", "not prepared", "t"),
}
LEASES: dict[str, LeaseState | Unknown] = {
    "none": LeaseState.NONE,
    "mine": LeaseState.MINE,
    "live": LeaseState.LIVE,
    "expired": LeaseState.EXPIRED,
    "unknown": Unknown("the lease is away"),
}
MANIFESTS: dict[str, Manifest | Damaged | Unknown | None] = {
    "none": None,
    "good": Manifest(REF, (), (Part("table", REF, 1, 2, (WrittenFile("a", 2, 1), WrittenFile("b", 2, 1))),)),
    "damaged": Damaged(("table: a is missing", "table: b has 1 byte, expected 2")),
    "unknown": Unknown("a target is away"),
}
PLANS: dict[str, Plan | None] = {"there": Plan(REF, "web", "w", (), ("table",), {}, "t"), "gone": None}

ANY = "any"

TABLE: Sequence[tuple[str, str, str, str, str, StepKind]] = [
    # decision, plan, lease, manifest, force, answer: the first matching row holds.
    ("unknown", ANY, ANY, ANY, ANY, StepKind.HALT),
    ("commit this", ANY, ANY, "unknown", ANY, StepKind.HALT),
    ("commit this", ANY, ANY, ANY, ANY, StepKind.RECOMMIT),
    ("commit another", ANY, ANY, ANY, ANY, StepKind.ROLLBACK),
    ("rollback this", ANY, ANY, ANY, ANY, StepKind.ROLLBACK),
    ("rollback another", ANY, ANY, ANY, ANY, StepKind.ROLLBACK),
    # A rollback is decided first and deletes the requested file last: here a person deleted it.
    ("none", "gone", ANY, "good", ANY, StepKind.HALT),
    ("none", "gone", ANY, "damaged", ANY, StepKind.HALT),
    # A late writer put these files of a deleted instant.
    ("none", "gone", ANY, ANY, ANY, StepKind.ROLLBACK),
    ("none", "there", "live", ANY, "no", StepKind.WAIT),
    ("none", "there", "unknown", ANY, "no", StepKind.HALT),
    ("none", "there", ANY, "unknown", ANY, StepKind.HALT),
    ("none", "there", ANY, "good", ANY, StepKind.CLAIM_COMMIT),
    ("none", "there", ANY, "none", ANY, StepKind.CLAIM_ROLLBACK),
    ("none", "there", ANY, "damaged", ANY, StepKind.CLAIM_ROLLBACK),
]

COMBINATIONS = list(itertools.product(DECISIONS, PLANS, LEASES, MANIFESTS, ("no", "yes")))


def answer(combination: tuple[str, ...]) -> RecoveryStep:
    decision, plan, lease, manifest, force = combination
    evidence = Evidence(MINE, PLANS[plan], DECISIONS[decision], LEASES[lease], MANIFESTS[manifest])
    return next_step(evidence, force=force == "yes")


def rows_that_fit(combination: tuple[str, ...]) -> list[tuple[str, str, str, str, str, StepKind]]:
    return [row for row in TABLE if all(cell in (ANY, found) for cell, found in zip(row[:5], combination, strict=True))]


@pytest.mark.parametrize("combination", COMBINATIONS, ids="/".join)
def test_every_combination_is_answered_as_the_design_says(combination: tuple[str, ...]) -> None:
    assert answer(combination).kind is rows_that_fit(combination)[0][5]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: "/".join(row[:5]))
def test_every_row_of_the_table_decides_some_combination(row: tuple[str, str, str, str, str, StepKind]) -> None:
    assert any(rows_that_fit(combination)[0] == row for combination in COMBINATIONS)


def test_nothing_is_deleted_before_a_decision_allows_it() -> None:
    for combination in COMBINATIONS:
        if answer(combination).kind is StepKind.ROLLBACK:
            decision, plan, *_ = combination
            assert decision in ("commit another", "rollback this", "rollback another") or plan == "gone"


def test_nothing_is_made_visible_without_a_decision_to_commit_this_instant() -> None:
    for combination in COMBINATIONS:
        is_decided = combination[0] == "commit this" and combination[3] != "unknown"
        assert (answer(combination).kind is StepKind.RECOMMIT) == is_decided


def test_force_never_turns_an_unknown_decision_or_prepared_state_into_an_answer() -> None:
    for combination in COMBINATIONS:
        decision, plan, _, manifest, _ = combination
        is_open = decision == "commit this" or (decision == "none" and plan == "there")
        if decision == "unknown" or (is_open and manifest == "unknown"):
            assert answer((*combination[:4], "yes")).kind is StepKind.HALT


def test_force_changes_nothing_but_waiting() -> None:
    for combination in COMBINATIONS:
        patient, forced = answer((*combination[:4], "no")), answer((*combination[:4], "yes"))
        if combination[2] not in ("live", "unknown"):
            assert patient == forced


def test_every_answer_gives_its_reason_from_the_evidence() -> None:
    reasons = {combination: answer(combination).reason for combination in COMBINATIONS}
    assert all(reasons.values())
    assert reasons["unknown", "there", "mine", "good", "no"].endswith("the store is away")
    assert reasons["commit this", "there", "live", "none", "no"] == "decided: commit, by writer (written)"
    assert reasons["rollback this", "there", "live", "none", "no"] == "decided: rollback, by recovery (not prepared)"
    assert reasons["commit another", "there", "mine", "none", "no"] == f"its epoch was committed by instant {OTHER}"
    assert reasons["none", "there", "unknown", "good", "no"].endswith("the lease is away")
    assert reasons["none", "there", "mine", "good", "no"] == "prepared: every target is ready, 2 files are there"
    assert "table: a is missing; table: b has 1 byte" in reasons["none", "there", "mine", "damaged", "no"]
    assert "--force" in reasons["none", "there", "live", "good", "no"]


def test_the_same_evidence_gives_the_same_answer() -> None:
    for combination in COMBINATIONS:
        assert answer(combination) == answer(combination)


@pytest.mark.parametrize("combination", COMBINATIONS, ids="/".join)
def test_a_loss_matters_to_what_is_decided_to_commit_and_to_nothing_else(combination: tuple[str, ...]) -> None:
    decision, plan, lease, manifest, force = combination
    evidence = Evidence(MINE, PLANS[plan], DECISIONS[decision], LEASES[lease], MANIFESTS[manifest], ("keyed: gone",))
    step = next_step(evidence, force=force == "yes")
    without = next_step(replace(evidence, gone={"table": ["a is missing", "b is missing"]}), force=force == "yes")
    if decision == "commit this" and manifest != "unknown":
        assert without.kind is StepKind.REFUSE
        assert without.reason == "decided: commit, by writer; data files are gone: table: a is missing, and 1 more"
        assert step.kind is StepKind.REPLAY
        assert step.reason == "decided: commit, by writer; to be written again: keyed: gone"
    else:
        assert step == without == answer(combination)
