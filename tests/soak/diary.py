"""Diary of a soak: one line in a file for each action and observation, with its time."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class Diary:
    """Lines with seconds since the beginning; any thread may write."""

    def __init__(self, path: Path) -> None:
        self.last = ""
        """The newest line, without its time."""
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Write one line."""
        with self._lock:
            self._file.write(f"{time.monotonic() - self._began:9.3f}  {text}\n")
            self.last = text
