"""The progress line on a terminal: epoch, speed, files left and lag; log records are printed above it."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Sequence
from pathlib import Path

from tests.forked import Streams
from tests.job import LOCAL, Job, start

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(
    *arguments: str, program: Sequence[str] = LOCAL, columns: int = 100, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and complete output of a command on a terminal, each redrawn line on its own."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "24", "TERM": "xterm-256color"}
    streams = Streams(theirs, theirs, theirs)
    process = start([*program, *arguments], cwd=Path.cwd(), env=size | (env or {}), streams=streams)
    os.close(theirs)
    written = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not more:
            break
        written += more
    os.close(ours)
    return process.wait(), CONTROL.sub("", written.decode()).replace("\r", "\n")


def test_progress_line_tells_epoch_speed_files_left_and_lag(job: Job) -> None:
    job.append("b.jsonl", range(100, 200))
    job.write(source=job.source(max_files_per_epoch=1))
    code, written = on_a_terminal("run", str(job.file))
    assert code == 0
    assert re.search(r"epoch 1 · completed · [\d,]+ rows/s · [\d.]+ MB/s · 0 files left, 0 B behind", written)
    assert "cli: done: 2 epochs, 200 rows committed, 2 quarantined" in written
    assert "INFO" not in written, "transitions are for --verbose"


def test_verbose_prints_whole_records_above_the_progress_line(job: Job) -> None:
    code, written = on_a_terminal("run", str(job.file), "--verbose", columns=60)
    assert code == 0
    assert re.search(r"INFO epoch 0 \(instant \d{17}\): inflight → completed, elapsed_ms=\d+", written)


def test_failure_on_a_terminal_is_one_message_below_the_progress_line(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    job.write(source=job.source(path=f"{job.folder}/nowhere"))
    code, written = on_a_terminal("run", str(job.file))
    assert code == 4
    assert written.strip().splitlines()[-1].startswith(f"tideline: {job.folder}/nowhere does not exist")


def test_unforeseen_error_is_one_line_and_a_traceback_only_with_verbose(job: Job) -> None:
    broken = {"TIDELINE_FAIL_AT": "begun"}
    code, written = on_a_terminal("run", str(job.file), env=broken)
    assert code == 1
    assert "tideline: unforeseen RuntimeError at " in written and "Nothing is lost: the next start recovers." in written
    assert "begun" not in written.splitlines()[-1]
    assert "Traceback" not in written
    code, written = on_a_terminal("run", str(job.file), "--verbose", env=broken)
    assert code == 1
    assert "Traceback" in written
    assert not job.pending()
