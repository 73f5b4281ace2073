"""Systems that take turns: each is measured from outside, checked, and ended. This file is such a system, too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bench.contest import Contest, Round, System, Task
from bench.process_tree import Meter
from bench.serve import Work, serve

SPIN_S = 0.3


class Writer:
    """Writes lines; burns CPU in a child that ends within the round where it is told to."""

    def __init__(self, work: Work) -> None:
        if work.get("fails"):
            raise ValueError("it does not start")
        Path(work["log"]).joinpath(f"{os.getpid()}.pid").touch()
        self.rounds = 0

    def round(self, work: Work) -> dict[str, float]:
        print("what a session prints is no answer")
        self.rounds += 1
        if work.get("breaks") or (work.get("tires") and self.rounds == 3):
            raise ValueError("it breaks")
        spin = f"import time\nwhile time.process_time() < {SPIN_S}: pass"
        if work.get("spins"):
            subprocess.run([sys.executable, "-c", spin], check=True)
        if work.get("orphans"):
            # Ends once the process below it closes what it has inherited, long after its parent.
            between = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin!r}])"
            subprocess.run([sys.executable, "-c", between], check=True, stdout=subprocess.PIPE)
        rows = work["rows"] - (1 if work.get("loses") else 0)
        Path(work["target"], "rows").write_text("row\n" * rows)
        with Path(work["log"], "turns").open("a") as turns:
            turns.write(f"{work['name']}\n")
        return {"told": 7.0}

    def count(self, work: Work) -> int:
        return len(Path(work["target"], "rows").read_text().splitlines())

    def close(self) -> None:
        pass


def system(name: str, folder: Path, *, alone: bool = True, **work: bool) -> System:
    settings = {"log": str(folder)} | ({"name": name} if alone else {})
    return System(name, "tests.unit.test_bench_contest", settings, {"name": name, **work})


def task(folder: Path, rows: int | None = 5) -> Task:
    return Task("rows", {"rows": 5, "log": str(folder)}, rows, 5)


def seen(work: Task, done: Round) -> dict[str, float]:
    return {"CPU s": done.cpu_s, "written, MB": done.written_mb, "told": done.own["told"]}


def test_systems_take_turns_and_another_one_is_first_each_round(tmp_path: Path) -> None:
    with Contest([system(name, tmp_path) for name in "ab"], tmp_path / "work").running() as contest:
        measured = contest.measure(task(tmp_path), 3, seen)
        contest.measure(task(tmp_path), 1, seen, warm_ups=0)
    assert (tmp_path / "turns").read_text().split() == ["a", "b", "b", "a", "a", "b", "b", "a", "a", "b"]
    assert {(each.system, each.metric): len(each.values) for each in measured}["a", "told"] == 3
    assert next(each.values for each in measured if each.metric == "written, MB") == (2e-05,) * 3


def test_every_target_is_deleted_and_every_process_ended(tmp_path: Path) -> None:
    with Contest([system(name, tmp_path) for name in "ab"], tmp_path / "work").running() as contest:
        contest.measure(task(tmp_path), 1, seen)
        pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert len(pids) == 2
    assert list((tmp_path / "work" / "targets").iterdir()) == []
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_systems_that_are_started_alike_share_a_process(tmp_path: Path) -> None:
    systems = [system(name, tmp_path, alone=False) for name in "ab"]
    with Contest(systems, tmp_path / "work").running() as contest:
        contest.measure(task(tmp_path), 1, seen)
    assert len(list(tmp_path.glob("*.pid"))) == 1


@pytest.mark.parametrize("fault", ["loses", "breaks", "tires"])
def test_a_system_that_fails_or_loses_a_row_has_no_figures_and_the_others_go_on(tmp_path: Path, fault: str) -> None:
    systems = [system("good", tmp_path), system("bad", tmp_path, **{fault: True})]
    with Contest(systems, tmp_path / "work").running() as contest:
        measured = contest.measure(task(tmp_path), 2, seen)
    assert {each.system for each in measured} == {"good"}
    assert [problem.partition(":")[0] for problem in contest.problems] == ["bad"]


def test_a_system_that_does_not_start_is_named_and_left_out(tmp_path: Path) -> None:
    bad = System("bad", "tests.unit.test_bench_contest", {"fails": True})
    with Contest([system("good", tmp_path), bad], tmp_path / "work").running() as contest:
        assert {each.system for each in contest.measure(task(tmp_path), 1, seen)} == {"good"}
    assert contest.problems == ["bad: ValueError: it does not start"]


def test_where_nobody_knows_the_number_of_rows_all_systems_must_agree(tmp_path: Path) -> None:
    systems = [system("first", tmp_path), system("other", tmp_path, loses=True)]
    with Contest(systems, tmp_path / "work").running() as contest:
        measured = contest.measure(task(tmp_path, rows=None), 2, seen, warm_ups=0)
    assert {each.system for each in measured} == {"first"}


@pytest.mark.parametrize("how", ["spins", "orphans"])
def test_cpu_seconds_of_a_process_that_ended_meanwhile_are_counted(tmp_path: Path, how: str) -> None:
    """Those of one whose parent had ended before it, too."""
    with Contest([system("spinning", tmp_path, **{how: True})], tmp_path / "work").running() as contest:
        measured = contest.measure(task(tmp_path), 1, seen)
    taken_s = next(each.values[0] for each in measured if each.metric == "CPU s")
    assert taken_s > SPIN_S - 0.05, "the kernel tells CPU time in ticks"


def test_memory_that_is_shared_within_a_tree_counts_once() -> None:
    """A child that only holds what it was forked with adds little to its parent's."""
    shared_bytes = 64 << 20
    program = (
        f"import os, sys\nheld = bytearray(os.urandom(1)) * {shared_bytes}\n"
        "if os.fork() == 0:\n    sys.stdin.read(); os._exit(0)\n"
        "print('ready', flush=True); sys.stdin.read(); os.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        meter = Meter(process.pid)
        with meter.running():
            time.sleep(0)
        assert process.stdin is not None
        process.stdin.close()
    assert shared_bytes < meter.taken.peak_mb * 1e6 < 1.7 * shared_bytes


if __name__ == "__main__":
    serve(Writer)
