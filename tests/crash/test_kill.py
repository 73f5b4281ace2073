"""`kill -9` of the real job at random times: its driver, its JVM, one of its Python workers.

After each kill `tideline recover` runs, then the job goes on; in the end the table and the quarantine
are compared with the files row by row.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from ingest.cli.demo import line_starts
from ingest.cli.generate import DEMO_COLUMNS, log_lines
from tests.forked import Streams
from tests.job import SPARK, Job, start
from tests.sampling import KILLS, KILLS_OF_DRIVERS, Kills
from timeline.instant import Action

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

LINES_A_ROUND = 6_000


class DemoJob(Job):
    """A job that reads the demo's lines in small epochs."""

    def settings(self) -> dict[str, Any]:
        return super().settings() | {
            "name": "killed",
            "source": self.source(max_bytes_per_epoch="300kB"),
            "schema": DEMO_COLUMNS,
            "partition_by": ["date(ts)"],
            "lineage": True,
            "quarantine": {"path": f"{self.folder}/quarantine"},
            "epoch": None,
            "writer": None,
            "spark": {"master": "local[2,3]", "small_epochs": "executors"},
        }

    def append_lines(self, round_number: int) -> None:
        """Append a round's lines: half to a new file, half to ``grows.jsonl``."""
        lines = list(log_lines(LINES_A_ROUND, seed=round_number))
        for name, part in ((f"new-{round_number:02d}", lines[: len(lines) // 2]), ("grows", lines[len(lines) // 2 :])):
            with (self.folder / "logs" / f"{name}.jsonl").open("ab") as out:
                out.writelines(line + b"\n" for line in part)


@pytest.fixture
def job(tmp_path: Path) -> DemoJob:
    job = DemoJob(tmp_path)
    job.write()
    return job


def killed_later(job: DemoJob, victim: str, later_s: float) -> bool:
    """Start the job and kill one of its processes ``later_s`` after an epoch began; False if the job ended first."""
    before = len(job.timeline())
    with (job.folder / "run.log").open("ab") as log:
        streams = Streams(stdout=log.fileno(), stderr=log.fileno())
        process = start([*SPARK, "run", job.file, "--once"], cwd=job.folder, streams=streams)
    try:
        while process.poll() is None and len(job.timeline()) == before:
            time.sleep(0.005)
        deadline = time.monotonic() + later_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        is_killed = False
        while process.poll() is None and not is_killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                for each in victims(process.pid, victim):
                    each.kill()
                    is_killed = True
            time.sleep(0.001)
        process.wait(timeout=60 if is_killed and victim == "driver" else 240)
        return is_killed
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def victims(pid: int, victim: str) -> list[psutil.Process]:
    driver = psutil.Process(pid)
    if victim == "driver":
        return [driver]
    below = driver.children(recursive=True)
    jvm = [process for process in below if process.name() == "java"]
    workers = [process for process in below if process.name().startswith("python")]
    return jvm if victim == "jvm" else workers[-1:]


def killed_and_recovered(job: DemoJob, kills: Kills) -> Counter[str]:
    """Kill and recover the job repeatedly, then let it end; returns counts of victims and recovery steps.

    Runs up to four times ``kills.count`` rounds: until that many kills hit, each victim once, and recovery rolled back.
    """
    outcomes: Counter[str] = Counter()
    for number, (victim, later_s) in zip(range(4 * kills.count), kills.moments(), strict=False):
        job.append_lines(number)
        outcomes[victim] += killed_later(job, victim, later_s)
        recovered = job.tideline("recover", "--json", program=SPARK)
        assert recovered.code == 0, recovered.err
        outcomes.update(settled["step"] for settled in recovered.json["settled"])
        assert not job.pending()
        wanted = (outcomes["rollback"], *(outcomes[each] for each in kills.among))
        if sum(outcomes[each] for each in set(kills.among)) >= kills.count and all(wanted):
            break
    last = job.tideline("run", "--once", program=SPARK)
    assert last.code == 0, last.err
    print(dict(outcomes))
    assert all(wanted), outcomes
    return outcomes


def test_kills_lose_nothing_and_double_nothing(job: DemoJob) -> None:
    killed_and_recovered(job, KILLS)
    check_row_by_row(job, KILLS.count)


def test_kills_of_a_driver_that_writes_itself_lose_nothing_and_double_nothing(job: DemoJob) -> None:
    job.write(spark=job.settings()["spark"] | {"small_epochs": "driver"})
    killed_and_recovered(job, KILLS_OF_DRIVERS)
    check_row_by_row(job, KILLS_OF_DRIVERS.count)


def check_row_by_row(job: DemoJob, epochs: int) -> None:
    folder = job.folder
    expected: dict[tuple[str, int], bytes] = {}
    for path in sorted((folder / "logs").iterdir()):
        body = path.read_bytes()
        lines = dict(zip(line_starts(path), body.splitlines(), strict=True))
        expected.update(((path.name, start), line) for start, line in lines.items())
    committed = DeltaTable(folder / "lake").to_pyarrow_table().to_pylist()
    rejected = DeltaTable(folder / "quarantine").to_pyarrow_table().to_pylist()
    places = Counter((row["_shard"], row["_offset"]) for row in committed)
    places.update((row["shard"], row["offset"]) for row in rejected)
    assert places == Counter(expected.keys())
    for row in committed:
        line = json.loads(expected[row["_shard"], row["_offset"]])
        assert (row["id"], row["path"], row["bytes"]) == (line["id"], line["path"], line["bytes"])
    for row in rejected:
        assert row["raw"] == expected[row["shard"], row["offset"]]
    visible = {Path(uri).name for table in ("lake", "quarantine") for uri in DeltaTable(folder / table).file_uris()}
    there = {path.name for table in ("lake", "quarantine") for path in (folder / table).glob("**/*-0_*.parquet")}
    assert there == visible, "orphans"
    assert len(job.timeline().completed().by_action(Action.COMMIT)) > epochs
