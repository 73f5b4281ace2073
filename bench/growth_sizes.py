"""Rate with 1 and 2 cores, 1, 10 and 1,000 partitions, 1, 16 and 256 files. Table 4 of docs/benchmarks.md.

    python -m bench.growth_sizes [--quick] [--rounds 5] [--works core,partition]

The same rows each time. Every size has a process and a session of its own, and they take turns: none starts with memory
of another. Partitions are measured with Spark alone too.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.contest import Contest, Round, System, Task, say
from bench.entrants import SPARK, entrants, files_work
from bench.logs import generated, parted
from bench.run import Options, finish, main, parse, scratch
from bench.table import Measured, many

TABLE = "growth_sizes"
CORES = (1, 2)
PARTITIONS = (1, 10, 1_000)
FILES = (1, 16, 256)
_ROWS = 3_200_000
_WAKE_ROWS = 2_000


@dataclass(frozen=True)
class Size:
    """One of the sizes.

    Attributes:
        name: its name in the table.
        work: the request to the systems.
        settings: additional settings for their start.
        peers: names of the systems beside ours.
    """

    name: str
    work: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[str, ...] = ()

    def systems(self, folder: Path) -> list[System]:
        """The systems that do the work, ours first."""
        everyone = entrants(folder, only=",".join(self.peers) or "none besides")
        return [replace(each, settings={**each.settings, **self.settings}) for each in everyone]


def sizes(rows: int) -> list[Size]:
    """All sizes, for logs of `rows` rows."""
    by = {"partition_by": ["part"]}
    return [
        *(Size(many(cores, "core"), files_work(generated(rows)), {"master": f"local[{cores}]"}) for cores in CORES),
        *(Size(many(count, "partition"), files_work(parted(rows, count)) | by, peers=(SPARK,)) for count in PARTITIONS),
        *(Size(many(count, "file"), files_work(generated(rows, files=count))) for count in FILES),
    ]


def measure(options: Options) -> int:
    """Measure and save the table; returns the exit code."""
    rows = options.share(_ROWS)
    wake = files_work(generated(_WAKE_ROWS, files=2))
    wanted = [size for size in sizes(rows) if options.wants(size.name)]
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with scratch(options) as folder, contextlib.ExitStack() as until:
        contests: list[tuple[Contest, Task]] = []
        for size in wanted:
            own = folder / size.name.replace(" ", "-")
            contest = until.enter_context(Contest(size.systems(own), own).running())
            contests.append((contest, Task(size.name, size.work, rows, rows, wake)))
        for number in range(-options.warm_ups, options.rounds):
            turn = number % max(len(contests), 1)
            for contest, task in [*contests[turn:], *contests[:turn]]:
                for each in contest.measure(task, 1, _figures, warm_ups=0):
                    found[each.work, each.system, each.metric] += each.values if number >= 0 else ()
        problems = [problem for contest, _ in contests for problem in contest.problems]
    measured = [
        Measured(*key, tuple(values))
        for size in wanted
        for key, values in found.items()
        if key[0] == size.name and len(values) == options.rounds
    ]
    finish(TABLE, options, measured, f"{rows:,} rows")
    for problem in problems:
        say(f"missing in the table: {problem}")
    return 1 if problems else 0


def _figures(task: Task, done: Round) -> dict[str, float]:
    return {
        "rows/s": task.units / done.wall_s,
        "CPU s": done.cpu_s,
        "peak memory, MB": done.peak_mb,
        "written, MB": done.written_mb,
    }


if __name__ == "__main__":
    main(lambda: measure(parse(__doc__)))
