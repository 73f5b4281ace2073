"""Waiting for other processes: a test goes on as soon as a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.forked import Command

LONGEST_S = 120.0
"""Timeout for actions that take a second on an idle machine."""
COMMAND_S = 180.0
"""Timeout for an action of a command that starts Spark first."""
_LOOK_EVERY_S = 0.02


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = LONGEST_S) -> None:
    """Return as soon as the condition holds.

    Raises:
        TimeoutError: the condition does not hold within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {timeout_s:g} s: {what}")
        time.sleep(_LOOK_EVERY_S)


def wait_for(holds: Callable[[], bool], process: Command) -> None:
    """Wait for a condition on a running command; the command's end is a failure."""
    wait_until(lambda: process.poll() is not None or holds(), "the command is that far", COMMAND_S)
    assert process.poll() is None, process.communicate()


def wait_until_frozen(process: Command) -> None:
    """Wait for the process to stop itself, with all of its threads."""

    def is_frozen() -> bool:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
        try:
            return {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}
        except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
            return False

    wait_for(is_frozen, process)


def read_until(process: Command, text: str) -> None:
    """Read a command's stderr up to the first line with a text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")
