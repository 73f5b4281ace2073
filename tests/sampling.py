"""What one run of the tests draws at random, and how much of it.

Deterministic proofs (crash points and their pairs, the explorer, guards, contracts, properties) are whole in every run.
Of statistical ones (moments of kills, minutes of faults) a run takes a sample. Its seed is the commit's, so that each
commit tries other moments; ``SEED=`` repeats a run, ``make test-long`` takes all (``LONG=1``).
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
"""Of a commit's name: as many bits as any seed here takes."""
_WITHOUT_A_COMMIT = 20_260_301


def settle_seed() -> int:
    """Give the seed to this process and to those below it: the one that was asked for, or the commit's."""
    if not os.environ.get("SEED"):
        os.environ["SEED"] = str(_seed_of_commit())
    return seed()


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get("SEED") or _seed_of_commit())


def drawing(what: str, of: int | None = None) -> random.Random:
    """A generator of its own for each thing that is drawn, so that one test alone draws what it drew among all.

    Args:
        what: names what is drawn.
        of: the seed; this run's by default.
    """
    return random.Random(f"{seed() if of is None else of} {what}")


@dataclass(frozen=True)
class Kills:
    """Kills of a job's processes at drawn moments.

    Attributes:
        what: names what is drawn.
        sample: how many a run takes.
        whole: how many `make test-long` takes.
        within_s: after an epoch has begun.
        among: who is killed, in turn.
    """

    what: str
    sample: int
    whole: int
    within_s: float
    among: Sequence[str]

    @property
    def count(self) -> int:
        """How many this run takes."""
        return share(self.sample, self.whole)

    def moments(self, of: int | None = None) -> Iterator[tuple[str, float]]:
        """Whom to kill, and how long after an epoch has begun, in seconds; without end. See `drawing`."""
        draw = drawing(self.what, of)
        for victim in itertools.cycle(draw.sample(self.among, len(self.among))):
            yield victim, draw.uniform(0.0, self.within_s)


PROCESSES = ("driver", "driver", "jvm", "worker")
KILLS = Kills("kills", 5, 40, 2.5, PROCESSES)
KILLS_OF_DRIVERS = Kills("kills of a driver", 8, 40, 0.3, ("driver",))
KILLS_OF_QUERIES = Kills("kills of a query", 4, 12, 2.5, PROCESSES)


def share(sample: T, whole: T) -> T:
    """As much as this run takes."""
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
    """What runs by some seeds cover: moments, and the tenths of the window in which each process is killed."""
    cells: set[tuple[str, int]] = set()
    for each in seeds:
        drawn = itertools.islice(kills.moments(each), count)
        cells |= {(victim, int(10 * later_s / kills.within_s)) for victim, later_s in drawn}
    return len(seeds) * count, len(cells)


def main() -> None:
    """Print what 20 runs of the samples cover beside one run of all."""
    for kills in (KILLS, KILLS_OF_DRIVERS, KILLS_OF_QUERIES):
        sampled = covered(kills, range(20), kills.sample)
        whole = covered(kills, [_WITHOUT_A_COMMIT], kills.whole)
        cells = f"of {10 * len(set(kills.among))} tenths"
        print(f"{kills.what}: 20 runs {sampled[0]} moments, {sampled[1]} {cells}; whole {whole[0]}, {whole[1]} {cells}")


if __name__ == "__main__":
    main()
