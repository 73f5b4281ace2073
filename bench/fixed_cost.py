"""Fixed cost of an epoch, however small. Table 3 of docs/benchmarks.md.

    python -m bench.fixed_cost [--quick] [--works S3] [--systems Delta]

200 files of 1,000 rows; every system reads one file an epoch (``max_files_per_epoch: 1``, ``maxFilesPerTrigger=1``)
until the last one, from the start of its stream to its end: each figure includes 1/200 of the start. The files are
local. On S3, targets, timeline and the peers' checkpoints are in one bucket of a server on loopback; in addition, our
tasks write their files without any protocol, with five small puts for each epoch: as a Spark job, and in the driver,
where ours writes epochs of this size too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.contest import Contest, Round, System, Task, say
from bench.entrants import DELTA, HUDI_STREAM, ICEBERG, entrants, files_work
from bench.goals import Goal, Key, ratio
from bench.logs import generated
from bench.run import Options, finish, main, parse, scratch
from bench.s3 import bucket
from bench.table import OURS
from ingest.config.models import SmallEpochs
from tests.real.toolchain import MissingToolchainError

TABLE = "fixed_cost"
LOCAL = "1,000 rows an epoch, local"
S3 = "1,000 rows an epoch, S3"
PLAIN = "plain write by Spark tasks and five small puts"
PLAIN_HERE = "plain write in the driver and five small puts"

EPOCH_ROWS = 1_000
EPOCHS = 200
_PUTS = 5
_WAKE_EPOCHS = 2

WALL = "ms an epoch"
CPU = "CPU ms an epoch"
_REQUESTS = "requests an epoch"


def _than(work: str, system: str, limit: float, text: str) -> Goal:
    return Goal(text, ratio(Key(TABLE, work, OURS, WALL), Key(TABLE, work, system, WALL)), limit, False)


GOALS = (
    _than(LOCAL, DELTA, 1 / 3, f"{LOCAL}: {WALL}, as a multiple of: {DELTA}"),
    _than(LOCAL, ICEBERG, 1.0, f"{LOCAL}: {WALL}, as a multiple of: {ICEBERG}"),
    _than(S3, PLAIN, 1.0, f"{S3}: {WALL}, as a multiple of: {PLAIN}"),
    _than(S3, PLAIN_HERE, 1.0, f"{S3}: {WALL}, as a multiple of: {PLAIN_HERE}"),
)


def _figures(task: Task, done: Round) -> dict[str, float]:
    found = {
        WALL: 1000 * done.wall_s / task.units,
        CPU: 1000 * done.cpu_s / task.units,
        "peak memory, MB": done.peak_mb,
        "written, MB": done.written_mb,
    }
    if "in_batch_s" in done.own:
        found["ms in the batch"] = 1000 * done.own["in_batch_s"] / task.units
    if done.requests is not None:
        found[_REQUESTS] = done.requests / task.units
    return found


def measure(options: Options) -> int:
    """Measure and save the table; returns the exit code."""
    problems: list[str] = []
    with scratch(options) as folder:
        if options.wants(LOCAL):
            problems += _contest(LOCAL, _streams(entrants(folder, only=options.systems)), folder, options)
        if options.wants(S3):
            problems += _on_s3(folder / "on-s3", options)
    for problem in problems:
        say(f"missing in the table: {problem}")
    return 1 if problems else 0


def _on_s3(folder: Path, options: Options) -> list[str]:
    folder.mkdir()
    try:
        with bucket(folder) as s3:
            systems = _streams(entrants(folder, s3=s3.server, only=options.systems))
            systems[1:1] = [
                _bare(PLAIN, systems[0], SmallEpochs.EXECUTORS),
                _bare(PLAIN_HERE, systems[0], SmallEpochs.DRIVER),
            ]
            return _contest(S3, systems, folder / "s3", options, requests=s3.requests, place=s3.place)
    except MissingToolchainError as error:
        say(f"skipped: {S3}: {error}")
        return []


def _contest(work: str, systems: list[System], folder: Path, options: Options, **how: Any) -> list[str]:
    epochs = options.share(EPOCHS)
    log = generated(epochs * EPOCH_ROWS, files=epochs)
    wake = generated(_WAKE_EPOCHS * EPOCH_ROWS, files=_WAKE_EPOCHS)
    place = how.pop("place", str)
    batches = {"files_per_batch": 1}
    task = Task(
        work,
        files_work(log, max_files_per_epoch=1) | batches,
        log.rows,
        epochs,
        wake=files_work(wake, max_files_per_epoch=1) | batches,
        place=place,
    )
    with Contest(systems, folder, **how).running() as contest:
        measured = contest.measure(task, options.rounds, _figures, warm_ups=options.warm_ups)
    if measured:
        sizes = f"{epochs} epochs of {EPOCH_ROWS:,} rows, {log.bytes / epochs / 1e6:.2f} MB each"
        finish(TABLE, options, measured, sizes)
    return contest.problems


def _streams(systems: list[System]) -> list[System]:
    """The streaming systems."""
    return [system for system in systems if system.name in (OURS, DELTA, ICEBERG, HUDI_STREAM)]


def _bare(name: str, ours: System, written_by: SmallEpochs) -> System:
    """Our own tasks without the protocol, in a process of their own, so that its memory is theirs."""
    work = {"is_bare": True, "puts": _PUTS, "small_epochs": written_by.value}
    return System(name, ours.module, {**ours.settings, "as": name}, work, ours.python)


if __name__ == "__main__":
    main(lambda: measure(parse(__doc__)))
