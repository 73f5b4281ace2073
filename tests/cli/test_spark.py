"""`tideline run` on Spark: failures, signals and logs of the JVM and its Python workers."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from ingest.cli.generate import DEMO_COLUMNS, write_logs
from tests.cli.test_terminal import on_a_terminal
from tests.job import SPARK, TIMEOUT_S, Job, finish
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 150_000


def write_at_once(job: Job, rows: int, files: int = 1) -> None:
    """Write complete logs at once, so that one epoch reads them."""
    for path in write_logs(job.folder / "made", rows, files):
        path.rename(job.folder / "logs" / path.name)


def write_long_epoch(job: Job) -> None:
    """Write, at once, a log that keeps both cores busy for about ten seconds."""
    (path,) = write_logs(job.folder / "made", ROWS, 1)
    lines = path.read_bytes()
    with path.open("ab") as log:
        for _ in range(7):
            log.write(lines)
    path.rename(job.folder / "logs" / path.name)


def has_markers(lake: Path) -> bool:
    """Whether a task of an open epoch has announced a file."""
    return any((lake / ".hoodie" / ".temp").rglob("*.marker.CREATE"))


def below(pid: int, name: str) -> list[psutil.Process]:
    return [each for each in psutil.Process(pid).children(recursive=True) if each.name().startswith(name)]


def kill_a_worker(lake: Path) -> None:
    """Kill the youngest Python worker once a task has begun to write."""
    deadline = time.monotonic() + TIMEOUT_S
    while not has_markers(lake):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    jvms = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    workers = [worker for jvm in jvms for worker in below(jvm.pid, "python")]
    max(workers, key=lambda each: each.create_time()).kill()


def test_every_row_arrives_once_in_each_target_though_a_worker_is_killed(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    write_at_once(job, ROWS, files=3)
    job.write(
        schema=DEMO_COLUMNS,
        lineage=True,
        partition_by=["date(ts)", "method"],
        targets=[
            {"type": "delta", "path": f"{job.folder}/lake", "name": "first"},
            {"type": "delta", "path": f"{job.folder}/second"},
        ],
        quarantine={"path": f"{job.folder}/bad/rows"},
        timeline={"path": f"{job.folder}/timeline"},
    )
    killer = threading.Thread(target=kill_a_worker, args=(job.lake,))
    killer.start()
    code, written = on_a_terminal("run", str(job.file), program=SPARK)
    killer.join()
    assert code == 0, written
    assert "Python worker exited unexpectedly" in written or "ERROR Executor: Exception in task" in written
    assert re.search(r"epoch 0 · starting Spark · 3 files left, [\d.]+ MB behind", written)
    assert re.search(r"epoch 0 · \d/\d tasks · 3 files left", written)
    assert "incubator" not in written and "log level" not in written

    first, second = (DeltaTable(job.folder / name).to_pyarrow_table() for name in ("lake", "second"))
    rejected = DeltaTable(job.folder / "bad" / "rows").to_pyarrow_table()
    assert first.num_rows + rejected.num_rows == ROWS
    assert set(Counter(first["id"].to_pylist()).values()) == {1}
    assert first.sort_by("id") == second.select(first.column_names).sort_by("id")
    assert {"_shard", "_offset", "_epoch", "ts_date"} <= set(first.column_names)
    assert DeltaTable(job.folder / "lake").metadata().partition_columns == ["ts_date", "method"]
    assert not (job.lake / ".hoodie" / "timeline").exists()
    for name in ("lake", "second", "bad/rows"):
        assert not job.stray_files(name)
    (row,) = job.tideline("show", "--json").json
    assert (row["rows"], row["rejected"]) == (first.num_rows, rejected.num_rows)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_cancels_the_tasks_and_rolls_the_epoch_back(job: Job, number: signal.Signals) -> None:
    job.write(schema=DEMO_COLUMNS)
    process = job.start("run", "--continuous", "--log-json", program=("setsid", *SPARK))
    wait_for(lambda: job.table() is not None and not job.pending(), process)
    (java,) = below(process.pid, "java")
    daemon = below(process.pid, "python")[0]
    assert "ingest.execution.spark.daemon" in daemon.cmdline()
    write_long_epoch(job)
    wait_for(lambda: bool(job.pending()) and has_markers(job.lake), process)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # Ctrl-C: the terminal sends SIGINT to the JVM and the workers too
    else:
        process.send_signal(number)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert "cli: stopped by a signal (epoch 1 was rolled back): 1 epoch" in ended.out
    for line in ended.err.splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()
    assert job.is_settled()
    assert gone(java)
    assert "holds the lease" not in job.tideline("recover").err


def test_second_signal_ends_at_once_and_the_next_start_recovers(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    write_at_once(job, ROWS)
    job.write(schema=DEMO_COLUMNS)
    process = job.start("run", program=SPARK)
    wait_for(lambda: bool(job.pending()) and has_markers(job.lake), process)
    (java,) = below(process.pid, "java")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    for line in process.stderr:
        if "stopping" in line:
            break
    process.send_signal(signal.SIGINT)
    assert finish(process).code in (-signal.SIGINT, 0)
    assert gone(java), "a JVM ends with its driver"
    ended = job.tideline("run")
    assert ended.code == 0, ended.err
    assert job.ids().total() + DeltaTable(job.folder / "lake_quarantine").to_pyarrow_table().num_rows == ROWS
    assert set(job.ids().values()) == {1}
    assert job.is_settled()


def test_jvm_that_dies_is_named_and_its_epoch_rolled_back(job: Job) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    write_long_epoch(job)
    job.write(schema=DEMO_COLUMNS)
    process = job.start("run", program=SPARK)
    wait_for(lambda: bool(job.pending()) and has_markers(job.lake), process)
    below(process.pid, "java")[0].kill()
    ended = finish(process)
    assert ended.code == 8, ended.err
    assert "Spark's JVM does not answer any more" in ended.err.splitlines()[-1]
    assert not job.pending()
    assert job.tideline("recover").code == 0
    assert job.is_settled()


def test_master_that_spark_does_not_know_is_named(job: Job) -> None:
    job.write(spark={"master": "locla[2]", "small_epochs": "executors"})
    ended = job.tideline("run", program=SPARK)
    assert ended.code == 8
    last = ended.err.splitlines()[-1]
    assert "Master must either be yarn or start with" in last
    assert "Check spark.master and spark.conf" in last
    assert not job.pending()


def test_spark_logs_the_class_and_place_of_an_error_and_no_row(job: Job) -> None:
    """The value contains line breaks and lines that look like Spark's log records."""
    secret = "hunter2-Xq9"
    forged = f"1\nERROR Forged: {secret}\n\tat {secret}.X.run(X.java:1)\nCaused by: java.io.IOException: {secret}"
    (job.folder / "logs" / "a.jsonl").write_text(json.dumps({"id": 1, "msg": forged}) + "\n")
    job.write(schema={"id": "bigint", "msg": "string"}, transform="SELECT id, CAST(msg AS INT) AS n FROM source")
    for options in ([], ["--log-json"], ["--verbose"]):
        ended = job.tideline("run", *options, program=SPARK)
        assert ended.code == 4, ended.err
        assert (secret in ended.err) is (options == ["--verbose"])
        assert "SparkNumberFormatException: [CAST_INVALID_INPUT]" in ended.err
        if options != ["--verbose"]:
            assert "[CAST_INVALID_INPUT] at QueryExecutionErrors.scala:" in ended.err


def gone(process: psutil.Process) -> bool:
    try:
        process.wait(timeout=30)
    except psutil.TimeoutExpired:
        return False
    except psutil.NoSuchProcess:
        pass
    return True


def test_daemon_of_the_machines_own_spark_settings_stays(job: Job) -> None:
    (job.folder / "own_daemon.py").write_text(
        "import pathlib\nfrom pyspark.daemon import manager\n"
        f"pathlib.Path({str(job.folder / 'was-used')!r}).touch()\nmanager()\n"
    )
    (job.folder / "spark-defaults.conf").write_text(
        f"spark.python.daemon.module own_daemon\nspark.executorEnv.PYTHONPATH {job.folder}\n"
    )
    ended = job.tideline("run", program=SPARK, env={"SPARK_CONF_DIR": str(job.folder)})
    assert ended.code == 0, ended.err
    assert (job.folder / "was-used").exists()
    assert job.ids() == Counter(range(100))
