"""Common parts of the tables' scripts: options, a working folder, results, conditions."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

from bench import pins
from bench.contest import say
from bench.table import RESULTS, Measured, save, show
from tests.real import kafka_server, s3_server
from tests.real.toolchain import find_java

QUICK_SHARE = 10
"""Divisor of amounts with ``--quick``."""

TINY_SHARE = 2_000
"""Divisor of amounts with ``--tiny``, which takes the shortest of several lengths, up to `_TINY_MOST`."""

_TINY_MOST = 10

QUICK = RESULTS / "quick"
"""Folder of the results of ``--quick``."""


@dataclass(frozen=True)
class Options:
    """Options of a script.

    Attributes:
        quick: a tenth of the data: minutes instead of an hour.
        tiny: seconds, to check that a script runs; its figures are meaningless.
        rounds: number of measured rounds.
        warm_ups: number of unmeasured rounds before, in which the JVM compiles frequent code.
        works: parts of names of the works to do, with commas between; all if empty.
        systems: parts of names of the systems beside ours, with commas between; all if empty.
        results: folder of the results.
        scratch: parent of the temporary working folder; None: the system's temporary folder.
    """

    quick: bool
    tiny: bool
    rounds: int
    warm_ups: int
    works: str
    systems: str
    results: Path
    scratch: Path | None

    def wants(self, work: str) -> bool:
        """Whether a work is to be done."""
        return not self.works or any(part.strip() in work for part in self.works.split(","))

    def share(self, amount: int) -> int:
        """Share of a table's amount (rows, epochs, megabytes) to use; at least one."""
        return max(1, amount // (TINY_SHARE if self.tiny else QUICK_SHARE if self.quick else 1))

    def counts(self, whole: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """Lengths to measure: those of the whole table, or the quick ones."""
        if self.tiny:
            return [min(count, _TINY_MOST) for count in quick[:1]]
        return quick if self.quick else whole


def parse(doc: str | None, argv: Sequence[str] | None = None, *, rounds: int = 5) -> Options:
    """The options of a script.

    Args:
        doc: description of the script.
        argv: its command line; that of this process by default.
        rounds: default number of measured rounds.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data: minutes")
    parser.add_argument("--tiny", action="store_true", help="next to nothing: whether the script runs")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"measured rounds ({rounds})")
    parser.add_argument("--warm-ups", type=int, help="unmeasured rounds before (1; 2 where they are short)")
    parser.add_argument("--works", default="", help="only works with one of these, with commas between, in their names")
    parser.add_argument("--systems", default="", help="only peers with one of these in their names; ours always")
    parser.add_argument("--results", type=Path, help="folder of the JSON files (bench/results; --quick: quick in it)")
    parser.add_argument("--scratch", type=Path, default=None, help="where to work (the system's temporary folder)")
    given = parser.parse_args(argv)
    if given.warm_ups is None:
        given.warm_ups = 2 if given.quick else 1
    # Quick figures never replace those on the page.
    given.results = given.results or (QUICK if given.quick or given.tiny else RESULTS)
    return Options(**vars(given))


@contextlib.contextmanager
def scratch(options: Options) -> Iterator[Path]:
    """A temporary working folder until the block ends; SIGTERM ends the block as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tideline-bench-", dir=options.scratch) as folder:
            yield Path(folder)
    finally:
        signal.signal(signal.SIGTERM, before)


def finish(
    table: str, options: Options, measured: Sequence[Measured], sizes: str, *, repeats: str | None = None
) -> None:
    """Save and print measurements.

    Args:
        table: name of the table.
        options: options of the script.
        measured: the measurements.
        sizes: amounts of input as text.
        repeats: values behind a median, as text; None: the rounds.
    """
    path = save(table, measured, conditions=conditions(table, options, sizes, repeats), folder=options.results)
    show(table, measured)
    say(f"kept in {path}")


def conditions(table: str, options: Options, sizes: str, repeats: str | None = None) -> dict[str, str]:
    """Conditions of a measurement as text, by name. See `finish`."""
    # Not as typed: folders of this machine mean nothing elsewhere.
    words = [f"python -m bench.{table}", *(f"--{name}" for name in ("quick", "tiny") if getattr(options, name))]
    words += [f"--works {shlex.quote(options.works)}"] if options.works else []
    words += [f"--systems {shlex.quote(options.systems)}"] if options.systems else []
    words += [f"--rounds {options.rounds} --warm-ups {options.warm_ups}"] if repeats is None else []
    return {
        "command": " ".join(words),
        "sizes": sizes,
        "rounds": repeats or f"{options.rounds} rounds, {options.warm_ups} unmeasured before them",
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def commit() -> str:
    """Commit of the measured working tree; "" outside of one."""
    command = ["git", "-C", str(RESULTS), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""


def machine() -> str:
    """Description of the machine."""
    names = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    kernel = ".".join(platform.release().split(".")[:2])
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total / (1 << 30)
    return f"{cores} cores ({name or platform.machine()}), {memory:.0f} GiB, Linux {kernel}"


def versions() -> str:
    """Versions of ours and of the peers as text."""
    java = subprocess.run([find_java("Spark"), "-version"], capture_output=True, text=True).stderr
    ours = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "deltalake", "confluent-kafka"))
    peers = (
        f"Delta {pins.DELTA}, Iceberg {pins.ICEBERG}, Hudi {pins.HUDI} on Spark {pins.HUDI_SPARK}, "
        f"Hadoop's S3A {pins.HADOOP}, versitygw {s3_server.VERSION.removeprefix('v')}, Kafka {kafka_server.VERSION}"
    )
    return f"Python {platform.python_version()}, {(java.splitlines() or ['no Java'])[0]}, {ours}; {peers}"


def main(measure: Callable[[], int]) -> None:
    """Run a script and exit with its code; Ctrl-C prints no traceback."""
    try:
        code = measure()
    except KeyboardInterrupt:
        say("stopped; what was started has ended")
        code = 130
    raise SystemExit(code)


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""
