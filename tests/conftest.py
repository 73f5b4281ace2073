"""What all tests share: where they may run, and the servers of the session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.real import s3_server


def pytest_configure() -> None:
    """A runner that was put into the background hands an ignored SIGINT down to every process that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def absent(reason: str) -> NoReturn:
    """Skip a test by name where a toolchain or data is missing; in CI nothing may be missing, so it fails there."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        pytest.skip(reason)
    pytest.fail(f"missing in CI: {reason}")


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of the real logs: ``LOGS``, or the data beside the repository."""
    folder = Path(os.environ.get("LOGS", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "apache_access.log").is_file():
        absent(f"the real logs are not in {folder}; set LOGS to their folder")
    return folder


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.S3Server]:
    """One S3 server for the session, with a bucket named ``lake``; skipped by name where Go is missing."""
    folder = tmp_path_factory.mktemp("s3") / "data"
    (folder / "lake").mkdir(parents=True)
    try:
        s3_server.build()
    except s3_server.MissingToolchainError as missing:
        absent(str(missing))
    with s3_server.running(folder) as server:
        yield server
