"""The `tideline` commands of a soak: how they are started, and what they must not say or end with."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.job import environment
from tests.real.processes import kill_tree
from tests.waiting import wait_until

TIDELINE = (sys.executable, "-m", "ingest")
ARMED = (sys.executable, "-m", "tests.cli.local_tideline")
"""The same, on Spark like the other; it does something to itself at a step of the protocol."""

ORDERLY_CODES = frozenset({0, 3, 5, 6, 7, 8})
"""Exit codes that faults may bring about: not 1 and 2, and not 4, as nothing of the source is ever lost."""

STORE_ERRORS = frozenset({"StoreUnavailableError", "HaltError", "CommitRejectedError", "CommitUnknownError"})
"""Errors behind the codes 5 and 6 that say that a store does not answer; others say that something is wrong."""

_OUR_LOGGERS = ("timeline", "sinks", "ingest")


class Command:
    """One command on the job, in a process of its own."""

    def __init__(
        self, name: str, arguments: Collection[str], job: Path, log: Path, arms: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            name: for the diary.
            arguments: the command and its options, without the job file.
            job: the job file.
            log: takes its log.
            arms: what it does to itself, see `tests.cli.local_tideline`.
        """
        self.name = name
        self._log = log
        self._is_told_to_stop = False
        self._is_killed = "TIDELINE_CRASH_AT" in (arms or {})
        self._left: list[psutil.Process] = []
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*(ARMED if arms else TIDELINE), *arguments, str(job), "--log-json"],
                cwd=log.parent,
                env=environment() | ({"TIDELINE_ON_SPARK": "1", **arms} if arms else {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self._psutil = psutil.Process(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def processes(self, name: str) -> list[psutil.Process]:
        """The processes of this name that it has started, and those that they have."""
        return [process for process in self._below() if _name(process).startswith(name)]

    def kill(self) -> None:
        """SIGKILL, to its own process alone: what it has started finds out by itself."""
        self._is_killed = True
        self._left = self._below()
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """SIGKILL, to it and to all that it has started."""
        self._is_killed = True
        kill_tree(self._psutil)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM."""
        self._is_told_to_stop = True
        self._process.terminate()

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped (SIGSTOP)."""
        try:
            return self.code is None and self._psutil.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False  # it has ended in between

    def freeze(self) -> None:
        """SIGSTOP, to its own process alone: its JVM and its tasks go on."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def freeze_all(self) -> None:
        """SIGSTOP, to it and to all that it has started."""
        self.freeze()
        for process in self._below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def wake_all(self) -> None:
        """SIGCONT, to it and to all that it has started."""
        for process in self._below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.wake()

    def has_ended_within(self, timeout_s: float) -> bool:
        """Wait for its end, at most so long."""
        try:
            wait_until(lambda: self.code is not None, f"{self.name} ends", timeout_s)
        except TimeoutError:
            return False
        return True

    def has_left(self) -> list[int]:
        """What it had started when it was killed, and still runs."""
        return [process.pid for process in self._left if process.is_running() and _name(process)]

    def complaint(self) -> str | None:
        """What is wrong with the way it has ended; None if nothing is."""
        allowed = set(ORDERLY_CODES)
        if self._is_killed:
            allowed.add(-signal.SIGKILL)
        if self._is_told_to_stop:
            allowed.add(-signal.SIGTERM)  # it was not further than its imports
        assert self.code is not None
        found = complaint_about(self.code, allowed, self._log.read_text(errors="replace"))
        return None if found is None else f"{self.name}: {found}; see {self._log}"

    def _below(self) -> list[psutil.Process]:
        try:
            return self._psutil.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _name(process: psutil.Process) -> str:
    """Of its program; empty where it has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return ""


def complaint_about(code: int, allowed: Collection[int], log: str) -> str | None:
    """What is wrong with a command that has ended; None if nothing is.

    Args:
        code: its exit code.
        allowed: exit codes that are in order.
        log: what it logged, one JSON object a line; a killed process may have left half of one.
    """
    lines = log.splitlines()
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if code != -signal.SIGKILL or number < len(lines) - 1:
                return f"logged what is not JSON: {line}"
    last = records[-1] if records else {}
    if code not in allowed:
        return f"ended with code {code}: {last.get('message')}"
    if code in (5, 6) and last.get("kind") not in STORE_ERRORS:
        return f"ended with code {code} by {last.get('kind')}: {last.get('message')}"
    for record in records:
        if "error" in record and record["logger"].partition(".")[0] in _OUR_LOGGERS:
            return f"logged a traceback: {record['error']}"
    return None
