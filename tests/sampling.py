"""What one run of the tests draws at random, and how much of it.

Deterministic proofs (crash points and their pairs, the explorer, guards, contracts, properties) are whole in every run.
Of statistical ones (moments of kills, minutes of faults) a run takes a sample. Its seed is the commit's, so that each
commit tries other moments; ``SEED=`` repeats a run, ``make test-long`` takes all (``LONG=1``).
"""

from __future__ import annotations

import os
import random
import subprocess
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


def drawing(what: str) -> random.Random:
    """A generator of its own for each thing that is drawn, so that one test alone draws what it drew among all."""
    return random.Random(f"{seed()} {what}")


def share(sample: T, whole: T) -> T:
    """As much as this run takes."""
    return whole if os.environ.get("LONG") else sample


def _seed_of_commit() -> int:
    command = ["git", "rev-parse", f"--short={_DIGITS}", "HEAD"]
    try:
        named = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return _WITHOUT_A_COMMIT
    return int(named[:_DIGITS], 16)
