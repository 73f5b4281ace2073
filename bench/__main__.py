"""Measures all tables, one after another, and writes their page, as ``make bench`` does.

python -m bench [--quick] [the other options of the tables' scripts]
"""

from __future__ import annotations

import subprocess
import sys

from bench import pages
from bench.contest import say
from bench.run import main, parse


def measure() -> int:
    """Run the script of each table, then write the page; returns 1 if a table is incomplete, else 0."""
    options = parse(__doc__)
    missing: list[str] = []
    for table in pages.TABLES:
        say(f"table {table}")
        # A process for each table: none starts with memory that another one left.
        if not run([sys.executable, "-m", f"bench.{table}", *sys.argv[1:]]):
            missing.append(table)
    page = options.results / "benchmarks.md" if options.quick else pages.PAGE
    pages.write(page, options.results)
    say(f"{page} is written" + (f"; something is missing in {', '.join(missing)}" if missing else ""))
    return 1 if missing else 0


def run(command: list[str]) -> bool:
    """Run a command; whether it exits with 0. Ctrl-C reaches the command as well: wait for its clean-up."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.wait()
            raise


if __name__ == "__main__":
    main(measure)
