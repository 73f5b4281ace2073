"""Rate and cost of writing rows to TiKV: Tideline's epochs beside the ways without Tideline.

    python -m bench.tikv [--rows 500000] [--rounds 5] [--quick] [--json FILE]

Writes the same rows in every way, the ways in turn, each time into an empty cluster (PD, and the store of tests/real),
and prints medians with their spread. Source of the figures in docs/benchmarks-tikv.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.process_time import Stopwatch
from bench.table import Measured, Row
from bench.tikv_one_process import JvmCommitter, LargeBatches
from bench.tikv_parts import encoder_parts
from bench.tikv_ways import ClientTransactions, Epochs, Load, Way, count_rows
from ingest.config.models import SparkConfig
from ingest.execution.runner import LocalRunner
from ingest.execution.spark.runner import SparkRunner
from sinks.tikv.client import Endpoint, connection
from tests.real.tikv_cluster import running

TIDELINE_SPARK = "Tideline, Spark local[2]"
TIDELINE_LOCAL = "Tideline, one process"
CLIENTS = "tikv-client, Spark local[2]"
BATCHES = "prewrite/commit, one process"
JVM = "TwoPhaseCommitter, JVM"

_PREFIX = "tbench_"
_WARM_UP_ROWS = 2_000
_SHARE = {CLIENTS: 4}
"""Divisor of the number of rows, for a way that takes several times as long for each row."""


def line(row: Row) -> str:
    """One row of the results as a line of text."""
    return f"{row.work:22} {row.system:30} {row.metric:34} {row.median:12,.2f}  {row.low:,.2f}-{row.high:,.2f}"


class Rounds:
    """All ways over the same rows, in turn; in each round each way has an empty cluster of the same programs.

    The store writes rows twice (lock, then row) and defers a part of that work: no way pays for deferred work of the
    way before it.
    """

    def __init__(self, ways: dict[str, Way], rows: int) -> None:
        """Write nothing yet.

        Args:
            ways: ways by name.
            rows: number of rows of one way in one round.
        """
        self._ways = ways
        self._rows = rows
        self.values: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def run(self, key: str, number: int) -> None:
        """Run one round with one type of key.

        Args:
            key: the type.
            number: number of the round.
        """
        names = list(self._ways)
        for place in range(len(names)):
            # Each round begins with another way.
            name = names[(place + number) % len(names)]
            with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as cluster:
                way = self._ways[name]
                way.connect(cluster.pd)
                warm_up = Load(key, _PREFIX, 0, _WARM_UP_ROWS, 0)
                way.get_ready(warm_up)
                way.write(warm_up)
                until = _WARM_UP_ROWS + self._rows // _SHARE.get(name, 1)
                stopwatch = Stopwatch(each.pid for each in cluster.processes)
                self._measure(name, Load(key, _PREFIX, _WARM_UP_ROWS, until, 1), stopwatch, number)
                if number == 0:
                    found = count_rows(connection(Endpoint(tuple(cluster.pd))), _PREFIX)
                    assert found == until, f"{name}: {found} of {until} rows can be read"

    def _measure(self, name: str, load: Load, stopwatch: Stopwatch, number: int) -> None:
        way = self._ways[name]
        way.get_ready(load)
        stopwatch.wait_for_quiet_servers()
        busy_before = os.getloadavg()[0]
        with stopwatch.running():
            steps = way.write(load)
        spent = stopwatch.spent
        print(
            f"{load.key} round {number} {name:30} {load.rows / spent.wall_s:10,.0f} rows/s, client "
            f"{spent.client_s:.2f} s, server {spent.server_s:.2f} s, load {busy_before:.1f} "
            + " ".join(f"{step} {took_s:.2f}" for step, took_s in steps.items()),
            file=sys.stderr,
            flush=True,
        )
        measured = {
            "rows/s": load.rows / spent.wall_s,
            "wall s": spent.wall_s,
            "client CPU us/row": 1e6 * spent.client_s / load.rows,
            "server CPU us/row": 1e6 * spent.server_s / load.rows,
            "server CPU cores": spent.server_s / spent.wall_s,
            "load of the machine before": busy_before,
            **{f"{step} s": took_s for step, took_s in steps.items()},
        }
        for metric, value in measured.items():
            self.values[load.key, name, metric].append(value)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of an epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", default="bigint,string", help="types of the key column")
    parser.add_argument("--ways", default="", help="only those whose names have one of these words in them")
    parser.add_argument("--spark", default="", help="further settings of Spark, as key=value, comma separated")
    parser.add_argument(
        "--quick", action="store_true", help="about two minutes: fewer rows and rounds, one type of key"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    rows, rounds, keys = options.rows, options.rounds, options.keys.split(",")
    if options.quick:
        rows, rounds, keys = 50_000, 3, keys[:1]
    began = time.monotonic()
    # Spark first: its JVM is started from a process without gRPC threads.
    conf = dict(setting.split("=", 1) for setting in options.spark.split(",") if setting)
    runner = SparkRunner("bench-tikv", SparkConfig(master="local[2]", conf=conf))
    makers: dict[str, Callable[[], Way]] = {
        TIDELINE_SPARK: lambda: Epochs(runner),
        TIDELINE_LOCAL: lambda: Epochs(LocalRunner()),
        CLIENTS: lambda: ClientTransactions(runner),
        BATCHES: LargeBatches,
        JVM: JvmCommitter,
    }
    wanted = options.ways.split(",")
    ways = {name: make() for name, make in makers.items() if any(word in name for word in wanted)}
    measured = Rounds(ways, rows)
    try:
        for number in range(rounds):
            for key in keys:
                measured.run(key, number)
    except KeyboardInterrupt:
        print("interrupted; what is complete so far:", file=sys.stderr)
    finally:
        for way in ways.values():
            way.close()
        runner.close()
    figures = [
        Row.of("ways", Measured(f"{rows} rows, {key} key", name, metric, tuple(values)))
        for (key, name, metric), values in measured.values.items()
    ]
    for key in keys:
        work, each = f"{rows} rows, {key} key", [encoder_parts(key, rows // 2) for _ in range(rounds + 1)][1:]
        figures += [
            Row.of("encoder", Measured(work, "Tideline", f"{part} us/row", tuple(took[part] for took in each)))
            for part in each[0]
        ]
    for figure in figures:
        print(line(figure))
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s")
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


if __name__ == "__main__":
    main()
