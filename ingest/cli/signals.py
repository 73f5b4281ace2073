"""SIGTERM and Ctrl-C: the first one ends the job in order, the second one at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Sets an event at the first signal and gives the default reaction back for the next one."""

    def __init__(self, first: str = "the open epoch is settled first") -> None:
        """Nothing is reacted to yet.

        Args:
            first: what happens before the end, for people.
        """
        self.stop = threading.Event()
        self._first = first

    def install(self) -> None:
        """React from now on; call it again after a library (Spark) has put its own handler in place."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL if self.stop.is_set() else self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        # First: the event's lock may be held by the very thread that is interrupted here.
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.stop.set()
        log.warning("%s: stopping; %s (again: stop at once)", signal.Signals(number).name, self._first)
