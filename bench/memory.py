"""Memory of a job: the driver's over many epochs, the tasks' over epochs of growing size.

    python -m bench.memory [--epochs 300] [--sizes 16,64,256,1024]

Runs `tideline run` as a user would, samples the resident set of driver and Python workers ten times a second, and
prints one table for each. Source of the figures in docs/memory.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from ingest.cli.generate import DEMO_COLUMNS, write_logs
from timeline.active import ActiveTimeline
from timeline.stores.opening import open_store

MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """Resident set sizes at one moment, in MiB, and the number of epochs completed by then."""

    epochs: int
    driver: float
    largest_worker: float


def write_job(folder: Path, max_bytes_per_epoch: int) -> Path:
    """Write a job file over ``folder/logs``."""
    job = folder / "job.yaml"
    job.write_text(
        yaml.safe_dump(
            {
                "name": "memory",
                "source": {
                    "type": "files",
                    "path": f"{folder}/logs/*.jsonl",
                    "format": "json",
                    "max_bytes_per_epoch": max_bytes_per_epoch,
                    "close_after": "0s",
                },
                "schema": DEMO_COLUMNS,
                "targets": [{"type": "delta", "path": f"{folder}/lake"}],
                "spark": {"master": "local[2]"},
            }
        )
    )
    return job


def watch(job: Path) -> Iterator[Sample]:
    """Run the job once, and sample its processes until it ends."""
    store = open_store(str(job.parent / "lake"))
    with (job.parent / "run.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "ingest", "run", str(job), "--once"], stdout=log, stderr=log)
    driver = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            workers = [each for each in driver.children(recursive=True) if each.name().startswith("python")]
            sizes = [each.memory_info().rss / MIB for each in workers]
            resident = driver.memory_info().rss / MIB
        except psutil.NoSuchProcess:
            continue
        yield Sample(len(ActiveTimeline.load(store).completed()), resident, max(sizes, default=0.0))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit((job.parent / "run.log").read_text()[-2000:])


def driver_over_epochs(epochs: int) -> None:
    """Print the driver's memory as the number of epochs grows."""
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder) / "logs", epochs * 500, 1)
        size = (Path(folder) / "logs" / "access-000.jsonl").stat().st_size
        samples = list(watch(write_job(Path(folder), size // epochs)))
    print("epochs completed | driver MiB")
    for mark in (10, 50, 100, 150, 200, 250, 300):
        near = [sample.driver for sample in samples if abs(sample.epochs - mark) <= 2]
        if near:
            print(f"{mark:16} | {sorted(near)[len(near) // 2]:10.1f}")


def workers_over_sizes(sizes_mib: list[int]) -> None:
    """Print the largest Python worker's memory as the size of an epoch grows."""
    print("epoch MiB | largest worker MiB")
    for size in sizes_mib:
        with tempfile.TemporaryDirectory() as folder:
            write_logs(Path(folder) / "logs", size * 4600, 1)
            samples = list(watch(write_job(Path(folder), 1 << 40)))
        print(f"{size:9} | {max(sample.largest_worker for sample in samples):18.1f}")


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--sizes", default="16,64,256,1024", help="epoch sizes in MiB")
    options = parser.parse_args()
    driver_over_epochs(options.epochs)
    workers_over_sizes([int(size) for size in options.sizes.split(",")])


if __name__ == "__main__":
    main()
