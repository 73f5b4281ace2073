"""What grows? Epochs 10, 1,000 and 10,000 of a table; cores, partitions, shards. Table 4 of docs/benchmarks.md.

    python -m bench.growth [--quick] [--rounds 5] [--works epoch,cores]

``epoch N``: three tables that really have so many epochs behind them take turns: each round puts 20 more into each,
by a process of its own, whose peak memory is told too; the first epoch of a process is left out. ``cores``,
``partitions``, ``shards``: the same log with one and two cores, into 1, 10 and 1,000 partitions, from 1, 16 and 256
files. Start-up and recovery: `bench.growth_startup`. ``--quick`` has 300 epochs at most.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil
import yaml

from bench.contest import Contest, Round, System, Task, say
from bench.entrants import entrants, files_work
from bench.goals import Goal, Key, ratio
from bench.logs import generated, parted
from bench.run import Options, finish, main, parse, scratch
from bench.systems.tideline import Unwatched
from bench.table import OURS, Measured
from ingest.build import open_timeline
from ingest.config import load_config
from ingest.events import Completed, Event
from ingest.loop import IngestLoop
from ingest.runner import LocalRunner
from ingest.summary import Mode

TABLE = "growth"
EPOCHS = (10, 1_000, 10_000)
PARTITIONS = (1, 10, 1_000)
SHARDS = (1, 16, 256)
_MORE = 20
_ROWS_AN_EPOCH = 100
_ROWS = 640_000
_MS = "ms an epoch"
_MB = "peak memory of the driver, MB"


def _epoch(count: int) -> str:
    return f"epoch {count:,}"


GOALS = tuple(
    Goal(
        f"{metric} at epoch 10,000, as a multiple of epoch 10",
        ratio(Key(TABLE, _epoch(10_000), OURS, metric), Key(TABLE, _epoch(10), OURS, metric)),
        1.10,
        False,
    )
    for metric in (_MS, _MB)
)


class Table:
    """One table, fed from one file, so many rows an epoch."""

    def __init__(self, folder: Path) -> None:
        """A job file; nothing has been ingested."""
        self._log = folder / "logs" / "a.jsonl"
        self.job = folder / "job.yaml"
        self._log.parent.mkdir(parents=True)
        source = generated(_ROWS // 10)
        lines = next(source.folder.iterdir()).read_bytes().splitlines(keepends=True)
        self._epoch = b"".join(lines[:_ROWS_AN_EPOCH])
        settings = {
            "name": "bench",
            "source": {
                "type": "files",
                "path": str(self._log),
                "format": "json",
                "close_after": "0s",
                "max_bytes_per_epoch": len(self._epoch),
            },
            "schema": source.columns,
            "targets": [{"type": "delta", "path": f"{folder}/table"}],
        }
        self.job.write_text(yaml.safe_dump(settings))

    def ingest(self, epochs: int) -> tuple[Sequence[float], float]:
        """Ingest so many epochs more by a process of its own.

        Returns:
            milliseconds from the end of each epoch to that of the next, and the process's peak memory in MB.
        """
        with self._log.open("ab") as log:
            for _ in range(epochs):
                log.write(self._epoch)
        command = [sys.executable, "-m", "bench.growth", "--ingest", str(self.job)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(ended.stderr)
        told = json.loads(ended.stdout)
        if told["epochs"] != epochs:
            raise SystemExit(f"{told['epochs']} epochs instead of {epochs}")
        return told["ms"], told["mb"]


def ingest(job: Path) -> int:
    """Ingest what is there, and print how long each epoch took and how much memory all of it."""
    config = load_config(job)
    ended: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, Completed):
            ended.append(time.perf_counter())

    stop = threading.Event()
    loop = IngestLoop(
        open_timeline(config), LocalRunner, mode=Mode.ONCE, stop=stop, observer=Unwatched(), listeners=[note]
    )
    epochs = loop.run().epochs
    apart = [1000 * (after - before) for before, after in itertools.pairwise(ended)]
    peak = psutil.Process().memory_info().rss / 1e6
    print(json.dumps({"epochs": epochs, "ms": apart, "mb": peak}))
    return 0


def measure_epochs(options: Options, folder: Path) -> list[Measured]:
    """Three tables of different length, in turn."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    tables: dict[int, Table] = {}
    for count in EPOCHS if not options.quick else (10, 100, 300):
        tables[count] = Table(folder / f"epochs-{count}")
        say(f"making a table of {count:,} epochs")
        tables[count].ingest(count)
    for number in range(-options.warm_ups, options.rounds):
        for count, table in tables.items():
            apart, peak = table.ingest(_MORE)
            for metric, value in ((_MS, statistics.median(apart)), (_MB, peak)) if number >= 0 else ():
                found[_epoch(count), metric].append(value)
    return [Measured(work, OURS, metric, tuple(values)) for (work, metric), values in found.items()]


def _figures(task: Task, done: Round) -> dict[str, float]:
    return {"rows/s": task.units / done.wall_s, "CPU s": done.cpu_s, "peak memory, MB": done.peak_mb}


def measure_sizes(options: Options, folder: Path) -> list[Measured]:
    """Cores, partitions and shards."""
    rows = options.share(_ROWS * 5)
    ours = entrants(folder, only="none besides")[0]
    one_core = System(OURS, ours.module, {**ours.settings, "master": "local[1]"}, {}, ours.python)
    wake = files_work(generated(2_000, files=2))
    tasks = [
        *(Task(f"{cores} cores", files_work(generated(rows)), rows, rows, wake) for cores in (1, 2)),
        *(
            Task(
                f"{count:,} partitions",
                files_work(parted(rows, count)) | {"partition_by": ["part"]},
                rows,
                rows,
                wake,
            )
            for count in PARTITIONS
        ),
        *(Task(f"{count} shards", files_work(generated(rows, files=count)), rows, rows, wake) for count in SHARDS),
    ]
    measured: list[Measured] = []
    for system in (one_core, ours):
        with Contest([system], folder).running() as contest:
            for task in tasks:
                if options.wants(task.name) and (task.name == "1 cores") == (system is one_core):
                    measured += contest.measure(task, options.rounds, _figures, warm_ups=options.warm_ups)
    return measured


def measure() -> int:
    """Do the table; the exit code."""
    if sys.argv[1:2] == ["--ingest"]:
        return ingest(Path(sys.argv[2]))
    options = parse(__doc__)
    with scratch(options) as folder:
        measured = measure_epochs(options, folder) if options.wants("epoch") else []
        measured += measure_sizes(options, folder)
    finish(TABLE, options, measured, f"epochs of {_ROWS_AN_EPOCH} rows; logs of {options.share(_ROWS * 5):,} rows")
    return 0


if __name__ == "__main__":
    main(measure)
