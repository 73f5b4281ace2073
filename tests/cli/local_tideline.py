"""`tideline` with its tasks in its own process instead of on Spark; everything else is real.

``TIDELINE_ON_SPARK`` keeps the tasks on Spark.

Three variables name a crash point of the protocol, so that no test depends on timing: ``TIDELINE_FREEZE_AT`` stops the
process there (SIGSTOP), ``TIDELINE_SIGNAL_AT`` sends it SIGTERM (both: ``name``, or ``name:n`` for the n-th pass),
``TIDELINE_FAIL_AT`` raises an unforeseen error (``name``). ``TIDELINE_CLOCK_AHEAD_S`` sets the wall clock ahead of this
machine's, or behind it if negative.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable

import ingest.execution.isolated
import ingest.execution.spark.runner
from ingest.cli.main import main
from ingest.config.models import SparkConfig
from ingest.execution.runner import LocalRunner
from tests import forked_decoder
from timeline import failpoints

SIGNALS = {"TIDELINE_FREEZE_AT": signal.SIGSTOP, "TIDELINE_SIGNAL_AT": signal.SIGTERM}


class SparkFreeRunner(LocalRunner):
    """A local runner with the constructor of the Spark runner."""

    def __init__(
        self, name: str, config: SparkConfig, on_progress: Callable[[int, int], None], *, runs_queries: bool
    ) -> None:
        on_progress(0, 1)


def raise_signals() -> None:
    """Arm the crash points that the environment names."""
    wanted = {_place(os.environ[name]): number for name, number in SIGNALS.items() if name in os.environ}
    passes: Counter[str] = Counter()

    def reached(point: str) -> None:
        passes[point] += 1
        number = wanted.pop((point, passes[point]), None)
        if number is not None:
            os.kill(os.getpid(), number)
        if point == os.environ.get("TIDELINE_FAIL_AT"):
            raise RuntimeError(point)

    if wanted or "TIDELINE_FAIL_AT" in os.environ:
        failpoints.arm(reached)


def _place(setting: str) -> tuple[str, int]:
    point, _, count = setting.partition(":")
    assert point in failpoints.CRASH_POINTS, point
    return point, int(count or 1)


def shift_clock() -> None:
    """Shift the wall clock of this process by ``TIDELINE_CLOCK_AHEAD_S``."""
    ahead_s = int(os.environ.get("TIDELINE_CLOCK_AHEAD_S", "0"))
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + ahead_s
    time.time_ns = lambda: real_time_ns() + ahead_s * 1_000_000_000


if __name__ == "__main__":
    if "TIDELINE_ON_SPARK" not in os.environ:
        ingest.execution.spark.runner.SparkRunner = SparkFreeRunner  # type: ignore[assignment, misc]
        ingest.execution.isolated.start_child = forked_decoder.start_child  # type: ignore[assignment]
    shift_clock()
    raise_signals()
    main()
