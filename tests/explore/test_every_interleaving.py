"""Every interleaving of two real processes, and a sample for three; a crash and a recovery in each state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from ingest.check_store.numbers import NumberSource
from tests.explore.explorer import World
from tests.explore.protocol_world import (
    check_recovered,
    check_recovered_behind_the_mark,
    check_visible,
    recoverer,
    writer,
)
from tests.explore.stepped import Body
from tests.sampling import drawing, share
from timeline.stores.memory import MemoryStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ONE, TWO = NumberSource({"s": 1}), NumberSource({"s": 2})
"""Records for one epoch, and for two."""

LARGER: dict[str, Sequence[Body]] = {
    "two writers beside a recovery": (writer(1, ONE), writer(1, ONE), recoverer()),
    "a writer of two epochs beside two recoveries": (writer(2, TWO), recoverer(), recoverer()),
    "three writers of two epochs": (writer(2, TWO), writer(2, TWO), writer(2, TWO)),
}
"""Worlds of tens of millions of states."""


@contextmanager
def world(*bodies: Body, recovered: Callable[[MemoryStore], None] = check_recovered) -> Iterator[World]:
    with closing(World(bodies, check=check_visible, recover=recovered)) as made:
        yield made
        print(made.explored)


def test_two_writers_and_a_crash_anywhere_stay_exact() -> None:
    with world(writer(1, ONE), writer(1, ONE)) as two:
        assert two.explore().states > 1_000


def test_a_writer_of_two_epochs_beside_a_recovery_stays_exact() -> None:
    with world(writer(2, TWO), recoverer()) as two:
        assert two.explore().states > 1_000


def test_two_writers_of_consecutive_epochs_and_a_crash_anywhere_stay_exact() -> None:
    with world(writer(1, TWO), writer(1, TWO)) as two:
        assert two.explore().states > 1_000


def test_two_writers_of_two_epochs_and_a_crash_anywhere_stay_exact() -> None:
    with world(writer(2, TWO), writer(2, TWO)) as two:
        assert two.explore().states > 10_000


def test_recovery_behind_a_mark_that_moves_with_every_epoch_leaves_nothing_decided_undone() -> None:
    bodies = (writer(1, ONE, is_marking=True), recoverer())
    with world(*bodies, recovered=check_recovered_behind_the_mark) as two:
        assert two.explore().states > 1_000


@pytest.mark.parametrize("name", LARGER)
def test_three_processes_and_a_crash_anywhere_stay_exact(name: str) -> None:
    with world(*LARGER[name]) as three:
        three.wander(drawing(name), share(10_000, 1_000_000))
