"""Spark's daemon of Python workers, one of which dies at a crash point; for ``spark.python.daemon.module``.

``TIDELINE_WORKER_DIES_AT`` is ``<point>:<n>:<folder>``: the n-th of all workers to pass the point dies by SIGKILL; the
folder, empty at first, counts the workers.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

from pyspark import daemon

from timeline import failpoints


def arm(setting: str) -> None:
    """Arm the crash point in this process and its forks."""
    point, number, folder = setting.split(":", 2)
    assert point in failpoints.CRASH_POINTS, point

    def reached(name: str) -> None:
        if name == point and _count(Path(folder)) == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(reached)


def _count(folder: Path) -> int:
    for number in itertools.count(1):
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


if __name__ == "__main__":
    arm(os.environ["TIDELINE_WORKER_DIES_AT"])
    daemon.manager()  # type: ignore[no-untyped-call]
