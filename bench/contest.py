"""Systems side by side: each a process of its own, all of them in turn, round by round, in one run.

::

    round 1   A  B  C  D      each: tell it to wake up, measure the round, count its rows, delete what it wrote
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
    """A system cannot go on; the message says why, and where its log is."""


@dataclass(frozen=True)
class System:
    """One that takes part.

    Attributes:
        name: in tables.
        module: runs it: ``python -m <module>``; see `bench.serve`. Systems that are started alike share a process.
        settings: what it is started with, values of JSON.
        work: what it is told in each round besides.
        python: the interpreter of its environment.
    """

    name: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    python: Path = Path(sys.executable)

    @property
    def start(self) -> str:
        """How it is started."""
        return json.dumps([self.module, str(self.python), self.settings], sort_keys=True)


@dataclass(frozen=True)
class Task:
    """One work that every system does in every round.

    Attributes:
        name: in tables.
        work: what a system is told; ``target`` is added.
        rows: how many rows its target has afterwards; None: as many as that of the first system.
        units: how many of what the work's metrics are told by: rows, epochs.
        place: from the folder of a round to what the system is told as its target; the folder's path where left out.
        wake: the same work on next to nothing, done unmeasured before each round: workers that idled are ended by
            Spark after a minute, which nobody has who ingests all the time.
    """

    name: str
    work: Mapping[str, Any]
    rows: int | None
    units: int
    wake: Mapping[str, Any] | None = None
    place: Callable[[Path], str] = str


@dataclass(frozen=True)
class Round:
    """What one system took for one round.

    Attributes:
        wall_s: by the clock.
        cpu_s: of its process tree.
        peak_mb: of its process tree.
        written_mb: what lay in its target afterwards, checkpoints and logs included.
        own: what the system itself has said.
        requests: to the object store; None where there is none.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    written_mb: float
    own: Mapping[str, float]
    requests: int | None = None


Figures = Callable[[Task, Round], Mapping[str, float]]
"""From a round to metric → value."""


class Process:
    """A process that one or more systems run in."""

    def __init__(self, system: System, log: Path) -> None:
        """Start it.

        Args:
            system: which.
            log: takes what it prints.

        Raises:
            ContestError: it does not start.
        """
        self._name = system.name
        self._log = log
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": str(system.python)}
        environment.pop("SPARK_HOME", None)
        with log.open("wb") as out:
            # In a session of its own, so that Ctrl-C reaches the parent alone: it ends its systems.
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
        """Tell it something, and wait until that is done.

        Raises:
            ContestError: it failed, or ended.
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
        """What its log says of the causes: traces of Java are long, and tell what matters in these lines."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        told = [line for line in lines if line.startswith("Caused by") or "Error: " in line or "Exception: " in line]
        return "".join(f"\n    {line[:_WIDTH]}" for line in list(dict.fromkeys(told))[-_LINES_OF_LOG:])

    def close(self) -> None:
        """End it, by force where it does not end by itself."""
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
    """Systems that take turns, and what they took so far."""

    def __init__(self, systems: Sequence[System], scratch: Path, *, requests: Callable[[], int] | None = None) -> None:
        """Nothing is started yet.

        Args:
            systems: who takes part.
            scratch: where they write; targets are folders of its folder ``targets``.
            requests: how many requests the object store has answered so far.
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
        """All systems, started until the block ends; one that does not start is named and left out."""
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
        """What each system takes for a work.

        Args:
            task: the work.
            rounds: measured rounds.
            figures: what is told of a round.
            warm_ups: rounds before, of which nothing is told.
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
            # What was deleted before is not written back in the time of who comes next.
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
        """Leave one out; those that share its process find out for themselves whether it still answers."""
        say(f"left out: {error}")
        self.problems.append(str(error).splitlines()[0])
        if system in self._running:
            self._running.remove(system)


_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Tell the person who waits how far it is."""
    print(f"[{time.monotonic() - _BEGAN:6.0f} s] {text}", file=sys.stderr, flush=True)
