"""Systems side by side: each a process of its own, all of them in turn, round by round, in one run.

::

    round 1   A  B  C  D      each: wake it up, measure the round, count its rows, delete its target
    round 2   B  C  D  A      another one first each time
    …
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.process_tree import Meter, written_bytes
from bench.table import Measured
from tests.real.processes import kill_tree

_ROOT = Path(__file__).parents[1]
_END_S = 20.0
_LINES_OF_LOG = 5
_WIDTH = 300

Answer = dict[str, Any]


class ContestError(Exception):
    """A system cannot go on; the message has the error, and its causes from the log."""


@dataclass(frozen=True)
class System:
    """A system that takes part.

    Attributes:
        name: its name in tables.
        module: runs it: ``python -m <module>``; see `bench.serve`. Systems that are started alike share a process.
        settings: for its start, JSON values.
        work: its additions to the work of each round.
        python: the interpreter of its environment.
    """

    name: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    python: Path = Path(sys.executable)

    @property
    def start(self) -> str:
        """Module, interpreter and settings as text; systems with equal texts share a process."""
        return json.dumps([self.module, str(self.python), self.settings], sort_keys=True)


@dataclass(frozen=True)
class Task:
    """One work that every system does in every round.

    Attributes:
        name: its name in tables.
        work: the request to a system; ``target`` is added.
        rows: number of rows in the target afterwards; None: as many as in that of the first system.
        units: number of units (rows, epochs) that the work's metrics refer to.
        place: from the folder of a round to the system's target; the folder's path by default.
        wake: the same work on little data, done unmeasured before each round: Spark ends workers that were idle for a
            minute, which they never are in continuous ingestion.
    """

    name: str
    work: Mapping[str, Any]
    rows: int | None
    units: int
    wake: Mapping[str, Any] | None = None
    place: Callable[[Path], str] = str


@dataclass(frozen=True)
class Round:
    """Cost of one round of one system.

    Attributes:
        wall_s: wall-clock time.
        cpu_s: CPU time of its process tree.
        peak_mb: memory of its process tree at its peak.
        written_mb: size of its target afterwards, checkpoints and logs included.
        own: figures that the system itself reports.
        requests: requests to the object store; None where there is none.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    written_mb: float
    own: Mapping[str, float]
    requests: int | None = None


Figures = Callable[[Task, Round], Mapping[str, float]]
"""Maps a round to metric → value."""


class Process:
    """A process that one or more systems run in."""

    def __init__(self, system: System, log: Path) -> None:
        """Start the process.

        Args:
            system: the first system in it.
            log: file for its output.

        Raises:
            ContestError: the system does not start.
        """
        self._name = system.name
        self._log = log
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": str(system.python)}
        environment.pop("SPARK_HOME", None)
        with log.open("wb") as out:
            # In a session of its own, so that Ctrl-C reaches the parent alone, which ends its systems.
            self._process = subprocess.Popen(
                [str(system.python), "-m", system.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                cwd=log.parent,
                env=environment,
                start_new_session=True,
            )
        self.meter = Meter(self._process.pid)
        try:
            self.ask(system.settings)
        except BaseException:
            self.close()
            raise

    def ask(self, work: Mapping[str, Any]) -> Answer:
        """Send a request, and wait for the answer.

        Raises:
            ContestError: the request failed, or the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(work) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: Answer = json.loads(line) if line else {"ok": False, "error": "it ended"}
        if not answer.pop("ok"):
            raise ContestError(f"{self._name}: {answer['error'].splitlines()[0]}{self._causes()}")
        return answer

    def _causes(self) -> str:
        """Causes of an error in the log: stack traces of Java are long, and these are their decisive lines."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        told = [line for line in lines if line.startswith("Caused by") or "Error: " in line or "Exception: " in line]
        return "".join(f"\n    {line[:_WIDTH]}" for line in list(dict.fromkeys(told))[-_LINES_OF_LOG:])

    def close(self) -> None:
        """End the process, by force if it does not end by itself in `_END_S` seconds."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            kill_tree(psutil.Process(self._process.pid))
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Contest:
    """Systems that take turns, and their problems so far."""

    def __init__(self, systems: Sequence[System], scratch: Path, *, requests: Callable[[], int] | None = None) -> None:
        """Start nothing yet.

        Args:
            systems: the systems that take part.
            scratch: working folder; targets are folders of its folder ``targets``.
            requests: number of requests that the object store has answered so far.
        """
        self._systems = systems
        self._scratch = scratch
        self._requests = requests
        self._processes: dict[str, Process] = {}
        self._running: list[System] = []
        self._number = 0
        self._turn = 0
        self._agreed: int | None = None
        self.problems: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[Contest]:
        """Run all systems until the block ends; one that does not start is reported and left out."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        try:
            for system in self._systems:
                try:
                    if system.start not in self._processes:
                        say(f"starting {system.name}")
                        log = self._scratch / f"system-{len(self._processes)}.log"
                        self._processes[system.start] = Process(system, log)
                    self._running.append(system)
                except ContestError as error:
                    self._drop(system, error)
            yield self
        finally:
            for process in self._processes.values():
                process.close()
            self._processes.clear()
            self._running.clear()

    def measure(self, task: Task, rounds: int, figures: Figures, *, warm_ups: int = 1) -> list[Measured]:
        """Measure a work with each system.

        Args:
            task: the work.
            rounds: number of measured rounds.
            figures: metrics of a round.
            warm_ups: number of unmeasured rounds before.
        """
        values: dict[tuple[str, str], list[float]] = {}
        self._agreed = task.rows
        for number in range(-warm_ups, rounds):
            turn = self._turn % max(len(self._running), 1)
            self._turn += 1
            for system in [*self._running[turn:], *self._running[:turn]]:
                try:
                    done = self._round(system, task)
                except ContestError as error:
                    self._drop(system, error)
                    values = {key: each for key, each in values.items() if key[0] != system.name}
                    continue
                kind = f"round {number + 1} of {rounds}" if number >= 0 else "warm-up"
                say(f"{task.name}: {kind}: {system.name}: {done.wall_s:.2f} s, {done.cpu_s:.2f} CPU s")
                for metric, value in figures(task, done).items() if number >= 0 else ():
                    values.setdefault((system.name, metric), []).append(value)
        order = [system.name for system in self._systems]
        found = sorted(values.items(), key=lambda item: order.index(item[0][0]))
        return [Measured(task.name, name, metric, tuple(each)) for (name, metric), each in found]

    def _round(self, system: System, task: Task) -> Round:
        process = self._processes[system.start]
        if task.wake is not None:
            with self._target(task) as (_, target):
                process.ask({**task.wake, **system.work, "do": "round", "target": target})
        with self._target(task) as (folder, target):
            work = {**task.work, **system.work, "target": target}
            # Write back earlier deletions now, not during the measured round.
            os.sync()
            before = self._requests() if self._requests else 0
            with process.meter.running():
                own = process.ask({**work, "do": "round"})
            requests = self._requests() - before if self._requests else None
            rows = int(process.ask({**work, "do": "count"})["rows"])
            if self._agreed is None:
                self._agreed = rows
            if rows != self._agreed:
                raise ContestError(f"{system.name}: {rows} rows in its target, not {self._agreed}")
            taken = process.meter.taken
            return Round(taken.wall_s, taken.cpu_s, taken.peak_mb, written_bytes(folder) / 1e6, own, requests)

    @contextlib.contextmanager
    def _target(self, task: Task) -> Iterator[tuple[Path, str]]:
        self._number += 1
        folder = self._scratch / "targets" / f"round-{self._number}"
        folder.mkdir(parents=True)
        try:
            yield folder, task.place(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _drop(self, system: System, error: ContestError) -> None:
        """Leave a system out; systems that share its process go on as long as it answers."""
        say(f"left out: {error}")
        self.problems.append(str(error).splitlines()[0])
        if system in self._running:
            self._running.remove(system)


_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    print(f"[{time.monotonic() - _BEGAN:6.0f} s] {text}", file=sys.stderr, flush=True)
