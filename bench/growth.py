"""Growth of an epoch's cost with its table: epochs 10, 1,000 and 10,000. Table 4 of docs/benchmarks.md.

    python -m bench.growth [--quick]

Three tables with that many real epochs take turns: each round adds 20 epochs to each table, by a process of its own,
whose memory at its end is measured too; the first epoch of a process is left out. Rounds of the longer tables are also
multiples of the shortest table's round before them. Cores, partitions and files: `bench.growth_sizes`. Start-up and
recovery: `bench.growth_startup`. ``--quick`` has 300 epochs at most.
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
from collections.abc import Mapping
from pathlib import Path

import psutil
import yaml

from bench.contest import say
from bench.goals import Goal, Key, figure_of, ratio
from bench.logs import generated
from bench.run import Options, finish, main, parse, scratch
from bench.table import OURS, Measured
from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode
from ingest.execution.runner import LocalRunner
from ingest.protocol.events import Completed, Event

TABLE = "growth"
EPOCHS = (10, 1_000, 10_000)
_MORE = 20
_ROWS_AN_EPOCH = 100
_ROWS = 64_000
_ROUNDS = 9
_MS = "ms an epoch"
_CPU_MS = "CPU ms an epoch"
_KB = "written, KB an epoch"
_MB = "memory of the driver, MB"
_BESIDE = f"{_MS}, as a multiple of epoch 10 in the same round"


def _epoch(count: int) -> str:
    return f"epoch {count:,}"


GOALS = (
    Goal(
        f"{_MS} at epoch 10,000, as a multiple of epoch 10 (median of the rounds' ratios)",
        figure_of(Key(TABLE, _epoch(10_000), OURS, _BESIDE)),
        1.10,
        False,
    ),
    Goal(
        f"{_MB} at epoch 10,000, as a multiple of epoch 10",
        ratio(Key(TABLE, _epoch(10_000), OURS, _MB), Key(TABLE, _epoch(10), OURS, _MB)),
        1.10,
        False,
    ),
)


class Table:
    """One table, fed from one file, `_ROWS_AN_EPOCH` rows an epoch."""

    def __init__(self, folder: Path) -> None:
        """Write the job file; ingest nothing yet."""
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

    def ingest(self, epochs: int) -> Mapping[str, float]:
        """Ingest `epochs` more epochs by a process of its own; returns figures of that process, by metric."""
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
        figures: Mapping[str, float] = told["figures"]
        return figures


def ingest(job: Path) -> int:
    """Ingest all input, and print the figures of its epochs except the first, and the memory at the end."""
    config = load_config(job)
    process = psutil.Process()
    # At the end of each epoch: seconds, CPU seconds, bytes written.
    ended: list[tuple[float, float, int]] = []

    def note(event: Event) -> None:
        if isinstance(event, Completed):
            ended.append((time.perf_counter(), time.process_time(), process.io_counters().write_chars))

    stop = threading.Event()
    loop = IngestLoop(open_timeline(config), LocalRunner, mode=Mode.ONCE, stop=stop, listeners=[note])
    epochs = loop.run().epochs
    apart = [1000 * (after[0] - before[0]) for before, after in itertools.pairwise(ended)]
    _, cpu_s, written = (last - first for first, last in zip(ended[0], ended[-1], strict=True))
    figures = {
        _MS: statistics.median(apart),
        _CPU_MS: 1000 * cpu_s / len(apart),
        _KB: written / 1000 / len(apart),
        _MB: process.memory_info().rss / 1e6,
    }
    print(json.dumps({"epochs": epochs, "figures": figures}))
    return 0


def measure_epochs(options: Options, folder: Path) -> list[Measured]:
    """Measure three tables of different length, in turn."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    tables: dict[int, Table] = {}
    for count in options.counts(EPOCHS, (10, 100, 300)):
        tables[count] = Table(folder / f"epochs-{count}")
        say(f"making a table of {count:,} epochs")
        tables[count].ingest(count)
    for number in range(-options.warm_ups, options.rounds):
        for count, table in tables.items():
            figures = table.ingest(_MORE)
            for metric, value in figures.items() if number >= 0 else ():
                found[_epoch(count), metric].append(value)
    measured = {key: Measured(key[0], OURS, key[1], tuple(values)) for key, values in found.items()}
    first, *longer = (measured[_epoch(count), _MS] for count in tables)
    return [*measured.values(), *(each.beside(first, _BESIDE) for each in longer)]


def measure() -> int:
    """Measure and save the table; returns the exit code."""
    if sys.argv[1:2] == ["--ingest"]:
        return ingest(Path(sys.argv[2]))
    options = parse(__doc__, rounds=_ROUNDS)
    with scratch(options) as folder:
        measured = measure_epochs(options, folder)
    finish(TABLE, options, measured, f"epochs of {_ROWS_AN_EPOCH} rows")
    return 0


if __name__ == "__main__":
    main(measure)
