"""Each script of a table runs, from its options to its results file. The figures are not checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import pages
from bench.table import load
from tests.conftest import or_absent
from tests.job import ROOT
from tests.real import s3_server
from tests.sampling import drawing, share

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPTS = sorted(drawing("benchmark scripts").sample(sorted(pages.TABLES), share(2, len(pages.TABLES))))
"""Two for each test run; all for `make test-long`."""


@pytest.mark.parametrize("table", SCRIPTS)
def test_a_table_is_measured_and_kept(table: str, tmp_path: Path) -> None:
    with or_absent():
        s3_server.build()
    options = ["--tiny", "--rounds", "1", "--warm-ups", "0", "--systems", "none besides"]
    command = [sys.executable, "-m", f"bench.{table}", *options, f"--results={tmp_path}", f"--scratch={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert load(table, folder=tmp_path), "its figures are kept"
