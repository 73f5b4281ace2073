"""A seed repeats the random draws of a run, and twenty sampled runs cover as much as one full run."""

from __future__ import annotations

import itertools

import pytest

from tests.sampling import KILLS, KILLS_OF_DRIVERS, KILLS_OF_QUERIES, Kills, covered, seed, share


def drawn(kills: Kills) -> list[tuple[str, float]]:
    return list(itertools.islice(kills.moments(), 8))


def test_the_same_seed_draws_the_same_and_another_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "7")
    first = drawn(KILLS)
    assert drawn(KILLS) == first and drawn(KILLS_OF_QUERIES) != first
    monkeypatch.setenv("SEED", "8")
    assert drawn(KILLS) != first


def test_a_commit_has_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEED", raising=False)
    assert seed() == seed() > 0


def test_a_run_takes_the_sample_and_a_long_one_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONG", raising=False)
    assert share(1, 2) == 1
    monkeypatch.setenv("LONG", "1")
    assert share(1, 2) == 2


@pytest.mark.parametrize("kills", [KILLS, KILLS_OF_DRIVERS, KILLS_OF_QUERIES], ids=lambda kills: kills.what)
def test_twenty_runs_kill_at_more_moments_than_one_run_of_all(kills: Kills, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "1")
    sampled, whole = covered(kills, range(20), kills.sample), covered(kills, [1], kills.whole)
    assert sampled >= whole and sampled[1] >= whole[1]
