"""Instants and their file names."""

from __future__ import annotations

import pytest

from timeline.errors import FormatError
from timeline.instant import (
    Action,
    Instant,
    State,
    commit_completed,
    commit_inflight,
    commit_requested,
    format_time,
    parse_file_name,
    parse_time,
)

T, C = "20240229235959999", "20240301000000000"


@pytest.mark.parametrize(
    ("instant", "name"),
    [
        (commit_requested(T), f"{T}.commit.requested"),
        (commit_inflight(T), f"{T}.inflight"),
        (commit_completed(T, C), f"{T}_{C}.commit"),
        (Instant(T, Action.ROLLBACK, State.REQUESTED), f"{T}.rollback.requested"),
        (Instant(T, Action.ROLLBACK, State.INFLIGHT), f"{T}.rollback.inflight"),
        (Instant(T, Action.ROLLBACK, State.COMPLETED, C), f"{T}_{C}.rollback"),
        (Instant(T, Action.REPLACECOMMIT, State.INFLIGHT), f"{T}.replacecommit.inflight"),
        (Instant(T, Action.DELTACOMMIT, State.COMPLETED, C), f"{T}_{C}.deltacommit"),
        (Instant(T, Action.COMPACTION, State.INFLIGHT), f"{T}.compaction.inflight"),
    ],
)
def test_names_are_those_of_hudis_timeline_layout_2(instant: Instant, name: str) -> None:
    assert instant.file_name == name
    assert instant.path == f".hoodie/timeline/{name}"
    assert parse_file_name(name) == instant


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hoodie.properties",
        T,
        f"{T}.commit",
        f"{T}.requested",
        f"{T}.commit.inflight",
        f"{T}.commit.requested ",
        f"{T}.commit.requested\n",
        f"{T}.commit.requested.crc",
        f".{T}.commit.requested",
        f"{T}.COMMIT.requested",
        f"{T}.frobnicate.requested",
        f"{T}.schemacommit.inflight",
        f"{T}_{C}.commit.requested",
        f"{T}_{C}.inflight",
        f"{T}_{C}.",
        f"{T}_{C[:-1]}.commit",
        f"{T}_{C}_{C}.commit",
        f"{T[:-3]}.commit.requested",
        "20230229000000000.commit.requested",
        "20240101240000000.inflight",
        f"{T}_20241301000000000.commit",
        "٢٠٢٤٠١٠١٠٠٠٠٠٠٠٠٠.inflight",
    ],
)
def test_foreign_names_are_refused_with_the_name(name: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_file_name(name)
    assert repr(name) in str(refused.value) or "instant time" in str(refused.value)


def test_an_unknown_action_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FormatError, match=r"'frobnicate', known are commit, rollback"):
        parse_file_name(f"{T}_{C}.frobnicate")


def test_the_long_inflight_name_of_a_commit_is_refused_with_the_right_one() -> None:
    with pytest.raises(FormatError, match=rf"{T}\.inflight"):
        parse_file_name(f"{T}.commit.inflight")


def test_exactly_the_completed_instants_have_a_completion_time() -> None:
    with pytest.raises(FormatError, match="completion time"):
        Instant(T, Action.COMMIT, State.COMPLETED)
    with pytest.raises(FormatError, match="completion time"):
        Instant(T, Action.COMMIT, State.REQUESTED, C)
    with pytest.raises(FormatError, match="17 digits"):
        Instant(T, Action.COMMIT, State.COMPLETED, "soon")


def test_only_the_completed_are_not_pending() -> None:
    assert commit_requested(T).is_pending
    assert commit_inflight(T).is_pending
    assert not commit_completed(T, C).is_pending


def test_times_are_utc_milliseconds() -> None:
    assert parse_time("19700101000000000") == 0
    assert parse_time("20240229235959999") == 1_709_251_199_999
    assert format_time(1_709_251_199_999) == "20240229235959999"


@pytest.mark.parametrize(
    "time", ["", "2024", "2024022923595999x", "+0240229235959999", "20240229235960000", "\u0662" * 17]
)
def test_what_names_no_moment_is_refused(time: str) -> None:
    with pytest.raises(FormatError, match="instant time"):
        parse_time(time)


def test_actions_and_states_are_hudis_words() -> None:
    assert [action.value for action in Action] == [
        "commit",
        "rollback",
        "clean",
        "savepoint",
        "restore",
        "replacecommit",
        "deltacommit",
        "compaction",
        "logcompaction",
        "clustering",
        "indexing",
    ]
    assert [state.value for state in State] == ["requested", "inflight", "completed"]
