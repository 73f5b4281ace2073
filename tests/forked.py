"""Commands as forks of a process that has imported their modules: a start takes milliseconds of CPU, not half a second.

::

    test ── socket ──► nursery            one for each test runner; imports, forks, reaps; never runs a thread
         ◄─ exit code ──┘ └─ command      a process of its own: its pid, signals, descriptors, environment;
                          └─ its child    it may request others itself

A command starts as ``python -m MODULE`` does, only faster. Tests of the start itself do not use this module.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

ROOT = Path(__file__).parents[1]
_SPEAK_FD = 0
"""The nursery's end of the socket, as its standard input."""
_AT = "TESTS_NURSERY"
"""Environment variable: the nursery's process id, for commands that start processes of their own."""
_MOST_BYTES = 1 << 20


class ForkedProcess:
    """A command that was forked, with the calls of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], pid: int, code: int, out: IO[str] | None, err: IO[str] | None) -> None:
        """Take over the read ends of the pipes.

        Args:
            args: module and arguments.
            pid: of the process.
            code: descriptor to which the nursery writes the exit code.
            out: its standard output, where that is a pipe.
            err: its standard error, where that is a pipe.
        """
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = out
        self.stderr = err
        self._code = code
        self._lock = threading.Lock()
        self._written: list[str] = ["", ""]
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the pipes and wait for the process."""
        for pipe in filter(None, (self.stdout, self.stderr)):
            pipe.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process; its exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both pipes to their ends, and wait for the process; a second call returns the same.

        Raises:
            subprocess.TimeoutExpired: `timeout` seconds have passed; the next call still returns all output.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if not self._readers:
            pipes = [(number, pipe) for number, pipe in enumerate((self.stdout, self.stderr)) if pipe is not None]
            self._readers = [threading.Thread(target=self._read, args=each, daemon=True) for each in pipes]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return self._written[0], self._written[1]

    def send_signal(self, number: int) -> None:
        """Send the process a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _read(self, number: int, stream: IO[str]) -> None:
        with stream:
            self._written[number] = stream.read()

    def _ended_within(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._code], [], [], timeout)[0]:
                told = os.read(self._code, 16)
                os.close(self._code)
                if not told:
                    raise RuntimeError("the nursery is gone")
                self.returncode = int(told)
            return self.returncode


Command: TypeAlias = "subprocess.Popen[str] | ForkedProcess"
"""A command that runs or has run, however it was started."""


@dataclass(frozen=True)
class Streams:
    """Descriptors of a command's input and output; without one, input is empty and output a pipe."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None


PIPES = Streams()


def start(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], streams: Streams = PIPES
) -> ForkedProcess:
    """Start a module as ``python -m`` would.

    Args:
        module: run as ``__main__``.
        arguments: its command line.
        cwd: its working directory.
        env: its whole environment.
        streams: its input and output.
    """
    return _nursery().start({"module": module, "arguments": arguments, "cwd": str(cwd), "env": dict(env)}, streams)


@cache
def _nursery() -> _Nursery:
    """The nursery named in the environment, or a new one: workers of the test runner have none."""
    at = os.environ.get(_AT)
    return _Nursery.found(at) if at else _Nursery.begun()


@dataclass(frozen=True)
class _Nursery:
    """The forking process; it ends when the socket that it was started with is closed at the other end."""

    speak: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def found(cls, at: str) -> _Nursery:
        speak = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        speak.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        speak.connect(_address(int(at)))
        return cls(speak)

    @classmethod
    def begun(cls) -> _Nursery:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with theirs:
            command = [sys.executable, "-m", "tests.forked"]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs.fileno())

        def close() -> None:
            ours.close()
            process.wait()

        atexit.register(close)
        ours.recv(1)  # the nursery listens
        os.environ[_AT] = str(process.pid)
        return cls(ours)

    def start(self, request: Mapping[str, Any], streams: Streams) -> ForkedProcess:
        code, out, err = os.pipe(), _pipe_unless(streams.stdout), _pipe_unless(streams.stderr)
        empty = os.open(os.devnull, os.O_RDONLY)
        stdin = empty if streams.stdin is None else streams.stdin
        rights = array.array("i", [code[1], stdin, out[1], err[1]])
        try:
            with self.lock:
                self.speak.sendmsg(
                    [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights.tobytes())]
                )
                pid = int(self.speak.recv(16) or b"0")
        finally:
            given = (streams.stdin, streams.stdout, streams.stderr)
            for descriptor in {*rights, empty}.difference(given):
                os.close(descriptor)
        if not pid:
            raise RuntimeError("the nursery is gone")
        pipes = (os.fdopen(end, encoding="utf-8") if end is not None else None for end, _ in (out, err))
        return ForkedProcess([request["module"], *request["arguments"]], pid, code[0], *pipes)


def _pipe_unless(given: int | None) -> tuple[int | None, int]:
    """The read end, if any, and the write end."""
    return os.pipe() if given is None else (None, given)


@dataclass(frozen=True)
class _Begin:
    """A request for a child, and its descriptors: for the exit code, input, output and error."""

    request: Mapping[str, Any]
    descriptors: Sequence[int]


def _serve(speak: socket.socket, others: socket.socket) -> _Begin:
    """Fork for each request, and report exit codes; returns in children only.

    Args:
        speak: socket of the process that started this one; this one ends when it is closed.
        others: listening socket for commands.
    """
    running: dict[int, tuple[int, int]] = {}  # pidfd -> pid, descriptor for the exit code
    with selectors.DefaultSelector() as selector:
        selector.register(speak, selectors.EVENT_READ)
        selector.register(others, selectors.EVENT_READ)
        speak.send(b".")
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    selector.unregister(key.fd)
                    _tell(key.fd, *running.pop(key.fd))
                    continue
                asking = key.fileobj
                assert isinstance(asking, socket.socket)
                if asking is others:
                    selector.register(others.accept()[0], selectors.EVENT_READ)
                elif begin := _receive(asking):
                    pid = os.fork()
                    if pid == 0:
                        return begin
                    pidfd = os.pidfd_open(pid)
                    running[pidfd] = pid, begin.descriptors[0]
                    selector.register(pidfd, selectors.EVENT_READ)
                    _answer(asking, pid, begin)
                elif asking is speak:
                    sys.exit()
                else:
                    selector.unregister(asking)
                    asking.close()


def _answer(asking: socket.socket, pid: int, begin: _Begin) -> None:
    """Send the process id to the requester; close this process's copies of the child's streams."""
    for descriptor in begin.descriptors[1:]:
        os.close(descriptor)
    # The requester may have ended.
    with contextlib.suppress(ConnectionError):
        asking.send(str(pid).encode())


def _tell(pidfd: int, pid: int, code: int) -> None:
    """Report the exit code of a process that has ended."""
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    # The requester may have ended.
    with contextlib.suppress(BrokenPipeError):
        os.write(code, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(code)


def _address(pid: int) -> str:
    """A nursery's socket address: an abstract name, which needs no file and is free again when its process ends."""
    return f"\0tests-nursery-{pid}"


def _receive(asking: socket.socket) -> _Begin | None:
    """The next request; None if the requester has closed the connection."""
    try:
        body, ancillary, _, _ = asking.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(4 * array.array("i").itemsize))
    except ConnectionError:
        return None
    if not body:
        return None
    rights = array.array("i")
    for _, _, data in ancillary:
        rights.frombytes(data)
    return _Begin(json.loads(body), list(rights))


def _become(begin: _Begin) -> None:
    """Make this process equal to a new one, except for its loaded modules."""
    for number, descriptor in enumerate(begin.descriptors[1:]):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    request = begin.request
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [request["module"], *request["arguments"]]


_LOADED = (
    *("deltalake", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.csv", "pyarrow.json"),
    *("fsspec.implementations.local", "s3fs", "confluent_kafka", "PIL.PngImagePlugin"),
    *("matplotlib.figure", "matplotlib.dates", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *(
        "ingest.driver.build",
        "ingest.cli.main",
        "ingest.driver.loop",
        "ingest.execution.spark.runner",
        "ingest.config.registry",
        "ingest.driver.put_back",
        "ingest.driver.fsck",
    ),
    *("ingest.sources.files.source", "ingest.sources.kafka.source", "ingest.sources.decode.decoder"),
    *("ingest.reports.offsets", "ingest.reports.offsets_text", "ingest.reports.pictures", "ingest.reports.report_page"),
    *("sinks.delta.sink", "timeline.stores.opening"),
)
"""Modules that commands import, early or late."""


def _load() -> None:
    """Import all modules. Their allocators and linear algebra have threads that can handle forks; Python has none."""
    for module in _LOADED:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork has the thread that forks, and no other"
    # Children share loaded memory with this process until someone writes to it, as a garbage collection would.
    gc.collect()
    gc.freeze()


def main() -> NoReturn:
    """Serve until the test runner ends; in a child, run its module."""
    with (
        socket.socket(fileno=os.dup(_SPEAK_FD)) as speak,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as others,
    ):
        _load()
        others.bind(_address(os.getpid()))
        others.listen()
        begin = _serve(speak, others)
    _become(begin)
    try:
        runpy.run_module(begin.request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _end(ended.code)
    _end(None)


def _end(code: object) -> NoReturn:
    """End as Python does, without the teardown of modules, which would copy shared memory."""
    if code is not None and not isinstance(code, int):
        sys.exit(code)  # type: ignore[arg-type]
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
