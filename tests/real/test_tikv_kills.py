"""A job on Spark with a TiKV target, whose processes and servers are killed in the middle of its epochs.

Regions are small, so that they are split while the job runs, and another client reads snapshot after snapshot.
"""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import or_absent
from tests.forked import Command, Streams
from tests.job import SPARK, start
from tests.real import tikv_cluster
from tests.real.spark_cluster import SparkCluster, executor_python
from tests.real.tikv_bystander import ROWS, SCHEMA, Onlooker, bystander, generation_of
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_job import PAD, TikvJob
from tests.sampling import drawing, share
from tests.waiting import wait_until
from timeline.instant import Action

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 180.0

HELD = range(ROWS - 20, ROWS)
"""Rows that another writer keeps locked during a test: some in each task, all in the last region."""

KILLS = share(3, 10)


@pytest.fixture(scope="module")
def splitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    """A cluster whose regions hold few rows."""
    folder = tmp_path_factory.mktemp("tikv-splitting")
    with or_absent(), tikv_cluster.running(folder, region_bytes=64 << 10) as cluster:
        yield cluster


class GenerationsJob(TikvJob):
    """A job in which each file is an epoch: all rows twice, a copy for each task, with the file's generation number."""

    def __init__(self, folder: Path, cluster: TikvCluster) -> None:
        super().__init__(folder, cluster)
        self._next = itertools.count()
        self.log = folder / "driver.log"
        self.configure()

    def configure(self, **spark: Any) -> None:
        """Write the job file."""
        self.write_job(
            self.target(),
            schema=SCHEMA,
            source=self.source(max_files_per_epoch=1),
            epoch={"interval": "100ms"},
            spark={"master": "local[2,4]", "small_epochs": "executors"} | spark,
        )

    def put_generation(self) -> int:
        """Create the next epoch's file; returns its generation."""
        number = next(self._next)
        rows = ({"id": n, "generation": number, "copy": copy} for copy in (1, 2) for n in range(ROWS))
        self.put(f"{number:03d}.jsonl", rows, pad=PAD)
        return number

    def drive(self, *options: str, **env: str) -> Command:
        """Start the job; its output goes to its log file, because a full pipe would block it."""
        with self.log.open("ab") as log:
            streams = Streams(stdout=log.fileno(), stderr=log.fileno())
            process = start([*SPARK, "run", self.file, *options], cwd=self.folder, env=env, streams=streams)
        self.started.append(process)
        return process

    def epochs(self) -> int:
        return len(self.timeline().completed().by_action(Action.COMMIT))

    def wait_for_epochs(self, count: int, driver: Command) -> None:
        wait_until(
            lambda: driver.poll() is not None or self.epochs() >= count, f"{count} epochs are completed", PATIENCE_S
        )
        assert driver.poll() is None or self.epochs() >= count, self.log.read_text()

    def wait_until_writing(self, other: int, driver: Command) -> None:
        """Wait until the epoch has locked rows, beside those of the transaction `other`."""

        def is_writing() -> bool:
            return driver.poll() is not None or bool(set(self.row_locks()) - {other})

        wait_until(is_writing, "rows of the epoch are locked", PATIENCE_S)
        assert driver.poll() is None, self.log.read_text()

    def kill_driver(self, later_s: float) -> None:
        """Start the job, and kill it `later_s` after its first epoch has begun."""
        before = len(self.timeline()) if self.lake.exists() else 0
        driver = self.drive()
        wait_until(lambda: self.lake.exists() and len(self.timeline()) > before, "an epoch begins", PATIENCE_S)
        time.sleep(later_s)
        driver.kill()
        driver.wait()

    def assert_exact(self, generations: int) -> None:
        rows = self.rows()
        assert {row["generation"] for row in rows} == {generations - 1} and len(rows) == ROWS
        table = self.table()
        assert table is not None
        columns = table.to_pyarrow_table(columns=["id", "generation", "copy"]).to_pylist()
        found = Counter((row["id"], row["generation"], row["copy"]) for row in columns)
        assert len(found) == 2 * ROWS * generations and set(found.values()) == {1}
        assert self.is_settled()


@pytest.fixture
def job(tmp_path: Path, splitting: TikvCluster) -> Iterator[GenerationsJob]:
    job = GenerationsJob(tmp_path, splitting)
    yield job
    job.close()


def test_no_reader_sees_part_of_an_epoch_whatever_is_killed_or_writes_in_it(job: GenerationsJob) -> None:
    cluster, before = job.cluster, len(job.cluster.regions())
    (job.folder / "passed").mkdir()
    job.configure(conf={"spark.python.daemon.module": "tests.real.dying_worker"})
    job.put_generation()
    # Two tasks read and two write: the third to pass the point is a task that has just locked its rows.
    dies = f"task-written:3:{job.folder}/passed"
    driver = job.drive("--continuous", TIDELINE_WORKER_DIES_AT=dies)
    job.wait_for_epochs(1, driver)
    assert len(list((job.folder / "passed").iterdir())) > 4, "a task has run again"
    wait_until(lambda: len(cluster.regions()) > before + 1, "regions are split")
    with bystander("watch", cluster.pd, job.prefix) as watcher:
        for number, server in enumerate((cluster.store, cluster.pd_process)):
            with job.held(HELD) as other:
                job.put_generation()
                job.wait_until_writing(other, driver)
                server.kill()
                server.start()
            job.wait_for_epochs(number + 2, driver)
        with bystander("rewrite", cluster.pd, job.prefix) as rival:
            job.put_generation()
            wait_until(lambda: "trying again" in job.log.read_text(), "the epoch meets another writer", PATIENCE_S)
            assert rival.end()["written"] > 0
        job.wait_for_epochs(4, driver)
        onlooker = Onlooker(cluster.pd[0], job.prefix)
        earlier = onlooker.now()
        job.put_generation()
        job.wait_for_epochs(5, driver)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(PATIENCE_S) == 0, job.log.read_text()
        seen = watcher.end()
    assert seen["faults"] == [] and seen["looks"] > 5, seen
    assert len(seen["generations"]) > 2, seen
    assert len(job.timeline().completed().by_action(Action.ROLLBACK)) > 0
    job.assert_exact(5)
    assert generation_of(onlooker.look(onlooker.now())) == 4
    # A read without a snapshot does see the part of an epoch that the watcher checks for.
    with pytest.raises(ValueError, match="part of an epoch"):
        generation_of(onlooker.look(earlier, onlooker.now()))


def test_driver_killed_at_any_moment_loses_nothing_and_shows_no_part_of_an_epoch(job: GenerationsJob) -> None:
    draw = drawing("kills of a driver that writes to TiKV")
    outcomes: Counter[str] = Counter()
    with bystander("watch", job.cluster.pd, job.prefix) as watcher:
        for _ in range(KILLS):
            job.put_generation()
            job.kill_driver(draw.uniform(0.0, 2.0))
            recovered = job.tideline("recover", "--json", program=SPARK)
            assert recovered.code == 0, recovered.err
            outcomes.update(settled["step"] for settled in json.loads(recovered.out)["settled"])
        ended = job.tideline("run", program=SPARK)
        assert ended.code == 0, ended.err
        seen = watcher.end()
    assert seen["faults"] == [] and seen["looks"] > 5, seen
    assert sum(outcomes.values()) > 0, outcomes
    job.assert_exact(KILLS)


def test_executor_lost_while_it_locks_rows_is_made_up_for_by_another(
    job: GenerationsJob, spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = spark_cluster.conf
    master = settings.pop("spark.master")
    settings["spark.pyspark.python"] = str(executor_python(tmp_path_factory.mktemp("executor") / "python"))
    job.configure(master=master, conf=settings, executor_wait="120s", shared_folders=[str(job.folder)])
    job.put_generation()
    driver = job.drive("--continuous")
    job.wait_for_epochs(1, driver)
    with job.held(HELD) as other:
        job.put_generation()
        job.wait_until_writing(other, driver)
        spark_cluster.kill_worker(0)
        spark_cluster.start_worker(0)
    job.wait_for_epochs(2, driver)
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(PATIENCE_S) == 0, job.log.read_text()
    job.assert_exact(2)
