"""How one call of ``on_commit`` is made: a POST, or a command; each within its timeout, whatever the other side does.

What either says, and what it was sent (headers, the path of a URL, a command's arguments), is shown nowhere: it may be
secret. A command's exit code, a server's status and the system's own words for an error are.
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
"""Answers below 500 that mean: later. RFC 9110 section 15.5.9, RFC 8470, RFC 6585."""


class NotDeliveredError(Exception):
    """A call did not arrive.

    Attributes:
        is_final: it would be the same again.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class CallbackTransport(Protocol):
    """Makes calls, one at a time."""

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """Make a call; returns once it has arrived.

        Raises:
            NotDeliveredError: it did not, as far as can be told.
        """

    def cut(self) -> None:
        """End the call that is under way, from another thread; later ones end at once."""


class UrlTransport:
    """POSTs the body as JSON; any answer of 2xx means that it has arrived."""

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout_s: float) -> None:
        """Connect to nothing yet.

        Args:
            url: an http or https URL.
            headers: sent with each call.
            timeout_s: for the whole of one call.
        """
        self._parts = urlsplit(url)
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._is_cut = threading.Event()

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """See CallbackTransport; redirects are not followed, they would take the headers elsewhere."""
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
                raise TimeoutError  # nobody watches any more: what is sent now would be sent again
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
            if is_late.is_set():
                raise TimeoutError  # to http.client, headers that end with the connection are whole
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
    """Let whoever reads from a connection find its end; one that is being made has a timeout of its own."""
    opened: socket.socket | None = connection.sock
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


class CommandTransport:
    """Runs a command with the body on its stdin; exit code 0 means that it has arrived."""

    def __init__(self, command: Sequence[str], *, timeout_s: float) -> None:
        """Start nothing yet.

        Args:
            command: program and arguments; no shell reads them.
            timeout_s: afterwards the command, and what it has started, is killed.
        """
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cut = threading.Event()

    @classmethod
    def found(cls, command: Sequence[str], *, timeout_s: float) -> CommandTransport:
        """The same for a program that is there.

        Raises:
            ConfigError: it is not, or may not be run.
        """
        if shutil.which(command[0]) is None:
            raise ConfigError(
                f"on_commit: there is no program {command[0]!r} that may be run; nothing was started. "
                "Give its whole path, or install it on this machine"
            )
        return cls(command, timeout_s=timeout_s)

    def deliver(self, key: str, body: bytes, environment: Mapping[str, str]) -> None:
        """See CallbackTransport."""
        # A file, not a pipe: a command that does not read what it is given must not hold the call.
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(body)
                stdin.seek(0)
                process = subprocess.Popen(
                    self._command,
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,  # what it prints may be rows or secrets; its own log is its own
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **environment},
                    start_new_session=True,  # killed as a whole, and not by a Ctrl-C that is meant for the job
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
    """End a command with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _words(error: BaseException) -> str:
    """An error without what was sent or answered."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
