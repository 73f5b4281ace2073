"""The process from which Spark's Python workers are forked, with the modules of tasks preloaded.

::

    JVM ── starts ── daemon ─┬─ fork ── worker        PySpark's own loads only the worker's code; each worker
                             └─ fork ── worker        loads the rest again, with its first task

Spark ends workers that are idle for more than a minute: a job whose epochs are further apart has new workers in each.
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
"""Modules that all tasks load."""

SOME_TASKS = ("confluent_kafka", "ingest.sources.", "msgspec", "pyarrow.csv", "pyarrow.json", "timeline.stores.s3")
"""Modules that some jobs' tasks load, or beginnings of their names. Like the above, none of them starts anything before
its use that a fork would share."""


def modules_for_tasks(loaded: Iterable[str]) -> list[str]:
    """Modules to preload for a job's tasks.

    Args:
        loaded: modules of the job's driver; of `SOME_TASKS`, tasks need those that the driver has loaded.
    """
    return [*EVERY_TASK, *sorted({module for module in loaded if module.startswith(SOME_TASKS)})]


def load(modules: Iterable[str]) -> None:
    """Import modules; a missing one is reported by the task that needs it."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Loaded objects are frozen: workers share their memory pages as long as no process writes to them.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    from ingest.execution.spark.jvm_log import log_to_driver

    log_to_driver()
    load(filter(None, os.environ.get(IMPORTS, "").split(",")))
    manager()  # type: ignore[no-untyped-call]
