"""The epoch loop's decisions as a table: each state and piece of evidence has one action."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ingest.driver.next_action import (
    MOST_TRIES,
    EndRun,
    EndWithError,
    EpochCommitted,
    EpochGivenUp,
    GivenUp,
    IngestEpoch,
    LoopAction,
    LoopEvidence,
    LoopState,
    Pause,
    PlanEpoch,
    Recovered,
    RecoverPending,
    SourcePlanned,
    Started,
    StopRequested,
    Waited,
    next_action,
)
from ingest.driver.summary import Mode

ONCE = LoopState(Mode.ONCE, interval_s=10.0)
WHOLE = replace(ONCE, takes_whole_source=True)
CONTINUOUS = replace(ONCE, mode=Mode.CONTINUOUS)
REJECTED = replace(ONCE, mode=Mode.REJECTED)
MODES = (ONCE, WHOLE, CONTINUOUS, REJECTED)

RECORDS = SourcePlanned(True, None, False, 4.0)
NOTHING = replace(RECORDS, has_records=False)
UNSETTLED = replace(NOTHING, settles_in_s=2.0)
RECORDS_AND_UNSETTLED = replace(RECORDS, settles_in_s=2.0)


@pytest.mark.parametrize(
    ("state", "evidence", "action"),
    [
        *((state, Started(True), RecoverPending()) for state in MODES),
        *((state, Started(False), PlanEpoch()) for state in MODES),
        *((state, Recovered(), PlanEpoch()) for state in MODES),
        *((state, Waited(), PlanEpoch()) for state in MODES),
        *((state, StopRequested(), EndRun()) for state in MODES),
        *((state, RECORDS, IngestEpoch()) for state in MODES),
        # Nothing to ingest.
        (ONCE, NOTHING, EndRun()),
        (WHOLE, NOTHING, EndRun()),
        (REJECTED, NOTHING, EndRun()),
        (CONTINUOUS, NOTHING, Pause(6.0, is_idle=True)),
        (CONTINUOUS, replace(NOTHING, elapsed_s=30.0), Pause(0.05, is_idle=True)),
        # Records that have not settled.
        (ONCE, UNSETTLED, Pause(2.0, is_idle=True)),
        (replace(ONCE, has_waited=True), UNSETTLED, EndRun()),
        (REJECTED, UNSETTLED, EndRun()),
        (CONTINUOUS, UNSETTLED, Pause(2.0, is_idle=True)),
        (CONTINUOUS, replace(UNSETTLED, settles_in_s=60.0), Pause(6.0, is_idle=True)),
        # Records beside some that have not settled: only a target that takes the whole source waits for these, once.
        (ONCE, RECORDS_AND_UNSETTLED, IngestEpoch()),
        (CONTINUOUS, RECORDS_AND_UNSETTLED, IngestEpoch()),
        (WHOLE, RECORDS_AND_UNSETTLED, Pause(2.0, is_idle=True)),
        (replace(WHOLE, has_waited=True), RECORDS_AND_UNSETTLED, IngestEpoch()),
        # A committed epoch.
        (ONCE, EpochCommitted(False, 4.0), PlanEpoch()),
        (ONCE, EpochCommitted(True, 4.0), PlanEpoch()),
        (WHOLE, EpochCommitted(True, 4.0), EndRun()),
        (REJECTED, EpochCommitted(True, 4.0), EndRun()),
        (CONTINUOUS, EpochCommitted(True, 4.0), PlanEpoch()),
        (CONTINUOUS, EpochCommitted(False, 4.0), Pause(6.0)),
        (CONTINUOUS, EpochCommitted(False, 30.0), Pause(0.0)),
        # An epoch that was given up.
        *((state, EpochGivenUp(GivenUp.DECIDED_BY_LATE_WRITER), RecoverPending()) for state in MODES),
        *(
            (replace(state, tries=MOST_TRIES), EpochGivenUp(GivenUp.DECIDED_BY_LATE_WRITER), RecoverPending())
            for state in MODES
        ),
        (ONCE, EpochGivenUp(GivenUp.REWRITTEN), RecoverPending(0.0, 1)),
        (ONCE, EpochGivenUp(GivenUp.TARGET_BUSY), RecoverPending(0.5, 1)),
        (replace(ONCE, tries=4), EpochGivenUp(GivenUp.REWRITTEN), RecoverPending(0.0, 5)),
        (replace(ONCE, tries=4), EpochGivenUp(GivenUp.TARGET_BUSY), RecoverPending(8.0, 5)),
        (replace(ONCE, tries=MOST_TRIES), EpochGivenUp(GivenUp.REWRITTEN), EndWithError()),
        (replace(ONCE, tries=MOST_TRIES), EpochGivenUp(GivenUp.TARGET_BUSY), EndWithError()),
    ],
)
def test_each_outcome_has_its_next_action(state: LoopState, evidence: LoopEvidence, action: LoopAction) -> None:
    assert next_action(state, evidence)[1] == action


def test_a_source_without_any_record_is_warned_of_once() -> None:
    empty = replace(NOTHING, is_first=True)
    state, action = next_action(CONTINUOUS, empty)
    assert action == Pause(6.0, is_idle=True, warns=True)
    assert next_action(state, empty)[1] == Pause(6.0, is_idle=True)
    assert next_action(ONCE, empty)[1] == EndRun(warns=True)
    assert next_action(ONCE, replace(empty, settles_in_s=2.0))[1] == Pause(2.0, is_idle=True), "a record is coming"


def test_a_run_waits_again_for_records_that_settle_only_behind_an_epoch() -> None:
    state, _ = next_action(ONCE, UNSETTLED)
    assert state.has_waited
    state, _ = next_action(state, RECORDS)
    assert not state.has_waited


def test_only_tries_in_a_row_count() -> None:
    state = ONCE
    for number in range(1, MOST_TRIES + 1):
        state, action = next_action(state, EpochGivenUp(GivenUp.TARGET_BUSY))
        assert isinstance(action, RecoverPending) and action.tries == number
        state, _ = next_action(state, Recovered())
        state, _ = next_action(state, RECORDS)
    state, _ = next_action(state, EpochCommitted(False, 0.0))
    assert state.tries == 0


def test_no_evidence_is_without_an_action_and_none_changes_how_the_run_was_asked_for() -> None:
    planned = (
        SourcePlanned(has_records, settles_in_s, is_first, 1.0)
        for has_records, settles_in_s, is_first in product((True, False), (None, 0.0, 3.0), (True, False))
    )
    evidence: list[LoopEvidence] = [
        *(Started(is_initialized) for is_initialized in (True, False)),
        *(Recovered(), Waited(), StopRequested()),
        *planned,
        *(EpochCommitted(is_behind, 1.0) for is_behind in (True, False)),
        *map(EpochGivenUp, GivenUp),
    ]
    some = (True, False)
    states = (
        LoopState(mode, 1.0, is_whole, has_waited, has_warned, tries)
        for mode, is_whole, has_waited, has_warned, tries in product(Mode, some, some, some, (0, MOST_TRIES))
    )
    for state, seen in product(states, evidence):
        after, _ = next_action(state, seen)
        asked = (after.mode, after.interval_s, after.takes_whole_source)
        assert asked == (state.mode, state.interval_s, state.takes_whole_source)
