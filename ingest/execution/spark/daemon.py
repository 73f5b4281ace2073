"""The process that Spark's Python workers are forked from, with the modules loaded that tasks need.

::

    JVM ── starts ── daemon ─┬─ fork ── worker        PySpark's own loads what a worker is; each worker
                             └─ fork ── worker        loads the rest again, with its first task

Spark ends workers that have had nothing to do for more than a minute: a job whose epochs come further apart than that
has new ones in each.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterable

IMPORTS = "TIDELINE_WORKER_IMPORTS"
"""Environment variable: names of the modules to load, with commas between."""

EVERY_TASK = (
    "ingest.sources.quarantine",
    "ingest.execution.task",
    "ingest.execution.spark.worker",
    "pyarrow.compute",
    "pyarrow.parquet",
    "sinks.parquet.partition_writer",
    "sinks.parquet.writer",
)
"""What all tasks load."""

SOME_TASKS = ("confluent_kafka", "ingest.sources.", "msgspec", "pyarrow.csv", "pyarrow.json", "timeline.stores.s3")
"""What some jobs' tasks load, or how their names begin. Like the above it starts nothing before it is used that a fork
would share."""


def modules_for_tasks(loaded: Iterable[str]) -> list[str]:
    """What to load for a job's tasks.

    Args:
        loaded: modules of its driver: of what not all tasks load, they need what the driver has loaded.
    """
    return [*EVERY_TASK, *sorted({module for module in loaded if module.startswith(SOME_TASKS)})]


def load(modules: Iterable[str]) -> None:
    """Import modules; one that is not there is left to the task that needs it, which says so."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What is there now stays: workers share its pages as long as nobody writes to them.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    from ingest.execution.spark.jvm_log import log_to_driver

    log_to_driver()
    load(filter(None, os.environ.get(IMPORTS, "").split(",")))
    manager()  # type: ignore[no-untyped-call]
