"""Identity of this process, and whether another process of this machine has certainly ended.

Process ids are reused; with the start time and the boot id, one identifies a process for good.
Source: proc(5), ``/proc/<pid>/stat`` field 22, ``/proc/sys/kernel/random/boot_id``.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """One process of one boot of one machine.

    Attributes:
        host: the machine's host name.
        boot_id: the kernel's id of this boot; "" where the system has none.
        pid: the process id, valid inside `namespace`.
        started: start time in clock ticks since boot; 0 where the system does not say.
        namespace: the process-id namespace (containers have their own); "" where the system has none.
    """

    host: str
    boot_id: str
    pid: int
    started: int
    namespace: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """The calling process."""
    pid = os.getpid()
    stat = _stat(pid)
    return ProcessId(socket.gethostname(), _boot_id(), pid, stat.started if stat else 0, _namespace())


def has_ended(process: ProcessId) -> bool:
    """Whether the process has certainly ended. False means: it runs, or its state is unknown on this machine."""
    if not process.boot_id or not process.started or not process.namespace or process.host != socket.gethostname():
        return False
    if process.boot_id != _boot_id():
        # The same host name after a reboot, or another machine of that name: only the lease's TTL can tell.
        return False
    if process.namespace != _namespace():
        return False
    stat = _stat(process.pid)
    if stat is None:
        return not _answers(process.pid)
    return stat.is_dead or stat.started != process.started


def _boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@dataclass(frozen=True)
class _ProcessStat:
    is_dead: bool
    started: int


def _stat(pid: int) -> _ProcessStat | None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The command in field 2 may hold spaces and brackets; fields are counted after its last bracket.
    after_command = stat.rpartition(")")[2].split()
    return _ProcessStat(is_dead=after_command[0] in "ZX", started=int(after_command[19]))


def _answers(pid: int) -> bool:
    """Whether the process id exists: /proc may be mounted so that it hides other users' processes (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
