"""The epoch loop's decisions: from state and evidence to the next action. Pure; `ingest.driver.loop` acts.

::

                                     ┌──────────────────────── Waited ─────────────────────────┐
                                     ▼                                                         │
    Started ─► RecoverPending ─► PlanEpoch ─► SourcePlanned ─► nothing new: Pause, once: EndRun┤
                     ▲               ▲              └─► IngestEpoch ─► EpochCommitted: Pause ──┘
                     │               │                       │              └─► PlanEpoch or EndRun
                     │               └── Recovered           └─► EpochGivenUp, too often: EndWithError
                     └───────────────────────────────────────────────┘
    StopRequested, at any time ─► EndRun
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from ingest.driver.summary import Mode

MOST_TRIES = 5
"""Consecutive retries of an epoch because another writer writes the same rows, or its source files are rewritten."""

_FIRST_BUSY_WAIT_S = 0.5
_SHORTEST_WAIT_S = 0.05


@dataclass(frozen=True)
class LoopState:
    """State of a run between two actions.

    Attributes:
        mode: when the run ends by itself.
        interval_s: seconds from the start of one epoch to the start of the next, for a continuous run.
        takes_whole_source: whether one epoch has to hold the whole source.
        has_waited: whether this run has waited for unsettled records.
        has_warned: whether the run has warned that the source has no records at all.
        tries: consecutive retries of given up epochs.
    """

    mode: Mode
    interval_s: float = 0.0
    takes_whole_source: bool = False
    has_waited: bool = False
    has_warned: bool = False
    tries: int = 0


@dataclass(frozen=True)
class Started:
    """The lease is taken; `is_initialized`: whether the timeline exists, so that instants may be pending."""

    is_initialized: bool


@dataclass(frozen=True)
class Recovered:
    """No instant is pending."""


@dataclass(frozen=True)
class Waited:
    """A pause is over."""


@dataclass(frozen=True)
class StopRequested:
    """The run was asked to stop."""


@dataclass(frozen=True)
class SourcePlanned:
    """The next epoch is planned.

    Attributes:
        has_records: whether the plan has records to ingest.
        settles_in_s: seconds until unsettled records may be ingested; None where there are none.
        is_first: whether no records were ever committed.
        elapsed_s: seconds since this epoch's planning began.
    """

    has_records: bool
    settles_in_s: float | None
    is_first: bool
    elapsed_s: float


@dataclass(frozen=True)
class EpochCommitted:
    """An epoch was committed.

    Attributes:
        is_behind: whether the source had more records than the epoch holds.
        elapsed_s: seconds since the epoch's planning began.
    """

    is_behind: bool
    elapsed_s: float


class GivenUp(enum.Enum):
    """Reasons to give up an epoch and plan it again."""

    DECIDED_BY_LATE_WRITER = "a writer that woke up late decided it"
    TARGET_BUSY = "someone else writes the same rows"
    REWRITTEN = "a file changed while it was read"


@dataclass(frozen=True)
class EpochGivenUp:
    """An epoch, or its recovery, was given up for a transient reason."""

    reason: GivenUp


LoopEvidence: TypeAlias = Started | Recovered | Waited | StopRequested | SourcePlanned | EpochCommitted | EpochGivenUp


@dataclass(frozen=True)
class RecoverPending:
    """Settle pending instants.

    Attributes:
        after_s: back-off in seconds before the recovery, without jitter.
        tries: see LoopState.
    """

    after_s: float = 0.0
    tries: int = 0


@dataclass(frozen=True)
class PlanEpoch:
    """Plan the next epoch from the source."""


@dataclass(frozen=True)
class IngestEpoch:
    """Ingest the plan as one epoch."""


@dataclass(frozen=True)
class Pause:
    """Wait before the next plan.

    Attributes:
        seconds: length of the pause.
        is_idle: whether the reason is that the source has no new records.
        warns: whether to warn that the source has no records at all.
    """

    seconds: float
    is_idle: bool = False
    warns: bool = False


@dataclass(frozen=True)
class EndWithError:
    """End the run with the error that the epoch was given up for."""


@dataclass(frozen=True)
class EndRun:
    """End the run; `warns`: see `Pause`."""

    warns: bool = False


LoopAction: TypeAlias = RecoverPending | PlanEpoch | IngestEpoch | Pause | EndWithError | EndRun


def next_action(state: LoopState, evidence: LoopEvidence) -> tuple[LoopState, LoopAction]:
    """The next state and the next action.

    Args:
        state: the state before the evidence.
        evidence: the outcome of the last action.
    """
    match evidence:
        case Started(is_initialized):
            return state, RecoverPending() if is_initialized else PlanEpoch()
        case Recovered() | Waited():
            return state, PlanEpoch()
        case StopRequested():
            return state, EndRun()
        case SourcePlanned() as planned:
            return _after_planning(state, planned)
        case EpochCommitted() as committed:
            return replace(state, tries=0), _after_commit(state, committed)
        case EpochGivenUp(reason):
            return _after_giving_up(state, reason)
        case _:
            assert_never(evidence)


def _after_planning(state: LoopState, planned: SourcePlanned) -> tuple[LoopState, LoopAction]:
    settles_in_s = planned.settles_in_s
    waits_for_the_rest = state.takes_whole_source and settles_in_s is not None and not state.has_waited
    if planned.has_records and not waits_for_the_rest:
        return replace(state, has_waited=False), IngestEpoch()
    warns = planned.is_first and settles_in_s is None and not state.has_warned
    state = replace(state, has_warned=state.has_warned or warns)
    match state.mode:
        case Mode.REJECTED:
            return state, EndRun(warns)
        case Mode.ONCE:
            # An unterminated last line gets one chance to settle; afterwards the run goes on without it.
            if settles_in_s is None or state.has_waited:
                return state, EndRun(warns)
            return replace(state, has_waited=True), Pause(settles_in_s, is_idle=True, warns=warns)
        case Mode.CONTINUOUS:
            wait_s = max(0.0, state.interval_s - planned.elapsed_s)
            wait_s = wait_s if settles_in_s is None else min(wait_s, settles_in_s)
            return state, Pause(max(wait_s, _SHORTEST_WAIT_S), is_idle=True, warns=warns)
        case _:
            assert_never(state.mode)


def _after_commit(state: LoopState, committed: EpochCommitted) -> LoopAction:
    if state.mode is Mode.REJECTED:
        return EndRun()  # records that this epoch rejected again belong to another replay
    if state.takes_whole_source:
        return EndRun()  # newer records belong to another transaction, in a run of its own
    if state.mode is Mode.CONTINUOUS and not committed.is_behind:
        return Pause(max(0.0, state.interval_s - committed.elapsed_s))
    return PlanEpoch()


def _after_giving_up(state: LoopState, reason: GivenUp) -> tuple[LoopState, LoopAction]:
    if reason is GivenUp.DECIDED_BY_LATE_WRITER:
        return state, RecoverPending()
    if state.tries >= MOST_TRIES:
        return state, EndWithError()
    after_s = _FIRST_BUSY_WAIT_S * 2**state.tries if reason is GivenUp.TARGET_BUSY else 0.0
    tries = state.tries + 1
    return replace(state, tries=tries), RecoverPending(after_s, tries)
