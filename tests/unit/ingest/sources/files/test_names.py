"""Names that a rotation can give a log, and names of other files."""

from __future__ import annotations

import pytest

from ingest.sources.files.names import may_become

LOG = "/log/app.log"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LOG, "/log/app.log.1"),
        (LOG, "/log/app.log.gz"),
        (LOG, "/log/app.log.2.gz"),
        (LOG, "/log/app.1.log"),
        (LOG, "/log/app.1.log.zst"),
        (LOG, "/log/app.log-20261123"),
        (LOG, "/log/app.log-20261123-1795484332.gz"),
        (LOG, "/log/app.log-2026112310"),
        (LOG, "/log/app.log-1795484332"),
        (LOG, "/log/app-2026-11-23.log.gz"),
        (LOG, "/log/old/app.log.1"),
        ("/log/0.log", "/log/0.log.20261123-101010.gz"),
        ("/log/app.log.1", "/log/app.log.1.gz"),
        ("/log/app.log.1", "/log/app.log.2.gz"),
        ("/log/app.log-20261123", "/log/app.log-20261123.gz"),
        ("/log/app.log.tmp", "/log/old/app.log.1"),
    ],
)
def test_a_log_gets_names_of_a_rotation(before: str, after: str) -> None:
    assert may_become(before, after)
    assert not may_become(after, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LOG, LOG),
        (LOG, "/log/web.log.1"),
        (LOG, "/log/old/app.log"),
        ("/log/app.log.2", "/log/app.log.1.gz"),
        ("/log/app.log.1", "/log/app.log.2"),
        ("/log/app.log-20261122", "/log/app.log-20261123.gz"),
        ("/log/part-0001.json", "/log/part-0002.json"),
        ("/log/part-000001.json", "/log/part-000002.json.gz"),
        ("/log/10.0.0.1.log", "/log/10.0.0.2.log"),
        ("/log/host-1.log", "/log/host-2.log.gz"),
    ],
)
def test_names_of_other_files_are_no_rotation(before: str, after: str) -> None:
    assert not may_become(before, after)
