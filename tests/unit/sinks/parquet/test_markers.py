"""Markers name every file that can appear; the upload of an abandoned file ends before the file is deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from sinks.parquet.markers import Markers, file_id
from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore, no_answer
from timeline.epoch import EpochRef, Part, WrittenFile
from timeline.errors import StoreUnavailableError
from timeline.stores.base import ObjectInfo, size_of
from timeline.stores.memory import MemoryStore

INSTANT = "20260301000000000"
EPOCH = EpochRef(0, INSTANT, 1)


@dataclass
class Recording(MemoryStore):
    """Records the order in which data files are abandoned and deleted."""

    given_up: list[str] = field(default_factory=list)

    def abandon(self, paths: Collection[str]) -> None:
        self.given_up += [f"abandon {path}" for path in paths]

    def delete(self, paths: Collection[str]) -> None:
        self.given_up += [f"delete {path}" for path in paths if "marker" not in path]
        super().delete(paths)


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


def test_what_is_deleted_is_counted_also_where_an_error_ends_it() -> None:
    store = ScriptedStore()
    deleted: list[tuple[int, int]] = []
    markers = Markers(store, "app", AT_ONCE, lambda files, size: deleted.append((files, size)))
    paths = announced(markers, *(f"{number:05}" for number in range(4100)))
    for path in paths:
        store.put(path, b"123")
    store.fail("delete", lambda call: call(), *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        markers.abort(EPOCH, None)
    assert list(map(sum, zip(*deleted, strict=True))) == [4000, 12_000]
    markers.abort(EPOCH, None)
    assert list(map(sum, zip(*deleted, strict=True))) == [4100, 12_300]


def test_ten_thousand_files_take_a_handful_of_calls() -> None:
    store = ScriptedStore()
    markers = Markers(store, "app", AT_ONCE, lambda files, size: None)
    paths = announced(markers, *(f"{number:05}" for number in range(10_000)))
    files = [WrittenFile(path, 3, 1) for path in paths]
    for path in paths:
        store.put(path, b"123")
    store.calls.clear()
    assert markers.damaged(files) == []
    assert store.calls == {"sizes": 1}
    assert markers.instants() == [INSTANT]
    assert markers.abort(EPOCH, None) == sorted(paths)
    markers.release(EPOCH, None, final=False)
    assert store.calls == {"sizes": 2, "list": 1 + 2, "remove_stale_uploads": 1, "abandon": 1, "delete": 3}


def test_damage_is_told_of_each_file_and_a_folder_is_no_file(store: Recording, markers: Markers) -> None:
    store.put("p/whole", b"123")
    store.put("p/torn", b"12")
    files = [WrittenFile(path, 3, 1) for path in ("p/whole", "p/torn", "p/gone", "p")]
    assert markers.damaged(files) == ["p/torn has 2 bytes, expected 3", "p/gone is missing", "p is missing"]


def test_instants_are_all_told_though_one_has_very_many_markers(store: Recording, markers: Markers) -> None:
    others = Markers(store, "other")
    times = [f"2026030100000{number:04}" for number in range(8)]
    for number, time in enumerate(times):
        for file in range(2500 if number in (2, 5) else 3):
            of = others if number in (3, 5) else markers
            name = f"{file_id(of.app_id, f'{file:05}')}-0_0-0-0_{time}.parquet"
            of.announce(time, f"p={file % 7}/{name}")
    assert markers.instants() == [times[number] for number in (0, 1, 2, 4, 6, 7)]
    markers.announce(times[5], f"p=9/{file_id('app', 'mine')}-0_0-0-0_{times[5]}.parquet")
    assert markers.instants() == [times[number] for number in (0, 1, 2, 4, 5, 6, 7)], "behind 2,500 of another job"
    assert others.instants() == [times[3], times[5]]


def test_release_right_behind_an_abort_looks_no_second_time_and_the_one_after_it_does() -> None:
    store = ScriptedStore()
    markers = Markers(store, "app", AT_ONCE)
    (late,) = announced(markers, "late")
    markers.abort(EPOCH, None)
    store.put(late, b"closed after the abort")
    store.calls.clear()
    markers.release(EPOCH, None, final=False)
    assert not store.calls
    markers.release(EPOCH, None, final=False)
    assert size_of(store, late) is None
    assert markers.instants() == [INSTANT], "its task may still be alive"


def test_release_right_behind_the_look_at_lost_attempts_looks_no_second_time_and_the_one_after_it_does() -> None:
    store = ScriptedStore()
    markers = Markers(store, "app", AT_ONCE)
    kept, late = announced(markers, "kept", "late")
    markers.delete_unreported(INSTANT, [kept])
    store.put(late, b"closed after that")
    store.calls.clear()
    part = Part("base", EPOCH, 1, 3, (WrittenFile(kept, 3, 1),))
    markers.release(EPOCH, part, final=False)
    assert store.calls == {"delete": 1}, "of the marker that is no longer needed"
    markers.release(EPOCH, part, final=False)
    assert size_of(store, late) is None
    assert markers.instants() == [INSTANT], "its task may still be alive"


def test_last_release_behind_an_abort_drops_late_files_and_all_markers(store: Recording, markers: Markers) -> None:
    (late,) = announced(markers, "late")
    markers.abort(EPOCH, None)
    store.put(late, b"closed after the abort")
    markers.release(EPOCH, None, final=True)
    assert size_of(store, late) is None
    assert markers.instants() == []


class BeginsAgain(Recording):
    """Ignores `after`: every listing starts from the beginning."""

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return super().list(folder, recursive=recursive, limit=limit)


def test_a_store_whose_listings_begin_again_is_not_listed_for_ever() -> None:
    store = BeginsAgain()
    markers = Markers(store, "app", AT_ONCE)
    for number in range(1000):
        store.put(f".hoodie/.temp/2026030100000{number:04d}/x.parquet.marker.CREATE", b"")
    with pytest.raises(StoreUnavailableError, match="lists what is before"):
        markers.instants()


def test_abort_leaves_files_of_another_instant_that_a_part_names_again() -> None:
    """The rollback of a replay must not delete the data files of the lost epochs."""
    markers = Markers(MemoryStore(), "app", AT_ONCE)
    files = [WrittenFile(f"x-0_0-0-0_{instant}.parquet", 1, 1) for instant in ("20240101000000003", INSTANT)]
    for file in files:
        markers.store.put(file.path, b"1")
    assert markers.abort(EPOCH, Part("t", EPOCH, 2, 2, tuple(files))) == [files[1].path]
    assert size_of(markers.store, files[0].path) == 1 and size_of(markers.store, files[1].path) is None
