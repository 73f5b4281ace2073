"""Times of the tests: ``make test-times`` runs all of them and writes the tables of docs/test-times.md.

The runner reports the duration of each test; meanwhile the CPU time of all processes below it is sampled once a second
and summed by kind. The rest of the cores' time is waiting.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests import areas, sampling

PAGE = Path(__file__).parents[1] / "docs" / "test-times.md"
_LOOK_EVERY_S = 1.0
_SLOWEST = 20

_KINDS = (
    (
        "servers",
        ("kafka.Kafka", "kafka.tools", "versitygw", "pd-server", "/pd ", "/store ", "deploy.master", "deploy.worker"),
    ),
    ("JVMs of Spark", ("java ",)),
    (
        "Python workers of Spark",
        ("pyspark.daemon", "pyspark/daemon", "ingest.execution.spark.daemon", "pyspark.worker"),
    ),
    ("browser", ("chromium", "chrome")),
    ("runner and its workers", ("-m pytest", "import sys;exec(eval(sys.stdin.readline()))")),
    ("commands, as forks", ("tests.forked",)),
    ("children that decode", ("ingest.execution.isolated",)),
    ("commands and programs in Python", ("python",)),
)
"""Kinds of processes, by parts of their command line; the first match counts."""


@dataclass
class Looked:
    """Samples of a process and of all processes below it.

    Attributes:
        cpu_s: CPU time of each process in its last sample, by id and start time.
        kinds: kind of each process in its last sample.
    """

    cpu_s: dict[tuple[int, float], float] = field(default_factory=dict)
    kinds: dict[tuple[int, float], str] = field(default_factory=dict)

    def look(self, root: psutil.Process) -> None:
        for process in (root, *root.children(recursive=True)):
            try:
                with process.oneshot():
                    key, times = (process.pid, process.create_time()), process.cpu_times()
                    self.kinds[key] = kind_of(process.cmdline())  # a process may become another program
            except psutil.Error:
                continue
            self.cpu_s[key] = times.user + times.system


def kind_of(command: Sequence[str]) -> str:
    """Kind of a process, by its command line."""
    line = " ".join(command) + " "
    return next((kind for kind, words in _KINDS if any(word in line for word in words)), "others")


class Times:
    """A plugin of the runner: duration of each test, and CPU time of the run's processes."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.looked = Looked()
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def pytest_sessionstart(self) -> None:
        self._looking.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid][report.when] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        root = psutil.Process()
        while not self._ended.wait(_LOOK_EVERY_S):
            self.looked.look(root)

    def page(self, took_s: float) -> str:
        """The tables, as Markdown."""
        return "\n".join(
            [
                "# Where the time of the tests goes",
                "",
                f"Written by `make test-times`: {len(self.seconds)} tests, {_minutes(took_s)} on {os.cpu_count()} cores"
                f" with {areas.workers()} workers, without the set-up; commit {sampling.commit() or 'unknown'}, seed"
                f" {sampling.seed()}.",
                "",
                *self._by_process(took_s),
                "",
                *self._by_area(),
                "",
                *self._slowest(),
                "",
            ]
        )

    def _by_process(self, took_s: float) -> Iterable[str]:
        whole_s = took_s * (os.cpu_count() or 1)
        cpu_s: dict[str, float] = defaultdict(float)
        for key, kind in self.looked.kinds.items():
            cpu_s[kind] += self.looked.cpu_s[key]
        count = Counter(self.looked.kinds.values())
        rows = [(kind, count[kind], taken) for kind, taken in sorted(cpu_s.items(), key=lambda each: -each[1])]
        yield from _table(
            ("processes", "seen", "CPU s", "of the cores"),
            [
                *((kind, f"{seen:,}", f"{taken:,.0f}", f"{taken / whole_s:.0%}") for kind, seen, taken in rows),
                ("nobody: waits, and processes too short to be seen", "", f"{whole_s - sum(cpu_s.values()):,.0f}",
                 f"{1 - sum(cpu_s.values()) / whole_s:.0%}"),
            ],
        )  # fmt: skip

    def _by_area(self) -> Iterable[str]:
        areas: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, seconds in self.seconds.items():
            area = areas["/".join(name.split("::")[0].split("/")[1:-1]) or "tests"]
            for when, taken in seconds.items():
                area[when] += taken
            area["tests"] += 1
        rows = sorted(areas.items(), key=lambda each: -each[1]["call"] - each[1]["setup"])
        yield from _table(
            ("tests/", "tests", "fixtures and servers, s", "tests, s"),
            [
                (area, f"{seen['tests']:,.0f}", f"{seen['setup'] + seen['teardown']:,.0f}", f"{seen['call']:,.0f}")
                for area, seen in rows
            ],
        )

    def _slowest(self) -> Iterable[str]:
        slowest = sorted(self.seconds.items(), key=lambda each: -sum(each[1].values()))[:_SLOWEST]
        rows = [(f"{sum(seconds.values()):.1f}", f"`{name.removeprefix('tests/')}`") for name, seconds in slowest]
        yield from _table(("s", "the slowest, with their fixtures"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def main() -> int:
    """Run all tests as ``make test`` does, and write the page; the runner's exit code."""
    times = Times()
    arguments = [*areas.side_by_side(), *sys.argv[1:]]
    began_s = time.monotonic()
    code = pytest.main(arguments, plugins=[times])
    page = times.page(time.monotonic() - began_s)
    if sys.argv[1:]:
        print(page)
    else:
        PAGE.write_text(page)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
