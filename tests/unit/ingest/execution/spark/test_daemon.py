"""Workers of this machine are forked with preloaded modules; preloading starts no thread."""

from __future__ import annotations

import os
import subprocess
import sys

from ingest.execution.spark.daemon import EVERY_TASK, modules_for_tasks

PROGRAM = """
import gc, sys
from pathlib import Path
from ingest.execution.spark.daemon import EVERY_TASK, load

sources = ["confluent_kafka", "ingest.sources.files.source", "ingest.sources.kafka.source", "msgspec", "pyarrow.json"]
wanted = [*EVERY_TASK, *sources, "pyarrow.csv", "timeline.stores.s3"]
load([*wanted, "no.such.module"])
print([name for name in wanted if name not in sys.modules])
print([name for name in ("deltalake", "grpc", "pandas", "pyspark") if name in sys.modules])
threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
print(gc.get_freeze_count() > 1000, len([name for name in threads if name != "jemalloc_bg_thd"]))
"""


def test_what_tasks_need_is_loaded_without_a_thread_and_what_is_not_there_is_left_to_them() -> None:
    """The only threads are the main one and jemalloc's, which has its own fork handlers."""
    as_spark_starts_it = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=as_spark_starts_it
    )
    assert ended.stdout.splitlines() == ["[]", "[]", "True 1"]


def test_of_what_not_all_tasks_need_that_is_loaded_which_their_driver_has() -> None:
    assert modules_for_tasks(["deltalake", "grpc", "ingest.cli.main"]) == list(EVERY_TASK)
    kafka = ["confluent_kafka", "ingest.sources.kafka"]
    assert modules_for_tasks([*reversed(kafka), "ingest.driver.loop"]) == [*EVERY_TASK, *kafka]
