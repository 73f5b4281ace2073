"""Jobs for commands to run on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from ingest.cli.main import main
from ingest.cli.signals import STOP_SIGNALS
from tests import forked_decoder
from tests.job import Finished, Job

Call: TypeAlias = Callable[..., Finished]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job with one file; its job file is written."""
    job = Job(tmp_path)
    job.write()
    job.append("a.jsonl", range(100), bad=2)
    yield job
    job.close()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Function that runs a command in this process, through the entry point; for commands without Spark and tasks."""
    signals = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # The width of the test runner's or a user's terminal would change the output.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("ingest.execution.isolated.start_child", forked_decoder.start_child)

    def run(*arguments: str | Path) -> Finished:
        monkeypatch.setattr("sys.argv", ["tideline", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err, captured.err
        return Finished(int(ended.value.code or 0), captured.out, captured.err)

    yield run
    for number, handler in signals.items():
        signal.signal(number, handler)
