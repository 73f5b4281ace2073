"""A real S3 server on loopback: versitygw over a folder, built once by the Go toolchain and kept in the user's cache.

``python -m tests.real.s3_server`` builds it ahead of the tests.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
START_S = 30.0


class MissingToolchainError(Exception):
    """The server cannot be built here; the message says what is missing."""


@dataclass(frozen=True)
class S3Server:
    """A running server: where it listens, and fsspec options that open it."""

    endpoint_url: str
    key: str
    secret: str

    @property
    def options(self) -> dict[str, Any]:
        """The options for `open_store`."""
        return {
            "key": self.key,
            "secret": self.secret,
            "client_kwargs": {"endpoint_url": self.endpoint_url, "region_name": "us-east-1"},
        }


def build() -> Path:
    """The server's binary, built in the cache if it is not there yet.

    Raises:
        MissingToolchainError: there is no Go toolchain.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingToolchainError("the S3 server needs the Go toolchain (go) to be built: https://go.dev/dl")
    toolchain = subprocess.run([go, "version"], capture_output=True, check=True, text=True).stdout
    digest = hashlib.sha256(f"{MODULE}@{VERSION} {toolchain}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tideline" / "servers"
    binary = cache / f"versitygw-{VERSION}-{digest}"
    if not binary.exists():
        folder = cache / f"building-{os.getpid()}"
        folder.mkdir(parents=True)
        try:
            environment = os.environ | {"GOBIN": str(folder), "CGO_ENABLED": "0"}
            command = [go, "install", "-trimpath", "-ldflags", "-s -w", f"{MODULE}@{VERSION}"]
            subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
            (folder / "versitygw").rename(binary)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return binary


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server over `folder` until the block ends; each first-level folder in it is a bucket."""
    binary = build()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = S3Server(f"http://127.0.0.1:{port}", secrets.token_hex(8), secrets.token_hex(16))
    environment = os.environ | {"ROOT_ACCESS_KEY": server.key, "ROOT_SECRET_KEY": server.secret}
    command = [str(binary), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)]
    with open(folder.parent / "s3-server.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_until_ready(server.endpoint_url, process)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Ready is when it refuses a request without a signature."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start: exit code {process.poll()}, {error}") from error
            time.sleep(0.02)


if __name__ == "__main__":
    try:
        print(build())
    except MissingToolchainError as missing:
        sys.exit(str(missing))
