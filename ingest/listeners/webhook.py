"""Transports of one call of ``on_commit``: an HTTP POST or a command, each bounded by its timeout in every case.

Requests (headers, a URL's path, a command's arguments), responses and output are never shown: they may be secret.
A command's exit code, a server's status and the operating system's text for an error are shown.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Protocol
from urllib.parse import urlsplit

from timeline.errors import ConfigError

_AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 that allow a retry. RFC 9110 section 15.5.9, RFC 8470, RFC 6585."""


class NotDeliveredError(Exception):
    """A call was not delivered.

    Attributes:
        is_final: a retry would fail in the same way.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class CallbackTransport(Protocol):
    """Delivers calls, one at a time."""

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """Deliver a call; returns once it has arrived.

        Args:
            key: the idempotency key.
            body: a JSON object.
            environment: environment variables of a command.

        Raises:
            NotDeliveredError: the call did not arrive, as far as this side knows.
        """

    def cut(self) -> None:
        """Abort the running call, from another thread; later calls are aborted at once."""


class UrlTransport:
    """POSTs the body as JSON; any 2xx status means that the call has arrived."""

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout_s: float) -> None:
        """Connect to nothing yet.

        Args:
            url: an http or https URL.
            headers: sent with each call.
            timeout_s: limit for one whole call.
        """
        self._parts = urlsplit(url)
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._is_cut = threading.Event()

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """See CallbackTransport; redirects are not followed: the headers could reach another host."""
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"tideline/{version('tideline')}",
            "Idempotency-Key": key,
        } | self._headers
        connection = kind(parts.hostname or "", parts.port, timeout=self._timeout_s)
        self._connection = connection
        # The socket's timeout is for each packet: a server that sends one now and then would hold the call for ever.
        is_late = threading.Event()

        def end_late() -> None:
            is_late.set()
            _shut(connection)

        watchdog = threading.Timer(self._timeout_s, end_late)
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.connect()
            if self._is_cut.is_set():
                raise NotDeliveredError("the job ended before", is_final=True)
            if is_late.is_set():
                raise TimeoutError  # the watchdog has ended: a request sent now has no deadline and would be retried
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
            if is_late.is_set():
                raise TimeoutError  # http.client takes headers cut off by the closed connection for complete
        except (OSError, http.client.HTTPException) as error:
            if is_late.is_set() or isinstance(error, TimeoutError):
                raise NotDeliveredError(f"no answer within {self._timeout_s:g} s") from error
            raise NotDeliveredError(_words(error)) from error
        finally:
            watchdog.cancel()
            self._connection = None
            connection.close()
        if not 200 <= status < 300:
            redirects = "; redirects are not followed" if 300 <= status < 400 else ""
            raise NotDeliveredError(f"it answered {status}{redirects}", is_final=status < 500 and status not in _AGAIN)

    def cut(self) -> None:
        """See CallbackTransport."""
        self._is_cut.set()
        connection = self._connection
        if connection is not None:
            _shut(connection)


def _shut(connection: http.client.HTTPConnection) -> None:
    """Shut a connection down, so that its reader gets its end; one still being opened has a timeout of its own."""
    opened: socket.socket | None = connection.sock
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


class CommandTransport:
    """Runs a command with the body on its stdin; exit code 0 means that the call has arrived."""

    def __init__(self, command: Sequence[str], *, timeout_s: float) -> None:
        """Start nothing yet.

        Args:
            command: program and arguments; no shell reads them.
            timeout_s: afterwards the command and its process group are killed.
        """
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cut = threading.Event()

    @classmethod
    def found(cls, command: Sequence[str], *, timeout_s: float) -> CommandTransport:
        """Transport for a command whose program exists.

        Raises:
            ConfigError: the program does not exist, or may not be run.
        """
        if shutil.which(command[0]) is None:
            raise ConfigError(
                f"on_commit: there is no program {command[0]!r} that may be run; nothing was started. "
                "Give its whole path, or install it on this machine"
            )
        return cls(command, timeout_s=timeout_s)

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """See CallbackTransport."""
        # A file, not a pipe: a command that does not read its stdin must not block the call.
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(body)
                stdin.seek(0)
                process = subprocess.Popen(
                    self._command,
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,  # its output may hold rows or secrets; logging is up to the command
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **environment},
                    start_new_session=True,  # killed as a group, and not by a Ctrl-C that is meant for the job
                )
        except OSError as error:
            raise NotDeliveredError(_words(error), is_final=isinstance(error, FileNotFoundError)) from error
        self._process = process
        if self._is_cut.is_set():
            _kill(process)
        try:
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
            raise NotDeliveredError(f"it ran for more than {self._timeout_s:g} s and was killed") from None
        finally:
            self._process = None
        if code != 0:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise NotDeliveredError(f"it ended with {how}")

    def cut(self) -> None:
        """See CallbackTransport."""
        self._is_cut.set()
        process = self._process
        if process is not None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command's whole process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _words(error: BaseException) -> str:
    """Text for an error without any part of the request or response."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
