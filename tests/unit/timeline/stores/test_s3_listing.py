"""A listing fails on a server that repeats one page for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from timeline.errors import StoreUnavailableError
from timeline.stores.s3 import S3Store

PAGE = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>true</IsTruncated>
<NextContinuationToken>again</NextContinuationToken><Contents><Key>x/a</Key><Size>1</Size>
<LastModified>2026-03-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"""


class OnePage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OnePage)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_listing_whose_pages_do_not_go_on_ends_with_a_word(endpoint: str) -> None:
    store = S3Store("s3://lake/x", {"key": "k", "secret": "s", "endpoint_url": endpoint})
    with pytest.raises(StoreUnavailableError, match="cannot be listed: the page behind 'again' begins there again"):
        store.list("")
