"""`tideline`, with its tasks run in its own process instead of on Spark; everything else is the real thing.

Three variables name a crash point of the protocol at which something happens to the process, so that no test has to
hit a moment: ``TIDELINE_FREEZE_AT`` stops it (SIGSTOP), ``TIDELINE_SIGNAL_AT`` sends it SIGTERM, ``TIDELINE_FAIL_AT``
raises what nobody foresees.
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

    def __init__(
        self, name: str, master: str, conf: Mapping[str, str], on_progress: Callable[[int, int], None]
    ) -> None:
        on_progress(0, 1)


def raise_signals() -> None:
    wanted = {os.environ[name]: number for name, number in SIGNALS.items() if name in os.environ}

    def reached(point: str) -> None:
        number = wanted.pop(point, None)
        if number is not None:
            os.kill(os.getpid(), number)
        if point == os.environ.get("TIDELINE_FAIL_AT"):
            raise RuntimeError(point)

    if wanted or "TIDELINE_FAIL_AT" in os.environ:
        failpoints.arm(reached)


if __name__ == "__main__":
    ingest.spark.SparkRunner = SparkFreeRunner  # type: ignore[assignment, misc]
    raise_signals()
    main()
