"""Each check of `tideline check-store` detects its fault."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from ingest.check_store import checks, rehearsals
from ingest.check_store.checks import CheckContext, CheckVerdict
from ingest.check_store.processes import MortalStore
from ingest.check_store.run import Check, CheckResult, StoreReport, check_store, report_json, storage_options
from timeline.errors import ConfigError, StoppedError
from timeline.failpoints import COMMON_POINTS
from timeline.stores.base import BufferedWriter, ObjectInfo, ObjectWriter
from timeline.stores.memory import MemoryStore
from timeline.stores.opening import open_store


class Forgetful(MemoryStore):
    """Overwrites an existing object on create."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        self.put(path, body)


class Blending(MemoryStore):
    """Creates an object with a body that no creator sent."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        super().put_if_absent(path, body[:-1] + b"?")


class Stale(MemoryStore):
    """Keeps the first body of an object, and deleted objects."""

    def put(self, path: str, body: bytes) -> None:
        if path not in self.objects:
            super().put(path, body)

    def delete(self, paths: Collection[str]) -> None: ...


class Lagging(MemoryStore):
    """Omits the last object of each listing."""

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return super().list(folder, recursive=recursive, after=after, limit=limit)[:-1]


class Remembering(MemoryStore):
    """Keeps deleted objects."""

    def delete(self, paths: Collection[str]) -> None: ...


class Tearing(MemoryStore):
    """Replaces an object in two steps."""

    def put(self, path: str, body: bytes) -> None:
        super().put(path, body[:10] + b"torn")
        if path != "replaced":
            super().put(path, body)


class Paging(MemoryStore):
    """Lists the first page of 1,000 objects only."""

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return super().list(folder, recursive=recursive, after=after, limit=limit)[:1000]


class Eager(MemoryStore):
    """Shows an object as soon as its upload begins."""

    def open_write(self, path: str) -> ObjectWriter:
        self.put(path, b"")
        return BufferedWriter(self, path)


@pytest.mark.parametrize(
    ("store", "check"),
    [
        (Forgetful(), checks.one_creator_wins),
        (Blending(), checks.one_creator_wins),
        (Stale(), checks.reads_see_the_latest_write),
        (Remembering(), checks.reads_see_the_latest_write),
        (Lagging(), checks.listings_see_the_latest_write),
        (Remembering(), checks.listings_see_the_latest_write),
        (Tearing(), checks.replacement_is_atomic),
        (Paging(), checks.long_listing_is_complete),
        (Eager(), checks.upload_is_invisible_until_closed),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_check_sees_its_fault_and_passes_a_store_without(store: MemoryStore, check: Check) -> None:
    assert check(CheckContext(store, rounds=3)).verdict is CheckVerdict.FAILED
    assert check(CheckContext(MemoryStore(), rounds=3)).verdict is CheckVerdict.OK


def test_crash_matrix_gets_to_each_crash_point_and_recovers() -> None:
    outcome = rehearsals.every_crash_is_recovered(CheckContext(open_store("memory://matrix")), COMMON_POINTS)
    assert outcome.verdict is CheckVerdict.OK, outcome.seen


def test_crash_matrix_sees_a_recovery_that_does_not_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MortalStore, "delete", lambda self, paths: None)
    outcome = rehearsals.every_crash_is_recovered(CheckContext(open_store("memory://untidy")), ["written"])
    assert outcome.verdict is CheckVerdict.FAILED
    assert "left over" in outcome.seen


def test_store_is_safe_exactly_when_no_check_failed() -> None:
    ok, skipped, failed = (
        CheckResult(verdict.value, verdict, "seen")
        for verdict in (CheckVerdict.OK, CheckVerdict.SKIPPED, CheckVerdict.FAILED)
    )
    assert StoreReport("url", [ok, skipped]).conclusion == "safe for Tideline"
    unsafe = StoreReport("url", [ok, failed, skipped])
    assert unsafe.conclusion == "NOT safe: FAILED"
    assert report_json(unsafe)["safe"] is False


def test_checks_end_where_they_are_told_to() -> None:
    stop, begun = threading.Event(), list[str]()

    def on_check(name: str) -> None:
        begun.append(name)
        if len(begun) == 2:
            stop.set()

    with pytest.raises(StoppedError):
        check_store("memory://stopped", {}, quick=True, stop=stop, on_check=on_check)
    assert len(begun) == 2


def test_options_lead_into_blocks_and_leave_the_job_files_own_alone() -> None:
    given = {"key": "k", "client_kwargs": {"region_name": "x"}}
    options = storage_options(["client_kwargs.endpoint_url=http://a=b", "anon=true", "key=other"], given)
    assert options == {
        "key": "other",
        "anon": True,
        "client_kwargs": {"region_name": "x", "endpoint_url": "http://a=b"},
    }
    assert given == {"key": "k", "client_kwargs": {"region_name": "x"}}


@pytest.mark.parametrize("pair", ["secret", "=private", ""])
def test_option_that_is_no_pair_is_refused_without_its_value(pair: str) -> None:
    with pytest.raises(ConfigError, match="allowed is key=value") as caught:
        storage_options([pair], {})
    assert "private" not in str(caught.value)
