"""Server processes on loopback: started and waited for until they answer, ended by their id."""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.waiting import wait_until

HOST = "127.0.0.1"
START_S = 120.0
STOP_S = 30.0
PORT_ATTEMPTS = 5
# Below the ephemeral ports (Linux from 32768, others from 49152): while a server is down, no outgoing connection takes
# its port, not even that of a client that tries to reach it.
_PORTS = range(10_000, 32_768)
# Error texts of Java, Go and Python.
_PORT_TAKEN = ("ddress already in use", "BindException")

T = TypeVar("T")


class ServerStartError(Exception):
    """A server ended or did not answer in time; the message has its log output."""


class PortTakenError(ServerStartError):
    """Another process has the port: start with other ports."""


class ServerProcess:
    """One program that can be started, stopped, killed and started again with the same arguments."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Do not start the program yet.

        Args:
            name: of the server, for messages.
            command: the program and its arguments.
            log: takes the program's stdout and stderr; the log's folder is the working directory.
            environment: of the program; this process's own by default.
        """
        self._name = name
        self._command = command
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State without the process: a copy in another process counts as never started, and cannot end the program."""
        return vars(self) | {"_process": None}

    @property
    def pid(self) -> int:
        """The id of the last started process."""
        if self._process is None:
            raise ValueError(f"{self._name} was never started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def listening_ports(self) -> set[int]:
        """Ports on which this program listens, and not another process that took the port first."""
        sockets = psutil.Process(self.pid).net_connections("tcp") if self.is_running else []
        return {at.laddr.port for at in sockets if at.status == psutil.CONN_LISTEN}

    def start(self, is_ready: Callable[[], bool]) -> None:
        """Start the program and wait until it is ready; on failure the program is killed.

        Raises:
            PortTakenError: the program ended because a port was taken.
            ServerStartError: the program ended, or was not ready within START_S.
        """
        if self.is_running:
            raise ValueError(f"{self._name} runs already (process {self.pid})")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as log:
            begin = log.tell()
            # In a session of its own, so that Ctrl-C reaches only the tests, which end their servers.
            self._process = subprocess.Popen(
                self._command,
                cwd=self._log.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: not self.is_running or is_ready(), f"{self._name} answers", START_S)
        except BaseException as error:
            self.kill()
            if isinstance(error, TimeoutError):
                raise ServerStartError(f"{error}; it said: {self.said(begin)}") from error
            raise
        if not self.is_running:
            said = self.said(begin)
            kind = PortTakenError if any(words in said for words in _PORT_TAKEN) else ServerStartError
            raise kind(f"{self._name} ended with code {self._process.returncode}; it said: {said[-2000:]}")

    def said(self, since: int = 0) -> str:
        """Text of the program's log.

        Args:
            since: first byte of the log to return.
        """
        return self._log.read_bytes()[since:].decode(errors="replace")

    def stop(self) -> None:
        """Terminate the program, and kill it if it does not end within STOP_S; no effect if it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the program and all processes that it has started (SIGKILL)."""
        if self._process is not None and self._process.poll() is None:
            kill_tree(psutil.Process(self._process.pid))
            self._process.wait()


def kill_tree(process: psutil.Process) -> None:
    """Kill a process and all its descendants, as the loss of a machine does: none of them can react.

    Each process is suspended before its children are listed, so that no new child is missed.
    """
    try:
        process.suspend()
        for child in process.children():
            kill_tree(child)
        process.kill()
    except psutil.NoSuchProcess:
        return


def on_free_ports(count: int, start: Callable[[Sequence[int]], T]) -> T:
    """Call `start` with free ports, and after PortTakenError with others; at most PORT_ATTEMPTS calls."""
    attempts = PORT_ATTEMPTS
    while True:
        attempts -= 1
        try:
            return start(_free_ports(count))
        except PortTakenError:
            if attempts == 0:
                raise


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports(count: int) -> Sequence[int]:
    # A generator of its own: tests seed the shared one.
    candidates = random.Random().sample(_PORTS, len(_PORTS))
    return list(itertools.islice(filter(is_free, candidates), count))
