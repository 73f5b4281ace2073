"""All tables, one after another, and the page of them: what ``make bench`` runs.

python -m bench [--quick] [the other options of the tables' scripts]
"""

from __future__ import annotations

import subprocess
import sys

from bench import pages
from bench.contest import say
from bench.run import main, parse


def measure() -> int:
    """Run the script of each table, then write the page; 1 where something is missing in a table."""
    options = parse(__doc__)
    missing: list[str] = []
    for table in pages.TABLES:
        say(f"table {table}")
        # A process each: what one table leaves in memory does not weigh on the next.
        if not run([sys.executable, "-m", f"bench.{table}", *sys.argv[1:]]):
            missing.append(table)
    page = options.results / "benchmarks.md" if options.quick else pages.PAGE
    pages.write(page, options.results)
    say(f"{page} is written" + (f"; something is missing in {', '.join(missing)}" if missing else ""))
    return 1 if missing else 0


def run(command: list[str]) -> bool:
    """Whether a command did all that it was to do. Ctrl-C reaches it as well: it is waited for while it cleans up."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.wait()
            raise


if __name__ == "__main__":
    main(measure)
