"""Crash points do nothing unless armed, and always kill the process when armed by `arm_from`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from timeline.failpoints import CRASH_POINTS, arm, arm_from, reach

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def test_a_point_that_is_not_armed_does_nothing() -> None:
    arm(None)
    for name in CRASH_POINTS:
        reach(name)


def test_the_hook_sees_each_point_until_it_is_disarmed() -> None:
    seen: list[str] = []
    arm(seen.append)
    reach("decided")
    reach("applied")
    arm(None)
    reach("completed")
    assert seen == ["decided", "applied"]


@pytest.mark.parametrize(("setting", "passed"), [("decided", 0), ("decided:1", 0), ("decided:3", 2)])
def test_a_process_armed_from_outside_dies_by_sigkill_at_the_nth_pass(setting: str, passed: int) -> None:
    program = (
        "import sys; from timeline.failpoints import arm_from, reach\n"
        "arm_from(sys.argv[1])\n"
        "for turn in range(5):\n"
        "    reach('manifest'); reach('decided'); print(turn, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, setting], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == [str(turn) for turn in range(passed)]


@pytest.mark.parametrize("setting", ["", "nowhere", "nowhere:2", "decided:x", "decided:", "decided:0", "decided:-1"])
def test_a_wrong_setting_is_refused_before_anything_runs(setting: str) -> None:
    with pytest.raises(ValueError, match=r"known are|allowed are"):
        arm_from(setting)
    for name in CRASH_POINTS:
        reach(name)


def test_every_name_is_reached_somewhere_in_the_code_and_no_other() -> None:
    reached = {
        name
        for package in ("timeline", "sinks", "ingest", "tideline")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'\breach\("([a-z-]+)"\)', path.read_text())
    }
    assert reached == set(CRASH_POINTS)
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS)
