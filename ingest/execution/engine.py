"""Start of Spark as a run's engine; importing this module loads no Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ingest.config.load import JobConfig
from ingest.execution.runner import Runner
from ingest.execution.spark.cluster import needed_modules


def start_spark(
    config: JobConfig,
    stop: threading.Event,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    on_start: Callable[[], None] = lambda: None,
) -> Runner:
    """Start a session, and check the executors of a cluster.

    Args:
        config: the job.
        stop: set from outside to end the wait for executors.
        on_progress: called with the number of finished and of all tasks.
        on_start: called once the session has started, which replaces signal handlers.

    Raises:
        SparkJobError: Spark does not start, or executors lack a package; the message says which.
    """
    from ingest.execution.spark.runner import SparkRunner

    runner = SparkRunner(config.name, config.spark, on_progress, runs_queries=config.transform is not None)
    on_start()
    if config.spark.is_cluster:
        runner.check_executors(needed_modules(config), stop)
    return runner
