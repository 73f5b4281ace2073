"""The driver's memory does not grow with the number of epochs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_hundred_further_epochs_do_not_grow_the_driver(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.memory.over_epochs", str(tmp_path), "400", "25"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = {int(epoch): float(mib) for epoch, mib in (line.split() for line in done.stdout.splitlines())}
    # The first epochs and the first two checkpoints fill allocators and caches; then memory is constant.
    before = max(sizes[epoch] for epoch in (150, 175, 200))
    after = min(sizes[epoch] for epoch in (350, 375, 400))
    print(sizes)
    assert after < before * 1.1, sizes
