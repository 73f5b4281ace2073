"""Half a minute of random faults on the whole system; ``make soak`` takes longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import or_absent
from tests.job import ROOT, environment
from tests.real import kafka_server, s3_server
from tests.sampling import seed, share

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

MINUTES = share("0.5", "10")


def test_random_faults_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    with or_absent():
        kafka_server.jars()
        s3_server.build()
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--seed",
        str(seed()),
        "--minutes",
        MINUTES,
        "--folder",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate()
    finally:
        process.terminate()  # the process ends its own children
        process.wait()
    assert process.returncode == 0, out
    assert re.fullmatch(r"rows=\d+ faults=\d+ lost=0 duplicate=0 orphans=0", out.splitlines()[-1])
