"""`tideline`, with its tasks run in its own process instead of on Spark; everything else is the real thing.

``TIDELINE_FREEZE_AT=<crash point>`` stops the process (SIGSTOP) when it gets there, ``TIDELINE_SIGNAL_AT=<crash
point>`` sends it SIGTERM. Both work at the protocol's own crash points, so no test has to hit a moment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

import ingest.spark
from ingest.cli import main
from ingest.runner import LocalRunner
from timeline import failpoints

SIGNALS = {"TIDELINE_FREEZE_AT": signal.SIGSTOP, "TIDELINE_SIGNAL_AT": signal.SIGTERM}


class SparkFreeRunner(LocalRunner):
    """Takes what the Spark runner takes."""

    def __init__(self, name: str, master: str, conf: Mapping[str, str], on_progress: Callable[[int, int], None]) -> None:
        on_progress(0, 1)


def raise_signals() -> None:
    wanted = {os.environ[name]: number for name, number in SIGNALS.items() if name in os.environ}

    def reached(point: str) -> None:
        number = wanted.pop(point, None)
        if number is not None:
            os.kill(os.getpid(), number)

    if wanted:
        failpoints.arm(reached)


if __name__ == "__main__":
    ingest.spark.SparkRunner = SparkFreeRunner  # type: ignore[assignment, misc]
    raise_signals()
    main()
