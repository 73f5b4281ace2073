"""Wall and CPU seconds of some work, counted over whole trees of processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

_QUIET_SHARE = 0.05
_LOOK_S = 0.5
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Spent:
    """Cost of some work, in seconds.

    Attributes:
        wall_s: wall-clock time.
        client_s: CPU time of this process and of all below it (JVM, Python workers), without servers.
        server_s: CPU time of the servers meanwhile.
    """

    wall_s: float
    client_s: float
    server_s: float


class Stopwatch:
    """Measures work of this process and of all below it, apart from the work of servers."""

    def __init__(self, servers: Iterable[int]) -> None:
        """Measure nothing yet.

        Args:
            servers: ids of the servers' processes.
        """
        self._servers = [psutil.Process(pid) for pid in servers]
        self._spent: Spent | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block; `spent` has the result.

        CPU time of a process that ends within the block is not counted: Spark ends its Python workers only after an
        idle minute.
        """
        self._spent = None
        client, server, began = self._client_s(), self._server_s(), time.perf_counter()
        yield
        wall_s = time.perf_counter() - began
        spent_s = sum(now - client.get(process, 0.0) for process, now in self._client_s().items())
        self._spent = Spent(wall_s, spent_s, self._server_s() - server)

    @property
    def spent(self) -> Spent:
        """Cost of the last block."""
        assert self._spent is not None, "nothing was measured"
        return self._spent

    def wait_for_quiet_servers(self) -> None:
        """Return once the servers have done their deferred work (compaction), or after a minute."""
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while time.monotonic() < deadline:
            before = self._server_s()
            time.sleep(_LOOK_S)
            if self._server_s() - before < _QUIET_SHARE * _LOOK_S:
                return

    def _client_s(self) -> dict[psutil.Process, float]:
        found: dict[psutil.Process, float] = {}
        left = [psutil.Process()]
        while left:
            process = left.pop()
            with contextlib.suppress(psutil.NoSuchProcess):
                found[process] = _own_s(process)
                left += [child for child in process.children() if child not in self._servers]
        return found

    def _server_s(self) -> float:
        return sum(_own_s(server) for server in self._servers)


def _own_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
