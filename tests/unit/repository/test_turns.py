"""Tests that share a server share a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import turns

ROOT = Path(__file__).parents[3]


def test_each_file_of_a_group_is_there_and_in_no_other() -> None:
    files = [file for group in turns.GROUPS.values() for file in group]
    assert len(files) == len(set(files))
    assert [file for file in (*files, *turns.SEVERAL, *turns.ALONE) if not (ROOT / file).is_file()] == []


def test_a_file_is_a_group_unless_it_shares_a_server_or_its_tests_take_a_minute() -> None:
    assert turns.group_of("tests/unit/repository/test_turns.py::test_x[a::b]") == "tests/unit/repository/test_turns.py"
    assert turns.group_of("tests/real/test_kafka_job.py::test_x") == "streams"
    alone = "tests/crash/test_kill.py::test_x"
    assert turns.group_of(alone) == alone


def test_a_test_that_would_start_a_server_once_more_is_refused(request: pytest.FixtureRequest) -> None:
    item = request.node
    item.fixturenames.append("kafka")
    with pytest.raises(pytest.UsageError, match=r"needs kafka: list its file in tests/turns.py under 'streams'"):
        turns.check(item)
    item.fixturenames.remove("kafka")
