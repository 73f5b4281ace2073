"""Which process this is, and whether another one of this machine is certainly gone.

A process id alone is reused; with the start time and the boot id it names one process for good.
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
        host: the machine's name, for people.
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
    return ProcessId(socket.gethostname(), _boot_id(), pid, _start_ticks(pid) or 0, _namespace())


def is_gone(process: ProcessId) -> bool:
    """Whether the process certainly no longer runs. False means: it runs, or it cannot be told from here."""
    if not process.boot_id or not process.started or not process.namespace or process.host != socket.gethostname():
        return False
    if process.boot_id != _boot_id():
        # The same host name after a reboot, or another machine of that name: only the lease's clock can tell.
        return False
    return process.namespace == _namespace() and _start_ticks(process.pid) != process.started


def _boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The command in field 2 may hold spaces and brackets; fields count from behind its last bracket.
    after_command = stat.rpartition(")")[2].split()
    state, started = after_command[0], int(after_command[19])
    return None if state in "ZX" else started


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
