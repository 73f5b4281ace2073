"""Workers of this machine are forked with their modules loaded; those modules start nothing that a fork would share."""

from __future__ import annotations

import subprocess
import sys

from ingest.daemon import EVERY_TASK, modules_for_tasks

PROGRAM = """
import gc, sys, threading
from ingest.daemon import EVERY_TASK, load

load([*EVERY_TASK, "no.such.module", "confluent_kafka", "ingest.sources.files", "timeline.s3_store"])
print([name for name in EVERY_TASK if name not in sys.modules], "timeline.s3_store" in sys.modules)
print([name for name in ("deltalake", "grpc", "pandas", "pyspark") if name in sys.modules])
print(gc.get_freeze_count() > 1000, threading.active_count())
"""


def test_what_tasks_need_is_loaded_without_a_thread_and_what_is_not_there_is_left_to_them() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["[] True", "[]", "True 1"]


def test_of_what_not_all_tasks_need_that_is_loaded_which_their_driver_has() -> None:
    assert modules_for_tasks(["deltalake", "grpc", "ingest.cli"]) == list(EVERY_TASK)
    kafka = ["confluent_kafka", "ingest.sources.kafka"]
    assert modules_for_tasks([*reversed(kafka), "ingest.loop"]) == [*EVERY_TASK, *kafka]
