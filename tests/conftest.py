"""What all tests share: where they may run, and the servers of the session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.real import s3_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI no test starts a real server; each says so by name."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        return
    for item in items:
        if item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason="real servers are not started in CI"))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.S3Server]:
    """One S3 server for the session, with a bucket named ``lake``; skipped by name where Go is missing."""
    folder = tmp_path_factory.mktemp("s3") / "data"
    (folder / "lake").mkdir(parents=True)
    try:
        s3_server.build()
    except s3_server.MissingToolchainError as missing:
        pytest.skip(str(missing))
    with s3_server.running(folder) as server:
        yield server
