from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.contract.store_contract import SharedStoreContract, StoreContract
from timeline.errors import (
    AlreadyExistsError,
    ConfigError,
    StoreError,
    StoreUnavailableError,
    TidelineError,
)
from timeline.stores.base import BaseStore, ObjectInfo, ObjectStore, StoreTraits, UnfinishedUpload, size_of
from timeline.stores.local import TEMPORARY_FOLDER, LocalStore
from timeline.stores.memory import MemoryStore
from timeline.stores.opening import open_store


@contextmanager
def repeating(store: ObjectStore, call: str) -> Iterator[None]:
    """Another process that repeats one call on the same store until the block ends."""
    program = f"""
from timeline.stores.opening import open_store
store = open_store({store.url!r})
print("ready", flush=True)
while True:
    {call}
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class FiveCalls(BaseStore):
    """A store with the five methods that `BaseStore` requires, and no other."""

    url = "five://calls"

    def __init__(self) -> None:
        self._objects = MemoryStore()

    def put_if_absent(self, path: str, body: bytes) -> None:
        self._objects.put_if_absent(path, body)

    def put(self, path: str, body: bytes) -> None:
        self._objects.put(path, body)

    def get(self, path: str) -> bytes:
        return self._objects.get(path)

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return self._objects.list(folder, recursive=recursive, after=after, limit=limit)

    def delete(self, paths: Collection[str]) -> None:
        self._objects.delete(paths)


class TestBaseStore(StoreContract):
    many = 200

    @pytest.fixture
    def store(self) -> ObjectStore:
        return FiveCalls()

    def test_what_it_does_not_say_is_what_asks_least_of_it(self, store: ObjectStore) -> None:
        store.make_durable(["nothing/here", ""])
        assert store.traits == StoreTraits("five://calls", 1, True, None, UnfinishedUpload.NOWHERE)
        assert (store.clock(), store.absent_folders()) == (None, ())


class TestLocalStore(SharedStoreContract):
    keys_raced = 300
    process_keys_raced = 200

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(str(tmp_path / "lake"))

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "lake"

    def test_a_process_that_was_stopped_while_it_removed_folders_holds_nobody_up(
        self, store: ObjectStore, root: Path
    ) -> None:
        store.put("a/b", b"1")
        hold = (
            "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print(flush=True); "
        )
        command = [sys.executable, "-c", hold + "sys.stdin.read()", str(root)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stopped:
            assert stopped.stdout is not None
            stopped.stdout.readline()
            stopped.send_signal(signal.SIGSTOP)
            putting = Thread(target=store.put, args=("new/folder/c", b"2"), daemon=True)
            putting.start()
            putting.join(20)
            stopped.kill()
            assert not putting.is_alive()
        assert store.get("new/folder/c") == b"2"

    def test_nothing_is_made_before_the_first_object(self, store: ObjectStore, root: Path) -> None:
        store.list("")
        size_of(store, "x")
        store.delete(["x/y"])
        store.remove_stale_uploads()
        assert not root.exists()

    def test_no_temporary_file_stays(self, store: ObjectStore, root: Path) -> None:
        store.put_if_absent("a", b"1")
        store.put("a", b"2")
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("a", b"3")
        assert list((root / TEMPORARY_FOLDER).iterdir()) == []

    def test_delete_leaves_no_empty_folder(self, store: ObjectStore, root: Path) -> None:
        store.put("a/b/c/one", b"")
        store.put("a/two", b"")
        store.remove_stale_uploads()
        store.delete(["a/b/c/one"])
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["a", "a/two"]
        store.delete(["a/two"])
        assert list(root.iterdir()) == []

    def test_deleting_many_leaves_no_empty_folder(self, store: ObjectStore, root: Path) -> None:
        paths = [f"a/p={number % 250}/{number}" for number in range(500)]
        for path in [*paths, "a/p=7/stays"]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(b"")
        (root / "b/c").mkdir(parents=True)
        store.delete([*paths, "b/c/gone"])
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["a", "a/p=7", "a/p=7/stays"]

    def test_none_of_many_is_deleted_where_one_is_no_key(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "outside").write_bytes(b"")
        store.put("a", b"1")
        with pytest.raises(StoreError, match="outside"):
            store.delete(["a", "../outside"])
        assert size_of(store, "a") == 1
        assert (tmp_path / "outside").exists()

    def test_writers_survive_deletes_of_many_that_remove_their_folders(self, store: ObjectStore) -> None:
        with repeating(store, "store.delete([f'p/q{n}/other' for n in range(20)])"):
            for number in range(100):
                store.put_if_absent(f"p/q{number % 20}/{number}", b"1")
                store.delete([f"p/q{number % 20}/{number}"])

    def test_deleting_again_removes_folders_that_a_killed_delete_left(self, store: ObjectStore, root: Path) -> None:
        (root / "a/b").mkdir(parents=True)
        store.delete(["a/b/gone"])
        assert list(root.iterdir()) == []

    def test_pruning_removes_folders_that_others_left_and_no_object(self, store: ObjectStore, root: Path) -> None:
        (root / "a/b/c").mkdir(parents=True)
        (root / "a/d/e").mkdir(parents=True)
        store.put("a/d/stays", b"")
        store.prune("a")
        store.prune("never/was")
        assert sorted(str(path.relative_to(root)) for path in (root / "a").rglob("*")) == ["a/d", "a/d/stays"]

    def test_discard_leaves_no_empty_folder(self, store: ObjectStore, root: Path) -> None:
        writer = store.open_write("p=1/q=2/part")
        writer.sink.write(b"1")
        writer.discard()
        assert list(root.iterdir()) == []

    def test_writers_survive_deletes_that_remove_their_folder(self, store: ObjectStore) -> None:
        with repeating(store, "store.delete(['p/q/other'])"):
            for number in range(200):
                store.put_if_absent(f"p/q/{number}", b"1")
                store.delete([f"p/q/{number}"])
                writer = store.open_write(f"p/q/s{number}")
                assert writer.close() == 0
                store.delete([f"p/q/s{number}"])

    def test_remove_stale_uploads_removes_what_a_killed_put_left(self, store: ObjectStore, root: Path) -> None:
        store.put("a", b"1")
        (root / TEMPORARY_FOLDER / "left").write_bytes(b"half")
        assert [info.path for info in store.list("", recursive=True)] == ["a"]
        store.remove_stale_uploads()
        assert [path.name for path in root.iterdir()] == ["a"]
        store.remove_stale_uploads()

    def test_remove_stale_uploads_spares_live_puts(self, store: ObjectStore) -> None:
        with repeating(store, "store.remove_stale_uploads()"):
            for number in range(200):
                store.put_if_absent(f"d/{number}", b"%d" % number)
                store.put("replaced", b"%d" % number)
        assert all(store.get(f"d/{number}") == b"%d" % number for number in range(200))

    def test_closing_a_stream_that_was_deleted_is_an_error(self, store: ObjectStore) -> None:
        writer = store.open_write("p/part")
        writer.sink.write(b"1")
        store.delete(["p/part"])
        with pytest.raises(StoreUnavailableError, match="deleted by another process"):
            writer.close()

    def test_path_out_of_the_root_is_never_followed(self, store: ObjectStore, root: Path) -> None:
        outside = root.parent / "outside"
        outside.write_bytes(b"mine")
        for path in ("../outside", "a/../../outside", str(outside), "", ".", "a//b", "a/./b", "a/", "a\0b"):
            for act in (
                store.get,
                lambda path: store.delete([path]),
                partial(size_of, store),
                lambda path: store.put(path, b""),
            ):
                with pytest.raises(StoreError, match="is no key below"):
                    act(path)
        with pytest.raises(StoreError):
            store.put(f"{TEMPORARY_FOLDER}/x", b"")
        assert outside.read_bytes() == b"mine"

    def test_file_where_a_folder_is_needed_is_no_lost_race(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        with pytest.raises(StoreUnavailableError, match="Not a directory"):
            store.put_if_absent("a/b", b"2")
        with pytest.raises(StoreUnavailableError):
            store.open_write("a/b")
        store.delete(["a/b"])
        assert store.get("a") == b"1"

    def test_listing_of_ten_thousand_objects_opens_none(self, store: ObjectStore, root: Path) -> None:
        (root / "timeline").mkdir(parents=True)
        for number in range(10_000):
            (root / "timeline" / f"{number:05}").touch()
        os.chmod(root / "timeline" / "00000", 0)
        assert len(store.list("timeline")) == 10_000

    def test_full_disk_is_told_while_writing_and_leaves_nothing(self, tmp_path: Path) -> None:
        # RLIMIT_FSIZE simulates a full disk without root rights, in a process of its own.
        program = f"""
import errno, resource, signal
from timeline.errors import StoreUnavailableError
from timeline.stores.opening import open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
store = open_store({str(tmp_path / "full")!r})
for put in (store.put, store.put_if_absent):
    try:
        put("big", bytes(200_000))
    except StoreUnavailableError as error:
        assert error.__cause__.errno == errno.EFBIG, error
        assert "File too large" in str(error), error
    else:
        raise SystemExit("no error")
writer = store.open_write("p/stream")
try:
    for _ in range(100):
        writer.sink.write(bytes(50_000))
    writer.close()
except StoreUnavailableError:
    writer.discard()
else:
    raise SystemExit("no error")
store.remove_stale_uploads()
assert store.list("", recursive=True) == []
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert list((tmp_path / "full").iterdir()) == []

    def test_file_system_without_hard_links_is_refused(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(ConfigError, match=r"cannot be linked into place .*one file system with hard links"):
            store.put_if_absent("a", b"1")
        assert size_of(store, "a") is None


def test_store_shows_no_credentials() -> None:
    store = open_store("s3://lake/x", {"key": "AKIAX", "secret": "private", "client_kwargs": {"token": "private"}})
    assert "private" not in repr(store) + str(store) + store.url
    assert "AKIAX" not in repr(store)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("s3://key:private@lake/x", {}, "credentials in a URL end up in logs"),
        ("s3://", {}, "names no bucket"),
        ("", {}, "the path is empty"),
        ("file://", {}, "the path is empty"),
        ("ftp://host/x", {}, "no store that creates objects exclusively"),
        ("http://host/x", {}, "allowed are local paths, file://, s3://, memory://"),
    ],
)
def test_url_that_cannot_be_a_store_is_refused(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_store(url, options)
    assert "private" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"nonsense": "private"},
        {"client_kwargs": {"nonsense": "private"}},
        {"client_kwargs": {"endpoint_url": "private"}},
        {"config_kwargs": {"nonsense": "private"}},
        {"client_kwargs": "private"},
        {"config_kwargs": "private"},
        {"key": "a", "username": "private"},
    ],
)
def test_options_that_s3fs_does_not_take_are_a_mistake_in_the_job_file(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="s3fs does not take the options") as caught:
        open_store("s3://lake/x", {"key": "k", "secret": "s"} | options).get("a")
    assert "private" not in str(caught.value)
    assert isinstance(caught.value, TidelineError)


def test_one_memory_url_is_one_store_in_the_process() -> None:
    name = f"memory://{uuid.uuid4().hex}"
    open_store(name).put("a", b"1")
    assert open_store(name).get("a") == b"1"
    assert size_of(open_store(f"{name}-other"), "a") is None


def test_relative_path_is_below_the_current_folder_once_and_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("lake/x")
    monkeypatch.chdir("/")
    assert store.url == f"file://{tmp_path}/lake/x"
    assert open_store(store.url) == pickle.loads(pickle.dumps(store)) == LocalStore(f"{tmp_path}/lake/x")
