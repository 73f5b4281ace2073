"""Named crash points of the protocol: `reach(name)` is called between any two externally visible steps.

It does nothing unless armed. A test arms it with a function that raises or kills. The command line
passes ``TIDELINE_CRASH_AT=<name>[:<n>]`` to `arm_from`; the process then kills itself by SIGKILL
when it reaches the point for the n-th time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

CRASH_POINTS = (
    "planned",
    "requested",
    "inflight",
    "transaction-begun",
    "begun",
    "task-started",
    "file-announced",
    "task-written",
    "written",
    "part-prepared",
    "manifest",
    "decided",
    "applying",
    "part-committing",
    "primary-committed",
    "part-committed",
    "applied",
    "completed",
    "part-released",
    "rollback-requested",
    "rollback-inflight",
    "part-aborted",
    "rollback-completed",
    "rollback-inflight-removed",
    "rollback-requested-removed",
    "lease-taken",
)
"""All crash points, in the order in which an epoch and then a rollback pass them."""

OF_TRANSACTIONS = ("transaction-begun", "primary-committed")
"""Crash points that only targets with transactions of their own pass."""

COMMON_POINTS = tuple(name for name in CRASH_POINTS if name not in OF_TRANSACTIONS)
"""Crash points that every job passes, whatever its targets are."""

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Pass a crash point."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of each crash point passed from now on; None disarms."""
    global _hook
    _hook = hook


def arm_from(setting: str) -> None:
    """Arm this process to kill itself at ``name`` or ``name:n``.

    Raises:
        ValueError: the crash point is unknown, or the count is no positive number.
    """
    name, colon, count = setting.partition(":")
    if name not in CRASH_POINTS:
        raise ValueError(f"crash point {name!r}: known are {', '.join(CRASH_POINTS)}")
    if colon and not (count.isdecimal() and int(count) > 0):
        raise ValueError(f"crash point {setting!r}: {count!r} is no number of passes, allowed are 1, 2, 3, …")
    left = int(count or 1)

    def kill(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    arm(kill)
