"""Seed and sample sizes of one test run.

Deterministic proofs (crash points and their pairs, the explorer, guards, contracts, properties) are whole in every run.
Statistical ones (moments of kills, minutes of faults) are sampled. The seed is the commit's, so that each commit tries
other moments; ``SEED=`` repeats a run, ``make test-long`` takes all (``LONG=1``).
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_DIGITS = 7
"""Hexadecimal digits of a commit's name: as many bits as any seed here takes."""
_WITHOUT_A_COMMIT = 20_260_301


def settle_seed() -> int:
    """Set ``SEED`` for this process and its children: the requested seed, or the commit's."""
    if not os.environ.get("SEED"):
        os.environ["SEED"] = str(_seed_of_commit())
    return seed()


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get("SEED") or _seed_of_commit())


def drawing(what: str, of: int | None = None) -> random.Random:
    """A separate generator for each purpose, so that a test draws the same values alone as in a whole run.

    Args:
        what: names the purpose.
        of: the seed; this run's by default.
    """
    return random.Random(f"{seed() if of is None else of} {what}")


@dataclass(frozen=True)
class Kills:
    """Kills of a job's processes at drawn moments.

    Attributes:
        what: names the purpose, see `drawing`.
        sample: number of kills in a run.
        whole: number of kills in `make test-long`.
        within_s: latest kill, in seconds after an epoch has begun.
        among: processes to kill, in turn.
    """

    what: str
    sample: int
    whole: int
    within_s: float
    among: Sequence[str]

    @property
    def count(self) -> int:
        """Number of kills in this run."""
        return share(self.sample, self.whole)

    def moments(self, of: int | None = None) -> Iterator[tuple[str, float]]:
        """Endless pairs: the process to kill, and seconds after an epoch has begun. See `drawing`."""
        draw = drawing(self.what, of)
        for victim in itertools.cycle(draw.sample(self.among, len(self.among))):
            yield victim, draw.uniform(0.0, self.within_s)


PROCESSES = ("driver", "driver", "jvm", "worker")
KILLS = Kills("kills", 5, 40, 2.5, PROCESSES)
KILLS_OF_DRIVERS = Kills("kills of a driver", 8, 40, 0.3, ("driver",))
KILLS_OF_QUERIES = Kills("kills of a query", 4, 12, 2.5, PROCESSES)


def share(sample: T, whole: T) -> T:
    """The amount for this run: the sample, or the whole with ``LONG``."""
    return whole if os.environ.get("LONG") else sample


def commit() -> str:
    """The short name of the commit that is checked out; "" where there is none."""
    command = ["git", "rev-parse", f"--short={_DIGITS}", "HEAD"]
    try:
        return subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _seed_of_commit() -> int:
    return int(commit()[:_DIGITS] or "0", 16) or _WITHOUT_A_COMMIT


def covered(kills: Kills, seeds: Sequence[int], count: int) -> tuple[int, int]:
    """Coverage of runs with these seeds: number of moments, and of tenths of the window, counted for each process."""
    cells: set[tuple[str, int]] = set()
    for each in seeds:
        drawn = itertools.islice(kills.moments(each), count)
        cells |= {(victim, int(10 * later_s / kills.within_s)) for victim, later_s in drawn}
    return len(seeds) * count, len(cells)


def main() -> None:
    """Print the coverage of 20 sampled runs beside that of one whole run."""
    for kills in (KILLS, KILLS_OF_DRIVERS, KILLS_OF_QUERIES):
        sampled = covered(kills, range(20), kills.sample)
        whole = covered(kills, [_WITHOUT_A_COMMIT], kills.whole)
        cells = f"of {10 * len(set(kills.among))} tenths"
        print(f"{kills.what}: 20 runs {sampled[0]} moments, {sampled[1]} {cells}; whole {whole[0]}, {whole[1]} {cells}")


if __name__ == "__main__":
    main()
