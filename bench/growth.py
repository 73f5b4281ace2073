"""What grows with a table? Epochs 10, 1,000 and 10,000 of it. Table 4 of docs/benchmarks.md.

    python -m bench.growth [--quick] [--rounds 5]

Three tables that really have so many epochs behind them take turns: each round puts 20 more into each, by a process of
its own, whose memory at its end is told too; the first epoch of a process is left out. Cores, partitions and files:
`bench.growth_sizes`. Start-up and recovery: `bench.growth_startup`. ``--quick`` has 300 epochs at most.
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

from bench.contest import say
from bench.goals import Goal, Key, ratio
from bench.logs import generated
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
_MORE = 20
_ROWS_AN_EPOCH = 100
_ROWS = 64_000
_MS = "ms an epoch"
_MB = "memory of the driver, MB"


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
        source = generated(_ROWS)
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
            milliseconds from the end of each epoch to that of the next, and the process's memory in MB at its end.
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
    """Ingest what is there, and print how long each epoch took and the memory at the end."""
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
    memory = psutil.Process().memory_info().rss / 1e6
    print(json.dumps({"epochs": epochs, "ms": apart, "mb": memory}))
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
            apart, memory = table.ingest(_MORE)
            for metric, value in ((_MS, statistics.median(apart)), (_MB, memory)) if number >= 0 else ():
                found[_epoch(count), metric].append(value)
    return [Measured(work, OURS, metric, tuple(values)) for (work, metric), values in found.items()]


def measure() -> int:
    """Do the table; the exit code."""
    if sys.argv[1:2] == ["--ingest"]:
        return ingest(Path(sys.argv[2]))
    options = parse(__doc__)
    with scratch(options) as folder:
        measured = measure_epochs(options, folder)
    finish(TABLE, options, measured, f"epochs of {_ROWS_AN_EPOCH} rows")
    return 0


if __name__ == "__main__":
    main(measure)
