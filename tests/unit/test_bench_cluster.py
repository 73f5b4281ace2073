"""The simulated driver of a cluster: a real writer on a real timeline, whose tasks are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cluster
from bench.cluster import Driver, _make_hole
from bench.logs import COLUMNS
from bench.pending import Medium, new_place
from ingest.completion import Completions
from ingest.events import unheard
from timeline.view import Timeline


def test_epochs_of_made_up_tasks_are_committed_and_leave_no_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TASKS", 3)
    monkeypatch.setattr(cluster, "_BODIES", 2)
    medium = Medium("local", str(tmp_path / "lake"), tmp_path / "lake")
    medium.folder.mkdir()
    place = new_place(medium, tmp_path, COLUMNS)
    driver = Driver(place)
    with Completions(unheard, beside=True) as completions:
        for _ in range(4):
            driver.ingest(completions)
    assert driver.start_up() > 0
    driver.lease.release()
    opened = place.opened()
    assert len(Timeline.load(opened.store, opened.retry).completed()) == 4
    newest = (place.lake / "_delta_log" / f"{4:020d}.json").read_text()
    assert newest.count('"add"') == 3 * cluster.FILES_A_TASK
    (left,) = (place.lake / ".hoodie" / ".temp").rglob("*.marker.*")
    assert left.parent.name == "part=h", "that of a lost attempt stays, as its file may still come"
    whole = [path for path in (place.lake / ".hoodie").rglob("*.inflight") if path.read_bytes().strip(b"\0")]
    assert len(whole) == 2, "older bodies are holes"


def test_a_hole_keeps_the_size(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"x" * 1_000_000)
    _make_hole(path)
    assert path.stat().st_size == 1_000_000
    assert path.stat().st_blocks == 0
