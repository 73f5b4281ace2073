"""A process is reported as ended only when it certainly has ended."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from timeline.process import ProcessId, has_ended, this_process

PROGRAM = """
import json, sys
from dataclasses import asdict
from timeline.process import this_process
print(json.dumps(asdict(this_process())), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], ProcessId]]:
    """Another process, and the `ProcessId` that it reports."""

    root = str(Path(__file__).parents[3])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        yield process, ProcessId(**json.loads(process.stdout.readline()))
        process.kill()


def test_the_calling_process_knows_itself_and_is_not_gone() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me == this_process()
    assert me.boot_id and me.namespace and me.started > 0
    assert not has_ended(me)


def test_another_process_is_gone_once_it_was_killed_even_before_it_is_reaped(
    child: tuple[subprocess.Popen[str], ProcessId],
) -> None:
    process, its_id = child
    assert its_id.pid == process.pid
    assert not has_ended(its_id)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
    assert has_ended(its_id)
    process.wait()
    assert has_ended(its_id)


def test_a_process_id_that_was_reused_by_another_process_is_gone() -> None:
    me = this_process()
    assert has_ended(replace(me, started=me.started - 1))


@pytest.mark.parametrize(
    "unknown",
    [{"host": "elsewhere"}, {"boot_id": "another boot"}, {"boot_id": ""}, {"namespace": "pid:[1]"}, {"namespace": ""}],
    ids=str,
)
def test_a_process_that_cannot_be_told_from_here_is_never_gone(
    unknown: dict[str, str], child: tuple[subprocess.Popen[str], ProcessId]
) -> None:
    process, its_id = child
    process.kill()
    process.wait()
    assert has_ended(its_id)
    assert not has_ended(replace(its_id, **unknown))  # type: ignore[arg-type]


def test_a_process_without_a_start_time_is_never_gone() -> None:
    assert not has_ended(replace(this_process(), started=0, pid=2**22 + 1))


def test_a_live_process_that_proc_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With /proc mounted with hidepid, a process of another user is not listed, and a signal to it fails with EPERM."""
    hidden = 2**22 + 1  # above the kernel's highest process id, so /proc has nothing

    def refuse(pid: int, signal: int) -> None:
        assert (pid, signal) == (hidden, 0)
        raise PermissionError(errno.EPERM, "not yours")

    me = this_process()
    assert has_ended(replace(me, pid=hidden))
    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(replace(me, pid=hidden))


def test_a_process_names_itself_for_people() -> None:
    assert str(ProcessId("a", "b", 7, 1, "n")) == "process 7 on a"
