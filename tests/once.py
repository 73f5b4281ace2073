"""Resources that one worker of a test run starts and all workers use.

::

    worker     lock of the turn      lock of the users
    first      starts, writes value  shared ... exclusive: waits until nobody else has it, then ends it
    others     read the value        shared ... ends with the worker
"""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def once_a_run(name: str, folder: Path, running: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """The value of `running` in the first worker; the resource ends when no worker uses it any more.

    Args:
        name: of the resource, unique in the folder.
        folder: the same for all workers of a run.
        running: starts the resource, and ends it with its block; its value is picklable.
    """
    told = folder / f"{name}.pickle"
    with (folder / f"{name}.users").open("a") as users, (folder / f"{name}.turn").open("a") as turn:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_EX)
        if told.exists():
            fcntl.flock(turn, fcntl.LOCK_UN)
            yield pickle.loads(told.read_bytes())
            return
        with running() as started:
            told.write_bytes(pickle.dumps(started))
            fcntl.flock(turn, fcntl.LOCK_UN)
            try:
                yield started
            finally:
                fcntl.flock(users, fcntl.LOCK_EX)
                told.unlink()
