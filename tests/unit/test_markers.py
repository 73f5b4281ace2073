"""Markers name every file that can appear; what is given up ends its upload before it is deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from sinks.markers import Markers, file_id
from timeline.epoch import EpochRef
from timeline.store import MemoryStore

INSTANT = "20260301000000000"
EPOCH = EpochRef(0, INSTANT, 1)


@dataclass
class Recording(MemoryStore):
    """Remembers in which order data files were given up."""

    given_up: list[str] = field(default_factory=list)

    def abandon(self, paths: Collection[str]) -> None:
        self.given_up += [f"abandon {path}" for path in paths]

    def delete(self, path: str) -> None:
        self.given_up += [] if "marker" in path else [f"delete {path}"]
        super().delete(path)


@pytest.fixture
def store() -> Recording:
    return Recording()


@pytest.fixture
def markers(store: Recording) -> Markers:
    return Markers(store, "app")


def announced(markers: Markers, *drawn: str) -> list[str]:
    paths = [f"{file_id('app', each)}-0_0-0-0_{INSTANT}.parquet" for each in drawn]
    for path in paths:
        markers.announce(INSTANT, path)
    return paths


def test_rolled_back_epoch_ends_its_uploads_before_it_deletes(store: Recording, markers: Markers) -> None:
    paths = announced(markers, "a", "b")
    assert markers.abort(EPOCH, None) == paths
    assert store.given_up == [f"{call} {path}" for call in ("abandon", "delete") for path in paths]


def test_lost_attempt_of_an_epoch_that_goes_on_ends_its_upload_alone(store: Recording, markers: Markers) -> None:
    kept, lost = announced(markers, "a", "b")
    assert markers.delete_unreported(INSTANT, [kept]) == [lost]
    assert store.given_up == [f"abandon {lost}", f"delete {lost}"]


def test_epoch_without_lost_attempts_asks_for_no_uploads(store: Recording, markers: Markers) -> None:
    (kept,) = announced(markers, "a")
    markers.delete_unreported(INSTANT, [kept])
    assert store.given_up == []
