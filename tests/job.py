"""A job in a folder of its own, and `tideline` run on it as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable

from tests import forked
from tests.forked import PIPES, Command, Streams
from timeline.active import ActiveTimeline
from timeline.instant import Instant
from timeline.stores.opening import open_store

PYTHON_M = (sys.executable, "-m")
SPARK = (*PYTHON_M, "ingest")
LOCAL = (*PYTHON_M, "tests.cli.local_tideline")
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 240


@dataclass(frozen=True)
class Finished:
    """Exit code and output of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Job:
    """Files in ``logs/``, a job file, a lake; `started` are the processes to end with the test."""

    folder: Path
    started: list[Command] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def settings(self) -> dict[str, Any]:
        """Default settings of the job file."""
        return {
            "name": "cli",
            "source": self.source(),
            "schema": {"id": "bigint", "host": "string"},
            "targets": [{"type": "delta", "path": f"{self.folder}/lake"}],
            "epoch": {"interval": "100ms"},
            "writer": {"lease_ttl": "3s"},
            "spark": {"master": "local[2,4]", "small_epochs": "executors"},
        }

    def write(self, **changes: Any) -> Path:
        """Write the job file; a change replaces a whole block, None removes it."""
        (self.folder / "logs").mkdir(exist_ok=True)
        return write_job(self.file, self.settings() | changes)

    def change(self, **changes: Any) -> Path:
        """Write the job file again with other blocks."""
        return write_job(self.file, self.written() | changes)

    def written(self) -> dict[str, Any]:
        """Current settings of the job file."""
        said: dict[str, Any] = yaml.safe_load(self.file.read_text())
        return said

    def source(self, **changes: Any) -> dict[str, Any]:
        path = f"{self.folder}/logs/*.jsonl"
        return {"type": "files", "path": path, "format": "json", "close_after": "0s"} | changes

    def append(self, name: str, ids: Sequence[int], *, bad: int = 0) -> None:
        """Append rows, then malformed lines, to a log file."""
        with (self.folder / "logs" / name).open("a") as out:
            out.writelines(json.dumps({"id": number, "host": f"h{number % 3}"}) + "\n" for number in ids)
            out.writelines(f"{{malformed {number}\n" for number in range(bad))

    def start(
        self, command: str, *options: str, program: Sequence[str] = LOCAL, env: Mapping[str, str] | None = None
    ) -> Command:
        """Start a command on the job."""
        process = start([*program, command, str(self.file), *options], cwd=self.folder, env=env)
        self.started.append(process)
        return process

    def tideline(
        self, command: str, *options: str, program: Sequence[str] = LOCAL, env: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a command on the job to its end; a traceback on its stderr is always wrong."""
        return finish(self.start(command, *options, program=program, env=env))

    def timeline(self) -> ActiveTimeline:
        """The current timeline, which lies in the first table unless the job file says otherwise."""
        return ActiveTimeline.load(open_store(str(self.lake)))

    def pending(self) -> Sequence[Instant]:
        return self.timeline().pending().instants

    def is_settled(self) -> bool:
        """Whether no instant is pending and no stray data file exists."""
        return not self.pending() and not self.stray_files() and not self.stray_files("lake_quarantine")

    def killed_at(self, point: str) -> None:
        """Run the job until it is killed at a named step of the protocol."""
        assert self.tideline("run", env={"TIDELINE_CRASH_AT": point}).code == -signal.SIGKILL

    def ids(self, table: str = "lake") -> Counter[int]:
        """Count of each id in a table; empty where there is no table yet."""
        opened = self.table(table)
        return Counter(opened.to_pyarrow_table(columns=["id"])["id"].to_pylist() if opened else [])

    def table(self, table: str = "lake") -> DeltaTable | None:
        first = self.folder / table / "_delta_log" / "00000000000000000000.json"
        return DeltaTable(self.folder / table) if first.exists() else None

    def stray_files(self, table: str = "lake") -> set[str]:
        """Data files that the table's newest version does not name."""
        opened = self.table(table)
        there = {path.name for path in (self.folder / table).rglob("*-0_*.parquet")}
        return there - {Path(uri).name for uri in (opened.file_uris() if opened else [])}

    def close(self) -> None:
        """Kill commands that a failed test left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def write_job(file: Path, settings: Mapping[str, Any]) -> Path:
    """Write a job file; a block that is None is left out."""
    file.write_text(yaml.safe_dump({key: value for key, value in settings.items() if value is not None}))
    return file


def start(
    line: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None, streams: Streams = PIPES
) -> Command:
    """Start a command: a fork for ``python -m MODULE``, a new process for any other program.

    A command with a ``PYTHONPATH`` of its own is a new process too: a fork has its modules already.

    Args:
        line: program and arguments.
        cwd: its working directory.
        env: additions to its environment.
        streams: its input and output.
    """
    words, whole = list(map(str, line)), environment() | dict(env or {})
    if tuple(words[:2]) == PYTHON_M and "PYTHONPATH" not in (env or {}):
        return forked.start(words[2], words[3:], cwd=cwd, env=whole, streams=streams)
    given = ((streams.stdin, subprocess.DEVNULL), (streams.stdout, subprocess.PIPE), (streams.stderr, subprocess.PIPE))
    ours = [default if descriptor is None else descriptor for descriptor, default in given]
    return subprocess.Popen(words, cwd=cwd, env=whole, stdin=ours[0], stdout=ours[1], stderr=ours[2], text=True)


def run(line: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end; a traceback on its stderr is always wrong."""
    return finish(start(line, cwd=cwd, env=env))


def finish(process: Command) -> Finished:
    """Wait for a command's end."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in err, err
    return Finished(process.wait(), out, err)


def environment() -> dict[str, str]:
    """This process's environment without ``TIDELINE_`` variables, with the project on the path in any folder."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}
    return ours | {"PYTHONPATH": str(ROOT)}
