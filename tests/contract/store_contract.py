"""Guarantees of every object store, as tests: an implementation inherits `StoreContract` and adds a fixture `store`.

A store that other processes can reach inherits `SharedStoreContract`, which adds races and kills of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timeline.errors import AlreadyExistsError, NotFoundError, StoreUnavailableError
from timeline.stores.base import ObjectInfo, ObjectStore, Retry, create_or_read, read_or_none, size_of
from timeline.stores.opening import open_store

RACERS = 8


class StoreContract:
    """Guarantees within one process."""

    keys_raced = 100
    many = 2100
    """Number of objects in a long listing: more than two pages of S3; a store without pages needs fewer."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def test_created_object_is_read_back_whole(self, store: ObjectStore) -> None:
        body = bytes(range(256)) * 5000
        store.put_if_absent("a/b/c.json", body)
        assert store.get("a/b/c.json") == body
        assert size_of(store, "a/b/c.json") == len(body)

    def test_empty_object_exists(self, store: ObjectStore) -> None:
        store.put_if_absent("empty", b"")
        assert store.get("empty") == b""
        assert size_of(store, "empty") == 0
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("empty", b"not empty")

    def test_second_creator_loses_and_changes_nothing(self, store: ObjectStore) -> None:
        store.put_if_absent("decision", b"first")
        with pytest.raises(AlreadyExistsError, match="decision"):
            store.put_if_absent("decision", b"second")
        assert store.get("decision") == b"first"

    def test_creator_loses_against_a_put_and_a_stream(self, store: ObjectStore) -> None:
        store.put("put", b"1")
        writer = store.open_write("stream")
        writer.sink.write(b"2")
        writer.close()
        for path, body in (("put", b"1"), ("stream", b"2")):
            with pytest.raises(AlreadyExistsError):
                store.put_if_absent(path, b"late")
            assert store.get(path) == body

    def test_deleted_key_can_be_created_again(self, store: ObjectStore) -> None:
        store.put_if_absent("x/y", b"1")
        store.delete(["x/y"])
        store.put_if_absent("x/y", b"2")
        assert store.get("x/y") == b"2"

    def test_exactly_one_of_concurrent_threads_creates_each_key(self, store: ObjectStore) -> None:
        barrier = threading.Barrier(RACERS)

        def race(racer: int) -> list[int]:
            won = []
            for number in range(self.keys_raced):
                barrier.wait()
                try:
                    store.put_if_absent(f"race/{number:04}", b"%d" % racer * 3000)
                    won.append(number)
                except AlreadyExistsError:
                    pass
                except StoreUnavailableError:
                    # A missing answer is allowed, a wrong one is not: the object's bytes name the winner.
                    if store.get(f"race/{number:04}") == b"%d" % racer * 3000:
                        won.append(number)
            return won

        with ThreadPoolExecutor(RACERS) as pool:
            wins = list(pool.map(race, range(RACERS)))
        assert sorted(number for won in wins for number in won) == list(range(self.keys_raced))
        for racer, won in enumerate(wins):
            assert all(store.get(f"race/{number:04}") == b"%d" % racer * 3000 for number in won)

    def test_create_or_read_agrees_on_one_body(self, store: ObjectStore) -> None:
        with ThreadPoolExecutor(RACERS) as pool:
            bodies = set(pool.map(lambda n: create_or_read(store, "one", b"by %d" % n, Retry()), range(RACERS)))
        assert bodies == {store.get("one")}

    def test_put_replaces(self, store: ObjectStore) -> None:
        store.put("lease", b"long first body")
        store.put("lease", b"second")
        assert store.get("lease") == b"second"
        assert size_of(store, "lease") == 6

    def test_reader_sees_the_old_bytes_or_the_new_ones(self, store: ObjectStore) -> None:
        bodies = [bytes([97 + number]) * size for number, size in enumerate((200_000, 10, 0, 90_000, 400_000, 3))]
        store.put("lease", bodies[0])
        stop = threading.Event()
        seen: set[bytes] = set()

        def read() -> None:
            while not stop.is_set():
                seen.add(store.get("lease"))

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for _ in range(5):
                for body in bodies:
                    store.put("lease", body)
            stop.set()
            for reader in readers:
                reader.result()
        assert seen <= set(bodies)

    def test_absent_object_is_told_from_an_empty_one(self, store: ObjectStore) -> None:
        with pytest.raises(NotFoundError, match="nothing/here"):
            store.get("nothing/here")
        assert size_of(store, "nothing/here") is None
        assert read_or_none(store, "nothing/here", Retry()) is None

    def test_folder_is_no_object(self, store: ObjectStore) -> None:
        store.put("folder/object", b"1")
        assert size_of(store, "folder") is None
        with pytest.raises(NotFoundError):
            store.get("folder")
        with pytest.raises(NotFoundError):
            store.get("folder/object/below")

    def test_deleting_twice_is_no_error(self, store: ObjectStore) -> None:
        store.put("x", b"1")
        store.delete(["x"])
        store.delete(["x"])
        store.delete(["never/was"])
        assert store.list("", recursive=True) == []

    def test_listing_has_a_folders_own_objects_sorted_with_sizes(self, store: ObjectStore) -> None:
        for path in ("t/b", "t/a", "t/deeper/c", "t2/d", "e", "t/a.b", "t/a-b"):
            store.put(path, path.encode())
        assert store.list("t") == [ObjectInfo(path, len(path)) for path in ("t/a", "t/a-b", "t/a.b", "t/b")]
        assert [info.path for info in store.list("t", recursive=True)] == [
            "t/a",
            "t/a-b",
            "t/a.b",
            "t/b",
            "t/deeper/c",
        ]
        assert [info.path for info in store.list("")] == ["e"]
        assert len(store.list("", recursive=True)) == 7

    def test_listing_an_absent_folder_or_an_object_is_empty(self, store: ObjectStore) -> None:
        store.put("object", b"1")
        assert store.list("absent") == []
        assert store.list("object", recursive=True) == []

    def test_listing_shows_each_change_at_once(self, store: ObjectStore) -> None:
        assert store.list("l") == []
        for number in range(20):
            store.put_if_absent(f"l/{number:02}", b"1")
            assert len(store.list("l")) == number + 1
        for number in range(20):
            store.delete([f"l/{number:02}"])
            assert len(store.list("l")) == 19 - number

    def test_listing_of_more_than_one_page_is_complete(self, store: ObjectStore) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: store.put_if_absent(f"many/{n:05}", b""), range(self.many)))
        assert [info.path for info in store.list("many")] == [f"many/{n:05}" for n in range(self.many)]

    @pytest.mark.parametrize("recursive", [False, True])
    def test_listing_behind_a_path_has_what_sorts_behind_it(self, store: ObjectStore, recursive: bool) -> None:
        paths = [
            "t/a",
            "t/a-b",
            "t/a.b",
            "t/a/c",
            "t/a/d",
            "t/b",
            "t/c=1/a",
            "t/c=1/b",
            "t/c=10/a",
            "t/c/a",
            "t/d",
            "u",
        ]
        for path in paths:
            if path != "t/a":  # on a file system a folder has this name
                store.put(path, b"1")
        whole = [info.path for info in store.list("t", recursive=recursive)]
        assert whole == sorted(whole)
        for after in ("", "a", "t", "t/", *paths, "t/a.a", "t/a/cc", "t/c=1", "t/c=1/", "t/c=1/a0", "t/zz", "v"):
            listed = [info.path for info in store.list("t", recursive=recursive, after=after)]
            assert listed == [path for path in whole if path > after], after
            some = [info.path for info in store.list("t", recursive=recursive, after=after, limit=2)]
            assert some == listed[:2], after

    def test_listing_is_limited_beyond_a_page(self, store: ObjectStore) -> None:
        page = self.many // 2
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: store.put(f"many/{n:05}", b""), range(page + 50)))
        assert [info.path for info in store.list("many", limit=page)] == [f"many/{n:05}" for n in range(page)]
        assert [info.path for info in store.list("many", after=f"many/{page - 50:05}")] == [
            f"many/{n:05}" for n in range(page - 49, page + 50)
        ]

    def test_sizes_are_those_of_the_objects_that_exist(self, store: ObjectStore) -> None:
        for number in range(40):
            store.put(f"d={number % 3}/{number:02}", bytes(number))
        asked = ["absent", "d=0", "d=0/absent", *(f"d={number % 3}/{number:02}" for number in range(40)), "z/absent"]
        expected = {f"d={number % 3}/{number:02}": number for number in range(40)}
        assert store.sizes(asked) == expected
        few = asked[1:6]
        assert store.sizes(few) == {path: expected[path] for path in few if path in expected}
        assert store.sizes(set(asked[:2])) == {}
        assert store.sizes([]) == {}

    def test_many_objects_are_sized_and_deleted_and_their_neighbours_stay(self, store: ObjectStore) -> None:
        paths = [f"d={number % 7}/{number:04}" for number in range(self.many)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda path: store.put(path, b"12"), paths))
        gone = [*paths[::2], "never/was", *(f"d=1/{number}.never" for number in range(20))]
        assert store.sizes(gone) == dict.fromkeys(paths[::2], 2)
        store.delete(gone)
        store.delete(gone)
        assert [info.path for info in store.list("", recursive=True)] == sorted(paths[1::2])
        assert store.sizes(gone) == {}
        store.delete(paths)
        store.delete([])
        assert store.list("", recursive=True) == []

    def test_any_names_are_sized_and_deleted_together(self, store: ObjectStore) -> None:
        names = ["a b", "ü ß 漢字", "a=b&c", "100%", "pct%2Fsl", "plus+plus", "a'b\"c", "<&>", "[x]*", "a:b"]
        paths = [f"{folder}/{name}" for folder in names for name in names]
        for path in paths:
            store.put(path, b"123")
        store.put("kept", b"")
        assert store.sizes(paths) == dict.fromkeys(paths, 3)
        store.delete(paths)
        assert [info.path for info in store.list("", recursive=True)] == ["kept"]

    @pytest.mark.parametrize(
        "name",
        ["with space", "ü ß 漢字", "a=b&c", "100%", "pct%2Fsl", "plus+plus", "a'b\"c", "q?x#y", "[x]*", "a:b", "~"],
    )
    def test_any_name_round_trips(self, store: ObjectStore, name: str) -> None:
        store.put_if_absent(f"d={name}/{name}", b"1")
        assert store.get(f"d={name}/{name}") == b"1"
        assert [info.path for info in store.list("", recursive=True)] == [f"d={name}/{name}"]
        store.delete([f"d={name}/{name}"])
        assert store.list("", recursive=True) == []

    def test_stream_is_whole_once_it_is_closed(self, store: ObjectStore) -> None:
        writer = store.open_write("data/part.bin")
        for number in range(100):
            writer.sink.write(bytes([number]) * 10_000)
        assert writer.close() == 1_000_000
        assert store.get("data/part.bin") == b"".join(bytes([number]) * 10_000 for number in range(100))
        assert store.list("data") == [ObjectInfo("data/part.bin", 1_000_000)]

    def test_empty_stream_makes_an_empty_object(self, store: ObjectStore) -> None:
        assert store.open_write("data/empty").close() == 0
        assert size_of(store, "data/empty") == 0

    def test_stream_of_several_parts_is_whole(self, store: ObjectStore) -> None:
        block = bytes(range(256)) * 4096
        writer = store.open_write("data/large.bin")
        for _ in range(40):
            writer.sink.write(block)
        assert writer.close() == 40 << 20
        assert store.get("data/large.bin") == block * 40

    @pytest.mark.parametrize("size", [0, 10, 40 << 20])
    def test_discarded_stream_leaves_nothing(self, store: ObjectStore, size: int) -> None:
        writer = store.open_write("data/p=1/part.bin")
        writer.sink.write(bytes(size))
        writer.discard()
        writer.discard()
        assert store.list("", recursive=True) == []
        assert size_of(store, "data/p=1/part.bin") is None

    def test_dropped_stream_does_not_pass_for_a_closed_one(self, store: ObjectStore) -> None:
        writer = store.open_write("data/part.bin")
        writer.sink.write(bytes(1000))
        writer.discard()
        del writer
        assert size_of(store, "data/part.bin") is None

    def test_discard_after_close_keeps_the_object(self, store: ObjectStore) -> None:
        writer = store.open_write("data/part.bin")
        writer.sink.write(b"1")
        writer.close()
        writer.discard()
        assert store.get("data/part.bin") == b"1"

    def test_arrow_writes_parquet_into_a_stream(self, store: ObjectStore) -> None:
        table = pa.table({"n": list(range(10_000))})
        writer = store.open_write("data/part.parquet")
        with pq.ParquetWriter(writer.sink, table.schema) as parquet:
            parquet.write_table(table)
        size = writer.close()
        body = store.get("data/part.parquet")
        assert len(body) == size
        assert pq.read_table(pa.BufferReader(body)) == table

    def test_remove_stale_uploads_keeps_every_object(self, store: ObjectStore) -> None:
        store.put_if_absent("a/b", b"1")
        store.put("c", b"2")
        store.remove_stale_uploads()
        assert [info.path for info in store.list("", recursive=True)] == ["a/b", "c"]

    def test_abandoned_upload_leaves_nothing_and_others_stay(self, store: ObjectStore) -> None:
        store.put("d=1/finished", b"1")
        lost, live = store.open_write("d=1/lost"), store.open_write("d=1/live")
        for writer in (lost, live):
            writer.sink.write(bytes(17 << 20))
        store.abandon(["d=1/lost", "d=1/finished", "never/was"])
        store.abandon(["d=1/lost"])
        store.delete(["d=1/lost"])
        lost.discard()
        assert live.close() == 17 << 20
        assert [info.path for info in store.list("", recursive=True)] == ["d=1/finished", "d=1/live"]


class SharedStoreContract(StoreContract):
    """Guarantees between processes; `open_store(store.url, options)` opens the same objects in each process."""

    process_keys_raced = 60

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        return {}

    def test_exactly_one_of_concurrent_processes_creates_each_key(
        self, store: ObjectStore, options: dict[str, Any]
    ) -> None:
        racers = 4
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(racers)
        pipes = []
        processes = []
        for racer in range(racers):
            mine, theirs = context.Pipe(duplex=False)
            arguments = (store.url, options, racer, self.process_keys_raced, barrier, theirs)
            processes.append(context.Process(target=_race, args=arguments))
            processes[-1].start()
            theirs.close()
            pipes.append(mine)
        wins = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join(60)
        assert sorted(number for won in wins for number in won) == list(range(self.process_keys_raced))
        for racer, won in enumerate(wins):
            assert all(store.get(f"race/{number:04}") == b"%d" % racer * 3000 for number in won)

    def test_killed_process_leaves_no_partial_object(self, store: ObjectStore, options: dict[str, Any]) -> None:
        store.put("replaced", b"a" * 300_000)
        for kill in range(12):
            with _writing_process(store.url, options, kill) as process:
                assert process.stdout is not None
                # The number of announced puts before the kill varies, so that each kill hits another point of a put.
                for _ in range(kill % 4 + 1):
                    process.stdout.readline()
                process.send_signal(signal.SIGKILL)
            for info in store.list("", recursive=True):
                body = store.get(info.path)
                assert len(body) == info.size == 300_000
                assert body == body[:1] * 300_000
        store.remove_stale_uploads()
        assert all(info.size == 300_000 for info in store.list("", recursive=True))

    def test_pickled_store_reaches_the_same_objects(self, store: ObjectStore) -> None:
        import pickle

        store.put("x", b"1")
        copy: ObjectStore = pickle.loads(pickle.dumps(store))
        assert copy.get("x") == b"1"
        assert copy.url == store.url

    def test_forked_process_reaches_the_same_objects(self, store: ObjectStore) -> None:
        store.put("x", b"parent")
        process = os.fork()
        if process == 0:
            status = 1
            try:
                store.put("y", store.get("x"))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
        assert store.get("y") == b"parent"


def _race(url: str, options: dict[str, Any], racer: int, keys: int, barrier: Any, pipe: Connection) -> None:
    store = open_store(url, options)
    won = []
    for number in range(keys):
        barrier.wait(60)
        if create_or_read(store, f"race/{number:04}", b"%d" % racer * 3000, Retry()) == b"%d" % racer * 3000:
            won.append(number)
    pipe.send(won)


def _writing_process(url: str, options: dict[str, Any], seed: int) -> subprocess.Popen[bytes]:
    """A process that announces and makes one put after the other, until it is killed."""
    program = f"""
import sys
from timeline.stores.opening import open_store
store = open_store({url!r}, {options!r})
for number in range(10**6):
    body = bytes([97 + number % 26]) * 300_000
    print(number, flush=True)
    store.put("replaced", body)
    store.put_if_absent("created/{seed}/%06d" % number, body)
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
