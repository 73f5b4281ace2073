"""S3: the contract on a real server, and the meaning of S3's documented answers."""

from __future__ import annotations

import http.server
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.store_contract import SharedStoreContract
from tests.real.raw_s3 import RawS3
from tests.real.s3_server import S3Server
from timeline.errors import AlreadyExistsError, NotFoundError, StoreUnavailableError
from timeline.stores import s3 as s3_store
from timeline.stores.base import ObjectStore, size_of
from timeline.stores.opening import open_store
from timeline.stores.s3 import S3Store
from timeline.stores.s3_upload import PART_BYTES

FIRST_PART = PART_BYTES + 1
"""Bytes after which an upload has sent its first part. The remaining byte is sent before a server can refuse it; with a
larger remainder, a slow client sees a connection reset instead of the answer."""


@pytest.mark.real
@pytest.mark.slow
class TestS3Store(SharedStoreContract):
    keys_raced = 30

    @pytest.fixture
    def options(self, s3: S3Server) -> dict[str, Any]:
        return s3.options

    @pytest.fixture
    def store(self, s3: S3Server) -> ObjectStore:
        return open_store(f"s3://lake/{uuid.uuid4().hex}/below", s3.options)

    def test_wrong_bucket_is_never_an_empty_store(self, s3: S3Server) -> None:
        store = open_store("s3://no-such-bucket/x", s3.options)
        calls = (
            lambda: store.get("a"),
            lambda: size_of(store, "a"),
            lambda: store.list(""),
            lambda: store.put_if_absent("a", b""),
        )
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="NoSuchBucket"):
                call()

    def test_wrong_secret_is_never_an_absent_object(self, s3: S3Server) -> None:
        store = open_store("s3://lake/x", s3.options | {"secret": "wrong-but-private"})
        for call in (lambda: store.get("a"), lambda: size_of(store, "a"), lambda: store.list("")):
            with pytest.raises(StoreUnavailableError) as caught:
                call()
            assert "wrong-but-private" not in str(caught.value)

    def test_remove_stale_uploads_aborts_old_uploads_and_spares_new_ones(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        abandoned, live = store.open_write("old"), store.open_write("new")
        abandoned.sink.write(bytes(FIRST_PART))
        live.sink.write(bytes(20 << 20))
        store.remove_stale_uploads()
        assert live.close() == 20 << 20
        monkeypatch.setattr(s3_store, "ABANDONED_AFTER", -s3_store.ABANDONED_AFTER)
        store.remove_stale_uploads()
        with pytest.raises(StoreUnavailableError, match="NoSuchUpload"):
            abandoned.close()
        abandoned.discard()
        assert [info.path for info in store.list("")] == ["new"]

    def test_upload_that_was_abandoned_can_no_longer_be_closed(self, store: ObjectStore) -> None:
        zombie, live = store.open_write("d=1/late"), store.open_write("d=1/live")
        for writer in (zombie, live):
            writer.sink.write(bytes(FIRST_PART))
        store.abandon(["d=1/late", "never/was"])
        with pytest.raises(StoreUnavailableError, match="NoSuchUpload"):
            zombie.close()
        zombie.discard()
        assert live.close() == FIRST_PART
        assert [info.path for info in store.list("", recursive=True)] == ["d=1/live"]

    def test_pruning_removes_keys_of_folders_that_others_left_and_no_object(self, s3: S3Server) -> None:
        raw, prefix = RawS3(s3), uuid.uuid4().hex
        store = open_store(f"s3://lake/{prefix}", s3.options)
        for key in ("a/b/_temporary/0/", "a/b/", "other/"):
            raw.put(f"{prefix}/{key}")
        store.put("a/b/stays", b"1")
        store.prune("a/b")
        store.prune("never/was")
        assert raw.keys(prefix) == [f"{prefix}/a/b/stays", f"{prefix}/other/"]

    def test_abandoning_finds_uploads_behind_the_first_page(self, s3: S3Server) -> None:
        raw, prefix = RawS3(s3), uuid.uuid4().hex
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: raw.begin_upload(f"{prefix}/{number:04}"), range(1_003)))
        store = open_store(f"s3://lake/{prefix}", s3.options)
        store.abandon(["0000", "1002"])
        left = raw.uploads(prefix)
        assert (len(left), left[0], left[-1]) == (1_001, f"{prefix}/0001", f"{prefix}/1001")
        store.abandon([key.removeprefix(f"{prefix}/") for key in left])
        assert raw.uploads(prefix) == []


@contextmanager
def answering(status: int, body: bytes, *, length: int | None = None) -> Iterator[tuple[ObjectStore, list[str]]]:
    """A store whose server, on loopback, gives the same answer to every request; and the requests that it received."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            requests.append(f"{self.command} {self.headers.get('If-None-Match', '')}".strip())
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            options = {
                "key": "k",
                "secret": "private",
                "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "us-east-1"},
                "config_kwargs": {"retries": {"max_attempts": 0}, "read_timeout": 5},
            }
            yield open_store("s3://lake/x", options), requests
        finally:
            server.shutdown()
            thread.join()


def error_body(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()


class TestAnswersOfS3:
    """The meaning of S3's documented answers, which a real server does not give on demand."""

    def test_creation_asks_for_absence(self) -> None:
        with answering(200, b"") as (store, requests):
            store.put_if_absent("a", b"1")
            store.put("a", b"1")
        assert requests == ["PUT *", "PUT"]

    def test_failed_precondition_is_a_lost_race(self) -> None:
        with answering(412, error_body("PreconditionFailed")) as (store, _), pytest.raises(AlreadyExistsError):
            store.put_if_absent("a", b"1")

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (409, "ConditionalRequestConflict"),
            (503, "SlowDown"),
            (500, "InternalError"),
            (403, "AccessDenied"),
            (404, "NoSuchBucket"),
            (501, "NotImplemented"),
            (400, "RequestTimeout"),
        ],
    )
    def test_unclear_answer_is_neither_won_nor_lost(self, status: int, code: str) -> None:
        with answering(status, error_body(code)) as (store, _):
            for call in (lambda: store.put_if_absent("a", b"1"), lambda: store.get("a"), lambda: store.delete(["a"])):
                with pytest.raises(StoreUnavailableError, match=code) as caught:
                    call()
                assert caught.value.__cause__ is not None
                assert "private" not in str(caught.value)

    def test_only_a_missing_key_is_an_absent_object(self) -> None:
        with answering(404, error_body("NoSuchKey")) as (store, _):
            with pytest.raises(NotFoundError):
                store.get("a")
            with pytest.raises(StoreUnavailableError):
                store.put_if_absent("a", b"1")

    def test_answer_that_breaks_off_is_never_a_shorter_object(self) -> None:
        with answering(200, b"half", length=100) as (store, _), pytest.raises(StoreUnavailableError):
            store.get("a")

    def test_server_that_is_not_there_is_unavailable(self) -> None:
        with answering(200, b"") as (store, _):
            pass
        with pytest.raises(StoreUnavailableError):
            store.get("a")

    @pytest.mark.parametrize("status", [403, 405, 501])
    def test_store_that_does_not_show_its_uploads_keeps_them(self, status: int) -> None:
        with answering(status, error_body("AccessDenied")) as (store, requests):
            store.abandon(["a"])
            store.remove_stale_uploads()
        assert requests == ["GET", "GET"]

    def test_uploads_that_cannot_be_ended_now_are_an_error(self) -> None:
        with answering(503, error_body("SlowDown")) as (store, _):
            calls: tuple[Callable[[], None], ...] = (lambda: store.abandon(["a"]), store.remove_stale_uploads)
            for call in calls:
                with pytest.raises(StoreUnavailableError, match="SlowDown"):
                    call()

    def test_abandoning_nothing_asks_nothing(self) -> None:
        with answering(503, b"") as (store, requests):
            store.abandon([])
        assert requests == []

    def test_objects_that_a_bulk_delete_leaves_are_an_error_though_the_answer_is_200(self) -> None:
        error = "<Error><Key>below/b</Key><Code>{}</Code><Message>said so</Message></Error>"
        answer = f"<DeleteResult>{error.format('AccessDenied')}{error.format('InternalError')}</DeleteResult>".encode()
        with answering(200, answer) as (store, requests):
            with pytest.raises(StoreUnavailableError, match=r"2 of 3 objects not deleted.*'below/b': AccessDenied"):
                store.delete(["a", "b", "c"])
            assert requests == ["POST"]
        with answering(200, f"<DeleteResult>{error.format('NoSuchKey')}</DeleteResult>".encode()) as (store, _):
            store.delete(["a", "b"])

    @pytest.mark.parametrize("status", [400, 405, 501])
    def test_store_without_bulk_deletes_is_asked_one_by_one(self, status: int) -> None:
        refusing = answering(status, error_body("NotImplemented"))
        with refusing as (store, requests), pytest.raises(StoreUnavailableError, match="NotImplemented"):
            store.delete(["a", "b"])
        assert requests[:2] == ["POST", "DELETE"]

    @pytest.mark.parametrize("status", [500, 503])
    def test_bulk_delete_without_an_answer_is_made_again_as_one(self, status: int) -> None:
        busy = answering(status, error_body("SlowDown"))
        with busy as (store, requests), pytest.raises(StoreUnavailableError, match="SlowDown"):
            store.delete(["a", "b"])
        assert set(requests) == {"POST"}

    def test_sizes_without_an_answer_are_never_absent_objects(self) -> None:
        for few in (["a"], [f"a{number}" for number in range(100)]):
            with answering(503, error_body("SlowDown")) as (store, _), pytest.raises(StoreUnavailableError):
                store.sizes(few)

    @pytest.mark.parametrize(
        "entry",
        [
            "<Key>x/b</Key><Size>3</Size><LastModified>2026-03-01T10:15:00.000Z</LastModified>",
            "<Size>3</Size><LastModified>2026-03-01T10:15:00Z</LastModified><ETag>&quot;1&quot;</ETag><Key>x/b</Key>",
            "<Key>x/b</Key><Size>3</Size><LastModified>Sun, 01 Mar 2026 10:15:00 GMT</LastModified>",
        ],
    )
    @pytest.mark.parametrize("namespace", ["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'])
    def test_listing_is_read_however_it_is_written(self, entry: str, namespace: str) -> None:
        page = f"<ListBucketResult{namespace}><IsTruncated>false</IsTruncated><Contents>{entry}</Contents>"
        with answering(200, f"{page}</ListBucketResult>".encode()) as (store, _):
            (info,) = store.list("")
        assert (info.path, info.size, info.modified_ms) == ("b", 3, 1_772_360_100_000)

    @pytest.mark.parametrize("body", [b"<ListBucketResult><Contents>", b"not a listing"])
    def test_listing_that_cannot_be_read_is_never_an_empty_one(self, body: bytes) -> None:
        with answering(200, body) as (store, _), pytest.raises(StoreUnavailableError):
            store.list("")

    @pytest.mark.parametrize("size", [0, 64 << 20])
    def test_server_that_falls_silent_does_not_hold_a_call_for_ever(self, size: int) -> None:
        # The read timeout ends a small put that is not answered; the call timeout, a large put that is not read.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            options = {
                "key": "k",
                "secret": "s",
                "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}", "region_name": "x"},
                "config_kwargs": {"retries": {"max_attempts": 0}, "read_timeout": 60 if size else 0.2},
            }
            store = S3Store("s3://lake/x", options, call_timeout_s=1.0 if size else 60.0)
            with pytest.raises(StoreUnavailableError):
                store.put("a", bytes(size))
