"""Seconds from `tideline recover` to done, with 1, 100 and 10,000 data files in the pending epoch, on files and S3.

    python -m bench.recovery [--quick] [--rounds 5] [--works local,S3]

``recommit``: the epoch is prepared, so recovery checks its files, decides, commits and completes it. ``roll back``: it
is written and not prepared, so recovery decides against it and deletes its files. Figures are of the command's whole
process, including the start of Python and of its libraries, and on S3 the import and start of the client.
``--quick`` has 1,000 files at most.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from bench.goals import Goal, Key, figure_of
from bench.pending import LOCAL, WALL, Medium, leave_pending, media, new_place, run
from bench.run import finish, main, parse, scratch
from bench.table import OURS, Measured, many

FILES = (1, 100, 10_000)
_LIMITS_S = {1: 1.0, 100: 1.5, 10_000: 5.0}
_WAYS = ("recommit", "roll back")


def _work(way: str, files: int, medium: str) -> str:
    return f"{way}, {many(files, 'file')}, {medium}"


GOALS = tuple(
    Goal(f"{work}: seconds", figure_of(Key("recovery", work, OURS, WALL)), limit, False)
    for files, limit in _LIMITS_S.items()
    for work in (_work(way, files, medium) for medium in (LOCAL, "S3") for way in _WAYS)
)


def measure() -> int:
    """Measure and save the table; returns the exit code."""
    options = parse(__doc__)
    counts = options.counts(FILES, (1, 100, 1_000))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with scratch(options) as folder, media(folder) as places:
        works = [
            (_work(way, files, medium.name), medium, files, way)
            for files in counts
            for way in _WAYS
            for medium in places
        ]
        for number in range(-options.warm_ups, options.rounds):
            for work, medium, files, way in works:
                if options.wants(work):
                    figures = once(folder, medium, files, is_prepared=way == "recommit")
                    for metric, value in figures.items() if number >= 0 else ():
                        found[work, metric].append(value)
    measured = [Measured(work, OURS, metric, tuple(values)) for (work, metric), values in found.items()]
    sizes = ", ".join(f"{files:,}" for files in counts) + " files of 100 rows, √n partitions"
    finish("recovery", options, measured, sizes)
    return 0


def once(folder: Path, medium: Medium, files: int, *, is_prepared: bool) -> dict[str, float]:
    """Measure one recovery of a new job.

    Args:
        folder: working folder.
        medium: storage of its lake.
        files: number of data files in the pending epoch.
        is_prepared: whether the epoch is prepared.
    """
    place = new_place(medium, folder)
    try:
        leave_pending(place, files, is_prepared=is_prepared)
        figures = run(place, "recover").figures
        data = [path for path in place.lake.rglob("*-0_*.parquet") if ".hoodie" not in path.parts]
        expected = files if is_prepared else 0
        if len(data) != expected:
            raise SystemExit(f"{len(data)} data files are there after recovery, {expected} expected")
        return figures
    finally:
        place.remove()


if __name__ == "__main__":
    main(measure)
