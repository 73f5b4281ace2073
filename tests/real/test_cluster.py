"""A job on a real Spark cluster: only the object store is shared, and executors have no Tideline of their own.

Every request to the store passes a proxy that can hold the put of a data file: a test decides how long the task
stays in the middle of its work, and when its file lands.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import urllib.request
import venv
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from ingest.execution.spark.package import main_script, write_package
from tests.job import SPARK, Finished, environment
from tests.real.fault_proxy import Fault, FaultProxy, Rule
from tests.real.processes import HOST, kill_tree, on_free_ports
from tests.real.s3_job import S3Job, through
from tests.real.s3_server import S3Server
from tests.real.spark_cluster import SparkCluster, executor_python
from tests.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

WIDE_ROWS = 4500
"""Rows of 1 kB: more than the smallest split size, so that two such files are two tasks."""

HELD = Rule(Fault.HANG, "PUT", r"/table/[^/]*-0_.*\.parquet")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executor_python(tmp_path_factory.mktemp("executor") / "python")


class ClusterJob(S3Job):
    """A job on S3 for a cluster, behind a proxy."""

    def configure(self, spark: Mapping[str, Any], proxy: FaultProxy) -> None:
        """Write the job file."""
        self.write(
            source=self.settings()["source"] | {"max_files_per_epoch": 2},
            spark={"small_epochs": "executors"} | dict(spark),
            # After a timeout the client would retry while its first request is held.
            storage=through(proxy, self.server, read_timeout=100),
        )

    def put_wide(self, name: str, first: int) -> range:
        """Write a source object that fills a task, with one malformed line; returns its ids."""
        ids = range(first, first + WIDE_ROWS)
        lines = [*(json.dumps({"id": number, "host": "h" * 1000}) for number in ids), "{malformed"]
        self.fs.pipe_file(f"{self.prefix}/logs/{name}", "".join(f"{line}\n" for line in lines).encode())
        return ids


@dataclass
class World:
    """A cluster, a store behind a proxy, and a job on them."""

    cluster: SparkCluster
    proxy: FaultProxy
    job: ClusterJob
    python: Path

    def configure(self, *, python: Path | None = None, executor_wait: str = "120s", **conf: str) -> None:
        """Write the job file; underscores in names of settings stand for dots."""
        settings = self.cluster.conf | {name.replace("_", "."): value for name, value in conf.items()}
        master = settings.pop("spark.master")
        settings["spark.pyspark.python"] = str(python or self.python)
        self.job.configure({"master": master, "conf": settings, "executor_wait": executor_wait}, self.proxy)

    def hold(self, requests: int) -> None:
        """Hold the puts of the first data files."""
        self.proxy.arm(Rule(HELD.fault, HELD.method, HELD.key, times=requests))

    def wait_until_held(self, requests: int, running: Future[Finished]) -> None:
        wait_until(lambda: running.done() or self.proxy.fired[Fault.HANG] == requests, "tasks write", 120)
        assert not running.done(), running.result()


@pytest.fixture
def world(
    spark_cluster: SparkCluster, s3: S3Server, proxy: FaultProxy, bare_python: Path, tmp_path: Path
) -> Iterator[World]:
    world = World(spark_cluster, proxy, ClusterJob(tmp_path, s3), bare_python)
    world.configure()
    yield world
    proxy.disarm()
    for number, worker in enumerate(spark_cluster.workers):
        if not worker.is_running:
            spark_cluster.start_worker(number)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def pages(url: str) -> str:
    """The pages of Spark's UI and API on an application: settings, stages, tasks, executors."""
    with urllib.request.urlopen(f"{url}/api/v1/applications", timeout=10) as answer:
        (application,) = json.load(answer)
    api = f"{url}/api/v1/applications/{application['id']}"
    shown = ["environment", "jobs", "stages?details=true", "allexecutors", "storage/rdd"]
    parts = [f"{api}/{name}" for name in shown] + [f"{url}/{name}/" for name in ("environment", "jobs", "stages")]
    texts = []
    for part in parts:
        with urllib.request.urlopen(part, timeout=10) as answer:
            texts.append(answer.read().decode())
    return "".join(texts)


def test_epochs_are_exact_though_a_worker_is_lost_in_one_and_the_ui_shows_no_credentials(
    world: World, background: ThreadPoolExecutor
) -> None:
    job, port = world.job, on_free_ports(1, lambda ports: ports[0])
    world.configure(spark_ui_enabled="true", spark_ui_port=str(port))
    ids = Counter([*job.put_wide("a-0.jsonl", 0), *job.put_wide("a-1.jsonl", WIDE_ROWS)])
    for number in range(10):
        some = range(10_000 + 10 * number, 10_010 + 10 * number)
        job.put(f"b-{number}.jsonl", some, bad=1)
        ids.update(some)
    world.hold(2)
    running = background.submit(job.tideline, "run", program=SPARK)
    world.wait_until_held(2, running)
    shown = pages(f"http://{HOST}:{port}")
    world.cluster.kill_worker(0)
    world.proxy.disarm()
    world.cluster.start_worker(0)
    ended = running.result()
    assert ended.code == 0, ended.err
    assert f"done: 6 epochs, {ids.total():,} rows committed, 12 quarantined" in ended.out
    assert job.ids() == job.ids("copy") == ids
    world.proxy.drain()
    assert job.tideline("recover").code == 0
    assert not job.left_over()
    assert [path.name for path in job.folder.iterdir()] == ["job.yaml"], "nothing was written locally"
    assert "spark.pyspark.python" in shown and str(world.python) in shown
    for secret in (job.server.key, job.server.secret):
        assert secret not in shown


def test_job_whose_workers_are_all_lost_says_so_and_files_that_land_later_are_removed(
    world: World, background: ThreadPoolExecutor
) -> None:
    job = world.job
    world.configure(executor_wait="40s")
    ids = Counter([*job.put_wide("a-0.jsonl", 0), *job.put_wide("a-1.jsonl", WIDE_ROWS)])
    world.hold(2)
    running = background.submit(job.tideline, "run", program=SPARK)
    world.wait_until_held(2, running)
    for number in range(2):
        world.cluster.kill_worker(number)
    ended = running.result()
    assert ended.code == 8, ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith(f"tideline: {world.cluster.master_url} has had no executor for this job for 40 s")
    world.proxy.disarm()
    world.proxy.drain()
    assert job.tideline("recover").code == 0
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(world.cluster.start_worker, range(2)))
    again = job.tideline("run", program=SPARK)
    assert again.code == 0, again.err
    assert job.ids() == job.ids("copy") == ids
    assert not job.left_over()


def test_speculative_copy_that_finishes_after_the_decision_is_never_visible_and_then_removed(world: World) -> None:
    job = world.job
    world.configure(
        spark_speculation="true",
        spark_speculation_interval="100ms",
        spark_speculation_quantile="0.5",
        spark_speculation_multiplier="1.1",
    )
    ids = Counter([*job.put_wide("a-0.jsonl", 0), *job.put_wide("a-1.jsonl", WIDE_ROWS)])
    world.hold(1)
    ended = job.tideline("run", program=SPARK)
    assert ended.code == 0, ended.err
    assert job.ids() == ids
    assert not job.left_over()
    world.proxy.disarm()
    world.proxy.drain()
    (late,) = job.left_over()
    assert "-0_" in late, "the first attempt's file has landed"
    assert job.ids() == ids
    assert job.tideline("recover").code == 0
    assert not job.left_over()


def test_spark_submit_needs_the_zip_and_nothing_installed_and_its_end_settles_the_job(world: World) -> None:
    job = world.job
    job.configure({}, world.proxy)
    job.put("a.jsonl", range(100), bad=2)
    write_package(job.folder / "tideline.zip")
    (job.folder / "tideline_main.py").write_bytes(main_script())
    settings = world.cluster.conf | {"spark.pyspark.python": str(world.python)}
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *options]
    command += ["--py-files", "tideline.zip", "tideline_main.py", "run", "job.yaml", "--continuous"]
    submit = subprocess.Popen(
        command,
        cwd=job.folder,
        env=environment() | {"PYTHONPATH": "", "PYSPARK_PYTHON": str(world.python)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with submit, contextlib.ExitStack() as ended:
        ended.callback(submit.kill)
        assert submit.stdout is not None
        said = "".join(itertools.takewhile(lambda line: "epoch 0: 100 rows, 2 rejected" not in line, submit.stdout))
        writer = re.search(r"generation 1 taken by process (\d+)", said)
        assert writer is not None and submit.poll() is None, said
        driver = psutil.Process(int(writer[1]))
        ended.callback(kill_tree, driver)
        submit.terminate()
        driver.wait(60)
    recovered = job.tideline("recover", "--json", program=SPARK).json
    assert recovered["writer"]["released"] and not recovered["found"], "nothing was left to be recovered"
    assert job.ids() == Counter(range(100))
    assert not job.left_over()


def test_executors_without_the_packages_are_named_before_an_epoch_begins(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    venv.create(empty, symlinks=True)
    world.configure(python=empty / "bin" / "python")
    world.job.put("a.jsonl", range(10))
    ended = world.job.tideline("run", program=SPARK)
    assert ended.code == 8, ended.err
    assert f"{empty}/bin/python on {os.uname().nodename}: pyarrow cannot be imported" in ended.err
    assert "s3fs cannot be imported" in ended.err and "spark.archives" in ended.err
    assert ": no instants yet\n" in world.job.tideline("show").out
