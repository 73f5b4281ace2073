"""SIGTERM and Ctrl-C: the first one ends the job in order, the second one at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Sets an event at the first signal and restores the default handlers for the next one."""

    def __init__(self, first: str = "the open epoch is settled first") -> None:
        """Install no handler yet.

        Args:
            first: the work done before the process ends, for the log message.
        """
        self.stop = threading.Event()
        self._first = first

    def install(self) -> None:
        """Install the handlers; call it again after a library (Spark) has installed its own."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL if self.stop.is_set() else self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        # Before setting the event: the very thread that is interrupted here may hold the event's lock.
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.stop.set()
        log.warning("%s: stopping; %s (again: stop at once)", signal.Signals(number).name, self._first)
