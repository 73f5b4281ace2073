"""An S3 server for targets, and the number of its requests: versitygw over the folder of the targets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real import s3_server

_ACCESS_LOG = "VGW_ACCESS_LOG"
"""The server's environment variable for its access log, a file with one line a request."""


@dataclass(frozen=True)
class Bucket:
    """The folder ``targets`` of a contest as a bucket.

    Attributes:
        server: endpoint, region, key and secret.
        requests: number of requests answered so far.
    """

    server: Mapping[str, str]
    requests: Callable[[], int]

    def place(self, folder: Path) -> str:
        """A target's URL, by its folder."""
        return f"s3://{folder.parent.name}/{folder.name}"


@contextlib.contextmanager
def bucket(scratch: Path) -> Iterator[Bucket]:
    """Run a server over a contest's folder until the block ends.

    Raises:
        MissingToolchainError: the server cannot be built here.
    """
    # The server's own files are beside its data: each folder in the data is a bucket.
    data = scratch / "s3"
    (data / "targets").mkdir(parents=True)
    log = scratch / "s3-requests.log"
    before = os.environ.get(_ACCESS_LOG)
    os.environ[_ACCESS_LOG] = str(log)
    try:
        with s3_server.running(data) as server:
            settings = {
                "endpoint": server.endpoint_url,
                "region": s3_server.REGION,
                "key": server.key,
                "secret": server.secret,
            }
            yield Bucket(settings, lambda: _lines(log))
    finally:
        if before is None:
            del os.environ[_ACCESS_LOG]
        else:
            os.environ[_ACCESS_LOG] = before


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
