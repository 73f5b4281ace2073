"""The `tideline` commands of a soak: their start, their signals, and checks of their exit codes and logs."""

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
"""The same, on Spark too; it crashes or freezes itself at a step of the protocol."""

ORDERLY_CODES = frozenset({0, 3, 5, 6, 7, 8})
"""Exit codes that faults may cause: not 1 and 2, and not 4, as no source data is ever lost."""

STORE_ERRORS = frozenset({"StoreUnavailableError", "HaltError", "CommitRejectedError", "CommitUnknownError"})
"""Errors with exit codes 5 and 6 of a store that does not answer; any other is a problem."""

_OUR_LOGGERS = ("timeline", "sinks", "ingest")


class Command:
    """One command on the job, in a process of its own."""

    def __init__(
        self, name: str, arguments: Collection[str], job: Path, log: Path, arms: Mapping[str, str] | None = None
    ) -> None:
        """Start the command.

        Args:
            name: its name in the diary.
            arguments: the command and its options, without the job file.
            job: the job file.
            log: file for its log.
            arms: faults that it causes itself, see `tests.cli.local_tideline`.
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
        """Process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code; None while the command runs."""
        return self._process.poll()

    def processes(self, name: str) -> list[psutil.Process]:
        """Descendants of the command that have a name beginning with `name`."""
        return [process for process in self._below() if _name(process).startswith(name)]

    def kill(self) -> None:
        """Send SIGKILL to the command's own process alone: its children notice by themselves."""
        self._is_killed = True
        self._left = self._below()
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """Send SIGKILL to the command and all its descendants."""
        self._is_killed = True
        kill_tree(self._psutil)
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM."""
        self._is_told_to_stop = True
        self._process.terminate()

    @property
    def is_frozen(self) -> bool:
        """Whether the command is stopped (SIGSTOP)."""
        try:
            return self.code is None and self._psutil.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False  # it has ended in between

    def freeze(self) -> None:
        """Send SIGSTOP to the command's own process alone: its JVM and its tasks go on."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Send SIGCONT to the command's own process."""
        self._process.send_signal(signal.SIGCONT)

    def freeze_all(self) -> None:
        """Send SIGSTOP to the command and all its descendants."""
        self.freeze()
        for process in self._below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def wake_all(self) -> None:
        """Send SIGCONT to the command and all its descendants."""
        for process in self._below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.wake()

    def has_ended_within(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for the command's end; whether it has ended."""
        try:
            wait_until(lambda: self.code is not None, f"{self.name} ends", timeout_s)
        except TimeoutError:
            return False
        return True

    def has_left(self) -> list[int]:
        """Ids of its descendants at the time of `kill` that still run."""
        return [process.pid for process in self._left if process.is_running() and _name(process)]

    def complaint(self) -> str | None:
        """Complaint about the command's exit code or log; None if both are in order."""
        allowed = set(ORDERLY_CODES)
        if self._is_killed:
            allowed.add(-signal.SIGKILL)
        if self._is_told_to_stop:
            allowed.add(-signal.SIGTERM)  # its imports had not ended
        assert self.code is not None
        found = complaint_about(self.code, allowed, self._log.read_text(errors="replace"))
        return None if found is None else f"{self.name}: {found}; see {self._log}"

    def _below(self) -> list[psutil.Process]:
        try:
            return self._psutil.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _name(process: psutil.Process) -> str:
    """Name of the process's program; empty if the process has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return ""


def complaint_about(code: int, allowed: Collection[int], log: str) -> str | None:
    """Complaint about the exit code or log of a command; None if both are in order.

    Args:
        code: its exit code.
        allowed: exit codes that are in order.
        log: its log, one JSON object a line; a killed process may have left half a line.
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
