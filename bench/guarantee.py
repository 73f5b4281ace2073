"""Cost of exactly-once: epochs by the protocol beside the same tasks without it. Table 2 of docs/benchmarks.md.

    python -m bench.guarantee [--quick] [--works "256 MB"]

Both in one session, in turn: the loop as ``tideline run --once`` runs it, and the same plans' tasks handed to the same
runner one after another: no timeline, no lease, no decision, no manifest, no completed instant, no commit to a target.
Both write markers, which are part of a task. The figures include a run's start and end.

Tasks are the same on both sides and nearly all of an epoch's cost, and as a machine's speed varies, so does their cost,
by more than the protocol's. So each round is compared with the one beside it, in the same minute, and two figures leave
the tasks out: the time in which no task runs, and the CPU of the driver's Python, which runs the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.contest import Contest, Round, System, Task, say
from bench.entrants import entrants, files_work
from bench.goals import Goal, Key, figure_of
from bench.logs import ROWS, generated
from bench.run import Options, finish, main, parse, scratch
from bench.table import OURS, Measured

TABLE = "guarantee"
BARE = "the same tasks, no protocol"
WALL = "s"
CPU = "CPU s"
BESIDE = "as a multiple of the round beside it"

_WORKS: Mapping[str, tuple[int, int, int]] = {
    "256 MB an epoch": (256, ROWS, ROWS // 4),
    "8 MB an epoch": (8, ROWS // 4, ROWS // 32),
}
"""Work → size of an epoch in 10^6 bytes, rows (8 and 64 epochs), and rows with ``--quick`` (2 and 8 epochs)."""

_ROUNDS = 25

_LIMITS = {"256 MB an epoch": 1.03, "8 MB an epoch": 1.10}

GOALS = tuple(
    Goal(
        f"{work}: {metric}, as a multiple of: {BARE} (median of the rounds' ratios)",
        figure_of(Key(TABLE, work, OURS, f"{metric}, {BESIDE}")),
        _LIMITS[work],
        False,
    )
    for work in _WORKS
    for metric in (WALL, CPU)
)


def _figures(task: Task, done: Round) -> dict[str, float]:
    epochs = done.own["epochs"]
    return {
        WALL: done.wall_s,
        CPU: done.cpu_s,
        "ms an epoch": 1000 * done.wall_s / epochs,
        "CPU ms an epoch": 1000 * done.cpu_s / epochs,
        "ms an epoch in which no task runs": 1000 * (done.wall_s - done.own["tasks_s"]) / epochs,
        "CPU ms an epoch, driver's Python": 1000 * done.own["driver_cpu_s"] / epochs,
        "epochs": epochs,
        "peak memory, MB": done.peak_mb,
        "written, MB": done.written_mb,
    }


def beside(measured: Sequence[Measured]) -> Iterator[Measured]:
    """Each round of ours as a multiple of the other side's round right before or after it."""
    found = {(each.system, each.metric): each for each in measured}
    for metric in (WALL, CPU):
        yield found[OURS, metric].beside(found[BARE, metric], f"{metric}, {BESIDE}")


def measure(options: Options) -> int:
    """Measure and save the table; returns the exit code."""
    wake = generated(2_000, files=2)
    problems: list[str] = []
    with scratch(options) as folder:
        ours = entrants(folder, only="none besides")[0]
        systems = [ours, System(BARE, ours.module, ours.settings, {"is_bare": True}, ours.python)]
        for work, (epoch_mb, rows, few) in _WORKS.items():
            if not options.wants(work):
                continue
            log = generated(options.counts([rows], [few])[0])
            limit = {"max_bytes_per_epoch": epoch_mb * 1_000_000}
            task = Task(work, files_work(log, **limit), log.rows, 1, wake=files_work(wake))
            with Contest(systems, folder / str(epoch_mb)).running() as contest:
                measured = contest.measure(task, options.rounds, _figures, warm_ups=options.warm_ups)
            if len({each.system for each in measured}) == len(systems):
                finish(TABLE, options, [*measured, *beside(measured)], f"{log.rows:,} rows, {log.bytes / 1e9:.2f} GB")
            problems += contest.problems
    for problem in problems:
        say(f"missing in the table: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    main(lambda: measure(parse(__doc__, rounds=_ROUNDS)))
