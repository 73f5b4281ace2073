"""A fork runs a module as ``python -m`` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.forked import Streams


def test_a_fork_says_and_returns_what_a_new_process_does(tmp_path: Path) -> None:
    module = "json.tool"
    (tmp_path / "a.json").write_text('{"a": 1}')
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(forked.ROOT)}
    for arguments in (["a.json"], ["missing.json"], ["--nothing"]):
        fresh = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        fork = forked.start(module, arguments, cwd=tmp_path, env=environment)
        out, err = fork.communicate(timeout=60)
        assert (fork.returncode, out) == (fresh.returncode, fresh.stdout)
        assert err.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_a_fork_is_a_process_that_signals_end(tmp_path: Path) -> None:
    fork = forked.start("http.server", ["--bind", "127.0.0.1", "0"], cwd=tmp_path, env=dict(os.environ))
    assert fork.stdout is not None and "Serving HTTP" in fork.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    assert fork.poll() is None
    fork.kill()
    assert fork.wait(60) == -signal.SIGKILL
    fork.communicate(timeout=60)
    fork.send_signal(signal.SIGTERM)  # no signal is sent to a process that has ended


def test_a_fork_reads_and_writes_what_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"a": 1}')
    with (tmp_path / "in").open() as given, (tmp_path / "log").open("w") as log:
        streams = Streams(given.fileno(), log.fileno(), log.fileno())
        with forked.start("json.tool", ["-"], cwd=tmp_path, env=dict(os.environ), streams=streams) as fork:
            assert fork.communicate(timeout=60) == ("", "")
        assert not log.closed and log.write("after it\n")
    assert (tmp_path / "log").read_text() == '{\n    "a": 1\n}\nafter it\n'
