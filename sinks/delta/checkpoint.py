"""Checkpoints of a Delta table's log, made by a child process beside the epochs.

A checkpoint lists all files of the table, so delta-rs needs time and memory that grow with it. In a child process
neither delays an epoch, and the memory is given back.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_LOG = logging.getLogger(__name__)

# By -c and with this process's path, so that it also runs if Tideline is a shipped zip.
_PROGRAM = "import json, sys; given = json.load(sys.stdin); sys.path[:] = given.pop('path'); "
_PROGRAM += f"from {__name__} import CheckpointRequest, make; make(CheckpointRequest(**given))"


@dataclass(frozen=True)
class CheckpointRequest:
    """One checkpoint to make.

    Attributes:
        location: the table's place as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: certificate file that clients trust, see `sinks.delta.location.trusting`.
        version: the version that it covers.
    """

    location: str
    storage_options: Mapping[str, str] = field(repr=False)
    authorities: str | None
    version: int


@dataclass
class Checkpoints:
    """Makes a process's checkpoints, one at a time. A failure is only logged: checkpoints only help readers."""

    _running: threading.Thread | None = field(default=None, init=False, repr=False)

    def start(self, request: CheckpointRequest) -> None:
        """Make a checkpoint in the background, unless the last one is still being made.

        This process does not exit before the checkpoint is done.
        """
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=_run, args=(request,), name="tideline-checkpoint")
            self._running.start()

    def wait(self) -> None:
        """Return once no checkpoint is being made."""
        if self._running is not None:
            self._running.join()


def make(request: CheckpointRequest) -> None:
    """Make a checkpoint, and delete log entries beyond the table's retention.

    Raises:
        StoreUnavailableError: the checkpoint was not made.
    """
    from sinks.delta.table import foreign_errors, open_table

    handle = open_table(request.location, request.storage_options, request.authorities, request.version)
    with foreign_errors(request.location):
        handle.create_checkpoint()
        if (handle.metadata().configuration.get("delta.enableExpiredLogCleanup") or "true").lower() == "true":
            handle.cleanup_metadata()


def _run(request: CheckpointRequest) -> None:
    # By stdin: everyone can see a command line.
    given = json.dumps({**asdict(request), "path": sys.path})
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], input=given, capture_output=True, text=True, check=False)
    if ended.returncode:
        cause = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        _LOG.warning("%s: no checkpoint of version %d: %s", request.location, request.version, cause)
