"""``python -m tests.soak --seed S --minutes M``: the last line has the result; exit code 1 means problems."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.real.toolchain import MissingToolchainError
from tests.soak.soak import Soak


def main() -> int:
    """Run one soak; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="A real job under random faults.")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of all that is drawn")
    parser.add_argument("--minutes", type=float, default=20.0, help="for which there are faults")
    parser.add_argument(
        "--folder", type=Path, help="takes everything, and is kept; by default one that is removed if all went well"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tideline-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soak: seed {arguments.seed}, {arguments.minutes:g} minutes, in {folder}", flush=True)
    is_well = False
    try:
        is_well = Soak(folder, arguments.seed, arguments.minutes).run()
    except MissingToolchainError as missing:
        print(missing)
    finally:
        if is_well and arguments.folder is None:
            shutil.rmtree(folder)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
