"""Keeps one driver running, as a service manager does: whatever it ends with, the next one is started at once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.soak.commands import Command
from tests.soak.diary import Diary
from tests.waiting import wait_until

_POLL_S = 0.05
_START_S = 60.0


class Supervisor:
    """All commands of a soak. `run` supervises them in a thread; any thread may call the other methods."""

    def __init__(self, job: Path, folder: Path, diary: Diary) -> None:
        """Start nothing yet.

        Args:
            job: the job file.
            folder: takes the commands' logs.
            diary: records starts and ends of commands.
        """
        self.complaints: list[str] = []
        """Complaints about commands that have ended."""
        self.codes: Counter[int] = Counter()
        """Number of ended commands by exit code."""
        self._job = job
        self._folder = folder
        self._diary = diary
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: list[Command] = []
        self._ended: list[Command] = []
        self._driver: Command | None = None
        self._arms: Mapping[str, str] = {}
        self._is_paused = False

    def run(self, stop: threading.Event) -> None:
        """Start drivers, and note how commands end, until `stop` is set."""
        while not stop.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Note the ends of commands, and start a driver where there is none."""
        with self._lock:
            for command in [each for each in self._running if each.code is not None]:
                self._note_end(command)
            if self._driver is None and not self._is_paused:
                self._driver = self._start("run", "--continuous", arms=self._arms)
                self._arms = {}

    def start(self, *arguments: str, arms: Mapping[str, str] | None = None) -> Command:
        """Start a command beside the driver; see `Command` for its arms."""
        with self._lock:
            return self._start(*arguments, arms=arms)

    def replace_driver(self, arms: Mapping[str, str]) -> Command:
        """Kill the driver and start the next one with `arms`, see `Command`; returns the next one."""
        killed = self.driver()
        with self._lock:
            self._arms = arms
        killed.kill()
        wait_until(lambda: self._driver not in (None, killed), "the next driver runs", _START_S)
        return self.driver()

    def driver(self) -> Command:
        """The running driver; waits for one where there is none."""
        wait_until(lambda: self._driver is not None, "a driver runs", _START_S)
        driver = self._driver
        return driver if driver is not None else self.driver()

    def set_aside(self, driver: Command) -> None:
        """Treat a driver as ended: the next one is started though this one runs."""
        with self._lock:
            if self._driver is driver:
                self._driver = None

    def pause(self) -> Command | None:
        """Start no more drivers until `resume`; returns the one that runs."""
        with self._lock:
            self._is_paused = True
            return self._driver

    def resume(self) -> None:
        """Start drivers again."""
        self._is_paused = False

    def kill_drivers(self) -> None:
        """Kill all running commands, and wait for the descendants of all killed commands to end.

        Raises:
            TimeoutError: a descendant of a killed command goes on.
        """
        with self._lock:
            for command in self._running:
                command.kill()
        self.look()
        wait_until(lambda: not any(command.has_left() for command in self._ended), "what killed drivers started ends")

    def kill_all(self) -> None:
        """Kill all commands and their descendants, and start no more drivers."""
        self.pause()
        with self._lock:
            for command in self._running:
                command.kill_all()

    def _start(self, *arguments: str, arms: Mapping[str, str] | None = None) -> Command:
        name = f"{next(self._numbers):04d}-{'-'.join(argument.strip('-') for argument in arguments)}"
        command = Command(name, arguments, self._job, self._folder / f"{name}.jsonl", arms)
        self._running.append(command)
        armed = "".join(f", {arm}={place}" for arm, place in (arms or {}).items())
        self._diary.note(f"started {name}: process {command.pid}{armed}")
        return command

    def _note_end(self, command: Command) -> None:
        assert command.code is not None
        self._running.remove(command)
        self._ended.append(command)
        if self._driver is command:
            self._driver = None
        self.codes[command.code] += 1
        self._diary.note(f"ended {command.name}: code {command.code}")
        complaint = command.complaint()
        if complaint is not None:
            self._diary.note(f"complaint: {complaint}")
            self.complaints.append(complaint)
