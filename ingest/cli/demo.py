"""`tideline demo`: proves exactly-once ingestion on generated logs. ``--crash`` kills the job in the middle."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import yaml
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from ingest.cli.generate import DEMO_COLUMNS, write_logs
from timeline.active import ActiveTimeline
from timeline.errors import InvariantError
from timeline.instant import State
from timeline.stores.opening import open_store
from timeline.units import count

_FILES = 4
_EPOCHS = 6
_SHOWN = ("id", "ts", "host", "method", "path", "status", "ts_date", "_shard", "_offset", "_epoch")


def run_demo(folder: Path, rows: int, *, crash: bool, console: Console) -> None:
    """Generate logs, ingest them (with ``--crash``: kill, recover, go on), prove the result, show it.

    Args:
        folder: where to work; an earlier demo in it is removed.
        rows: log lines to generate.
        crash: whether the job is killed by SIGKILL while its second epoch is being written.
        console: where to print.

    Raises:
        InvariantError: a line is missing or duplicated, a row has no line, or `folder` is not empty and holds no demo.
    """
    if folder.exists() and not (folder / "job.yaml").exists() and any(folder.iterdir()):
        raise InvariantError(f"{folder} is not empty and holds no demo: choose another --folder")
    shutil.rmtree(folder, ignore_errors=True)
    logs = write_logs(folder / "logs", rows, _FILES)
    size = sum(path.stat().st_size for path in logs)
    job = _write_job(folder, size)
    _say(
        console,
        f"{count(rows, 'line')}, {size / 1e6:.1f} MB, about 1 % of them malformed, in {folder / 'logs'}; job: {job}",
    )
    if crash:
        _say(console, f"tideline run {job}, and SIGKILL in the middle of its second epoch")
        _run_and_kill(job, folder / "lake")
        _tideline("show", job)
        _say(console, f"tideline recover {job}")
        _tideline("recover", job)
        _say(console, f"tideline run {job}, to the end")
    else:
        _say(console, f"tideline run {job}")
    _tideline("run", job, "--once")
    _say(console, "proof: every line of the files is in the table or in the quarantine, exactly once")
    console.print(_prove(folder, logs))
    _say(console, f"tideline show {job}")
    _tideline("show", job)
    _say(console, "the table's first rows")
    console.print(_first_rows(folder / "lake"))


def line_starts(path: Path) -> list[int]:
    """Byte offsets at which the lines of a file start, by a plain split of its bytes."""
    starts, at = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        starts.append(at)
        at += len(line)
    return starts


def _write_job(folder: Path, size: int) -> Path:
    job = folder / "job.yaml"
    settings = {
        "name": "demo",
        "source": {
            "type": "files",
            "path": f"{folder}/logs/*.jsonl",
            "format": "json",
            "max_bytes_per_epoch": size // _EPOCHS + 1,
            "close_after": "0s",
        },
        "schema": DEMO_COLUMNS,
        "partition_by": ["date(ts)"],
        "lineage": True,
        "targets": [{"type": "delta", "path": f"{folder}/lake"}],
        "quarantine": {"path": f"{folder}/quarantine"},
        "spark": {"master": "local[2]"},
    }
    job.write_text(yaml.safe_dump(settings, sort_keys=False))
    return job


def _run_and_kill(job: Path, lake: Path) -> None:
    process = subprocess.Popen([*_COMMAND, "run", str(job), "--once"])
    store = open_store(str(lake))
    while process.poll() is None:
        commits = ActiveTimeline.load(store).instants
        if len(commits) >= 2 and commits[-1].state is State.INFLIGHT:
            time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    code = process.wait()
    print(f"the job ended with {signal.Signals(-code).name if code < 0 else code}", file=sys.stderr)


def _tideline(command: str, job: Path, *options: str) -> None:
    subprocess.run([*_COMMAND, command, str(job), *options], check=True)


_COMMAND = (sys.executable, "-m", "ingest")


def _prove(folder: Path, logs: list[Path]) -> Table:
    expected = Counter((path.name, start) for path in logs for start in line_starts(path))
    committed = DeltaTable(folder / "lake").to_pyarrow_table(columns=["id", "_shard", "_offset"])
    rejected = DeltaTable(folder / "quarantine").to_pyarrow_table(columns=["shard", "offset"])
    found = Counter(zip(committed["_shard"].to_pylist(), committed["_offset"].to_pylist(), strict=True))
    found.update(zip(rejected["shard"].to_pylist(), rejected["offset"].to_pylist(), strict=True))
    table = Table("lines in files", "rows in table", "rejected", "missing", "twice", box=None, header_style="bold")
    missing, twice = expected - found, found - expected
    table.add_row(
        f"{expected.total():,}",
        f"{committed.num_rows:,}",
        f"{rejected.num_rows:,}",
        f"{missing.total():,}",
        f"{twice.total():,}",
    )
    if missing or twice or len(set(committed["id"].to_pylist())) != committed.num_rows:
        raise InvariantError(
            f"the table is wrong: {count(missing.total(), 'line')} missing, {count(twice.total(), 'row')} too many"
        )
    return table


def _first_rows(lake: Path) -> Table:
    rows = DeltaTable(lake).to_pyarrow_table(columns=list(_SHOWN)).sort_by("id").slice(0, 5)
    table = Table(*_SHOWN, box=None, header_style="bold", pad_edge=False)
    for row in rows.to_pylist():
        table.add_row(*(str(row[name]) for name in _SHOWN))
    return table


def _say(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left")
