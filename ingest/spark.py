"""Runs an epoch's tasks on Spark: one pass in Python inside each task, no record through the JVM.

A job is one partition for each task, holding the task's spec; one report comes back from each. Spark
retries a task that raises and may run speculative copies; the reports that come back are those of the
attempts that it accepted, and everything else was announced by markers before it was written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.jvm import cause_of, start_jvm
from ingest.task import TASK_REPORT, TaskReport, TaskSpec, run_task
from sinks.base import TaskAttempt
from timeline.errors import SparkJobError, StoppedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_POLL_S = 0.2
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


class SparkRunner:
    """Runs tasks on a Spark session that it starts and owns."""

    def __init__(
        self, name: str, master: str, conf: Mapping[str, str], on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Start a session.

        Args:
            name: the application's name.
            master: Spark's master URL.
            conf: further Spark settings; they win over Tideline's.
            on_progress: told of finished tasks and of all tasks while a job runs.

        Raises:
            SparkJobError: Spark does not start.
        """
        self._on_progress = on_progress
        self._spark = start_session(name, master, conf)
        # One thread for all jobs: py4j keeps a connection and a JVM thread for each Python thread it has seen.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tideline-spark")

    @property
    def slots(self) -> int:
        """See Runner."""
        return int(self._spark.sparkContext.defaultParallelism)

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner.

        Raises:
            SparkJobError: a task failed more often than Spark retries it. The session is stopped then, as it is
                when `stop` was set.
        """
        from py4j.protocol import Py4JError

        group = f"tideline-{uuid.uuid4().hex[:8]}"
        future = self._pool.submit(self._collect, specs, group)
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except NotDone:
                # Where the JVM does not answer any more, the job itself fails and says so.
                with contextlib.suppress(Py4JError, OSError):
                    if stop.is_set():
                        self._spark.sparkContext.cancelJobGroup(group)
                    else:
                        self._report_progress(group, len(specs))
            except SparkJobError as error:
                # Python workers of a job that is over may write on for seconds; they end with the session, and only
                # then is what they wrote deleted. (What a lost machine writes even later, its markers tell.)
                self.close()
                # Cancelled, or a Ctrl-C that the terminal sent to the Python workers as well.
                if stop.is_set():
                    raise StoppedError("stopped while tasks were running; they were cancelled") from error
                raise

    def close(self) -> None:
        """Stop the session; one whose JVM is gone has ended already."""
        from py4j.protocol import Py4JError

        self._pool.shutdown()
        try:
            self._spark.stop()
        except (Py4JError, OSError) as error:
            log.debug("Spark was not there any more to be stopped: %s", error)

    def _collect(self, specs: Sequence[TaskSpec], group: str) -> Sequence[TaskReport]:
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        context = self._spark.sparkContext
        try:
            context.setJobGroup(group, f"tideline: {len(specs)} tasks", interruptOnCancel=True)
            bodies = context.parallelize(specs, len(specs)).map(_run_on_executor).collect()
        except (PySparkException, Py4JJavaError) as error:
            raise SparkJobError(
                f"a task failed on Spark, more often than it is retried: {cause_of(str(error))}. "
                "Start again once the cause is mended"
            ) from error
        except (Py4JError, OSError) as error:
            raise SparkJobError(
                f"Spark's JVM does not answer any more ({cause_of(str(error))}): killed, or out of memory? "
                "Start again; spark.conf: {spark.driver.memory: 4g} gives it more"
            ) from error
        return [TASK_REPORT.load("task report", body) for body in bodies]

    def _report_progress(self, group: str, tasks: int) -> None:
        if self._on_progress is None:
            return
        tracker = self._spark.sparkContext.statusTracker()
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                done += stage_info.numCompletedTasks if stage_info else 0
        self._on_progress(done, tasks)


def start_session(name: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    """A Spark session with the settings that Tideline needs; the same Python runs in driver and tasks.

    Raises:
        SparkJobError: Spark does not start; the message says why.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    log4j = Path(__file__).parent / "resources" / "log4j2.properties"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        # Driver and tasks are one machine: nothing has to be reachable from outside.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings |= conf
    # The JVM takes the last of two settings: the job's own log4j2 file wins over this one.
    java_options = f"-Dlog4j2.configurationFile=file:{log4j} {settings.get(_JAVA_OPTIONS, '')}".strip()
    settings |= {"spark.app.name": name, "spark.master": master, _JAVA_OPTIONS: java_options}
    spark_conf = SparkConf().setAll(list(settings.items()))
    try:
        start_jvm(spark_conf)
        session = SparkSession(SparkContext.getOrCreate(spark_conf))
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise SparkJobError(
            f"Spark does not start on {master!r}: {cause_of(str(error))}; check spark.master and spark.conf"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _run_on_executor(spec: TaskSpec) -> bytes:
    """Runs in a Spark task: do the work as this attempt, and send its report as bytes."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    attempt = TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())
    return TASK_REPORT.dump(run_task(spec, attempt))
