"""Small scope, complete: every interleaving of real processes, a crash and a recovery in each state."""

from __future__ import annotations

import pytest

from ingest.check_store.numbers import NumberSource
from tests.explore.explorer import explore
from tests.explore.protocol_world import (
    check_recovered,
    check_recovered_behind_the_mark,
    check_visible,
    recoverer,
    writer,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_two_writers_and_a_crash_anywhere_stay_exact() -> None:
    source = NumberSource({"s": 1})
    explored = explore([writer(1, source), writer(1, source)], check=check_visible, recover=check_recovered)
    print(explored)
    assert explored.states > 1_000


def test_a_writer_of_two_epochs_beside_a_recovery_stays_exact() -> None:
    source = NumberSource({"s": 2})
    explored = explore([writer(2, source), recoverer()], check=check_visible, recover=check_recovered)
    print(explored)
    assert explored.states > 1_000


def test_two_writers_of_consecutive_epochs_and_a_crash_anywhere_stay_exact() -> None:
    source = NumberSource({"s": 2})
    explored = explore([writer(1, source), writer(1, source)], check=check_visible, recover=check_recovered)
    print(explored)
    assert explored.states > 1_000


def test_two_writers_of_two_epochs_and_a_crash_anywhere_stay_exact() -> None:
    source = NumberSource({"s": 2})
    explored = explore([writer(2, source), writer(2, source)], check=check_visible, recover=check_recovered)
    print(explored)
    assert explored.states > 10_000


def test_recovery_behind_a_mark_that_moves_with_every_epoch_leaves_nothing_decided_undone() -> None:
    source = NumberSource({"s": 1})
    bodies = [writer(1, source, is_marking=True), recoverer()]
    explored = explore(bodies, check=check_visible, recover=check_recovered_behind_the_mark)
    print(explored)
    assert explored.states > 1_000
