"""Runs an epoch's tasks on Spark: one pass in Python inside each task, no record through the JVM.

A job has one partition for each task, which holds the task's spec and returns one report. Spark retries
a task that raises and may run speculative copies; the returned reports are those of the attempts that it
accepted, and all other output was announced by markers before it was written.

On a cluster the runner ships Tideline itself; executors need only the other packages. Specs, and the
credentials in them, are sent as the data of a job: they are in no setting that Spark would show.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ingest.config.job_file import is_secret
from ingest.config.models import SparkConfig, is_cluster
from ingest.execution.shuffle import ShuffleConfig, has_keys
from ingest.execution.spark.daemon import IMPORTS, modules_for_tasks
from ingest.execution.spark.executors import (
    advice,
    call_in_task,
    check_environment,
    complaint,
    exchange_in_task,
    receive_in_task,
    run_in_task,
    send_in_task,
)
from ingest.execution.spark.failure import cause_of, task_failure
from ingest.execution.spark.jvm import (
    is_submitted,
    log_lost_connections,
    silence_query_errors,
    start_jvm,
    submitted_settings,
)
from ingest.execution.spark.package import write_package
from ingest.execution.task import TASK_REPORT, TaskReport, TaskSpec, error_of
from sinks.base import sequential
from timeline.errors import RowCountError, SparkJobError, StoppedError, TidelineError
from timeline.redact import SECRET_NAME
from timeline.units import count

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TResult = TypeVar("TResult")

_POLL_S = 0.2
_CALL_TASKS_A_SLOT = 4
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"
"""A JVM that only passes bytes on never recovers the cost of its second compiler: a second of CPU at its start, and as
much again in the first epochs."""


class SparkRunner:
    """Runs tasks on a Spark session that it starts and owns."""

    def __init__(
        self,
        name: str,
        config: SparkConfig,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        runs_queries: bool = False,
    ) -> None:
        """Start a session.

        Args:
            name: the application's name.
            config: the job's ``spark`` block; its settings win over Tideline's.
            on_progress: called with the number of finished tasks and of all tasks while a job runs.
            runs_queries: whether Spark processes rows itself, and does not only start Python tasks.

        Raises:
            SparkJobError: Spark does not start.
        """
        self._on_progress = on_progress
        self._config = config
        self._shipped = contextlib.ExitStack()
        self._spark = start_session(name, config.master, config.conf, runs_queries=runs_queries)
        # One thread for all jobs: py4j keeps a connection and a JVM thread for each Python thread it has seen.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tideline-spark")
        if config.is_cluster:
            self._ship()

    @property
    def slots(self) -> int:
        """See Runner.

        Raises:
            SparkJobError: the JVM is dead.
        """
        with _jvm_that_answers():
            return int(self._spark.sparkContext.defaultParallelism)

    def check_executors(self, needed: Mapping[str, str], stop: threading.Event) -> None:
        """Check that the Python of the running executors can run tasks.

        Args:
            needed: module → the required version, "" for any.
            stop: ends the wait for an answer.

        Raises:
            SparkJobError: it cannot; the message lists missing modules and machines. The session is stopped.
            StoppedError: `stop` was set meanwhile. The session is stopped.
        """
        try:
            slots = self.slots
            pythons = self._run_job(
                lambda context: context.parallelize([needed] * slots, slots).map(check_environment).collect(),
                slots,
                stop,
            )
        except _TaskFailedError as error:
            raise SparkJobError(f"executors cannot run this job's Python: {error}\n{advice(needed)}") from error
        found = complaint(pythons, needed)
        if found is not None:
            self.close()
            raise SparkJobError(found)

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner.

        Raises:
            SparkJobError: a task failed more often than Spark retries it, or there is no executor. The session is
                stopped then, as it is when `stop` was set.
            TidelineError: the error of a task at every attempt, with its class and message; the session is stopped too.
        """
        count = len(specs)
        if not has_keys(specs):
            bodies = self._run_job(
                lambda context: context.parallelize(specs, count).map(run_in_task).collect(),
                count,
                stop,
                self._on_progress,
            )
        elif count == 1:
            bodies = self._run_job(
                lambda context: context.parallelize(specs, count).flatMap(exchange_in_task).collect(),
                count,
                stop,
                self._on_progress,
            )
        else:
            shuffle = _shuffle(count, self.slots)
            numbered = self._run_job(
                partial(_exchange, specs=specs, shuffle=shuffle), count + shuffle.buckets, stop, self._on_progress
            )
            bodies = in_order(numbered, count, shuffle.buckets)
        return [TASK_REPORT.load("task report", body) for body in bodies]

    def with_session(
        self, work: Callable[[SparkSession], Sequence[TResult]], tasks: int, stop: threading.Event
    ) -> Sequence[TResult]:
        """See `ingest.transform.session.SessionRunner`."""
        return self._run_job(lambda context: list(work(self._spark)), tasks, stop, self._on_progress)

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        """See Runner: as one Spark job, where there is more than one call.

        Raises:
            TidelineError: the first error of a call, once all calls have ended.
            SparkJobError: another error was raised more often than Spark retries it; the session is stopped then.
        """
        if len(calls) <= 1:
            sequential(calls)
            return
        tasks = min(len(calls), _CALL_TASKS_A_SLOT * self.slots)
        failures = self._run_job(
            lambda context: context.parallelize(calls, tasks).mapPartitions(call_in_task).collect(),
            tasks,
            threading.Event(),
        )
        if failures:
            raise error_of(failures[0])

    def close(self) -> None:
        """Stop the session; one whose JVM is dead has ended already."""
        from py4j.protocol import Py4JError

        self._pool.shutdown()
        with warnings.catch_warnings():
            # The failed job's error has already reported a dead JVM.
            warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM", category=RuntimeWarning)
            try:
                self._spark.stop()
            except (Py4JError, OSError) as error:
                log.debug("Spark was not there any more to be stopped: %s", error)
        self._shipped.close()

    def _ship(self) -> None:
        """Ship this driver's code to every executor; later executors fetch the same file."""
        folder = self._shipped.enter_context(tempfile.TemporaryDirectory(prefix="tideline-"))
        # A name of its own: `--py-files tideline.zip` may have shipped a file of that name already.
        package = Path(folder) / f"tideline-of-{os.getpid()}.zip"
        write_package(package)
        self._spark.sparkContext.addPyFile(str(package))

    def _run_job(
        self,
        job: Callable[[SparkContext], list[TResult]],
        tasks: int,
        stop: threading.Event,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[TResult]:
        """The result of one Spark job with `tasks` tasks. The session is stopped where this raises.

        Raises:
            TidelineError: the error of a task, with its class; else SparkJobError.
        """
        from py4j.protocol import Py4JError

        group = f"tideline-{uuid.uuid4().hex[:8]}"
        future = self._pool.submit(self._collect, job, tasks, group)
        executors = _ExecutorWatch(self._spark, self._config)
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except NotDone:
                # Where the JVM no longer answers, the job itself fails with that error.
                with contextlib.suppress(Py4JError, OSError):
                    if stop.is_set() or executors.are_lost():
                        self._spark.sparkContext.cancelJobGroup(group)
                    elif on_progress is not None:
                        on_progress(self._done(group), tasks)
            except SparkJobError as error:
                # Python workers of an ended job may write for some seconds more; they end with the session, and
                # their files are deleted only then. (Markers announce files that a lost machine writes even later.)
                self.close()
                # Cancelled, or a Ctrl-C that the terminal sent to the Python workers as well.
                if stop.is_set():
                    raise StoppedError("stopped while tasks were running; they were cancelled") from error
                if executors.were_lost:
                    raise SparkJobError(
                        f"{self._config.master} has had no executor for this job for {self._config.executor_wait:g} s "
                        "(spark.executor_wait): are its workers there, and have they cores and memory to spare? "
                        "Start again once they are"
                    ) from error
                if isinstance(error, _TaskFailedError) and not isinstance(error.told, SparkJobError):
                    raise error.told from error
                raise

    def _collect(self, job: Callable[[SparkContext], list[TResult]], tasks: int, group: str) -> list[TResult]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        context = self._spark.sparkContext
        with _jvm_that_answers():
            try:
                context.setJobGroup(group, f"tideline: {count(tasks, 'task')}", interruptOnCancel=True)
                return job(context)
            except (PySparkException, Py4JJavaError) as error:
                raise _TaskFailedError(
                    task_failure(
                        error,
                        "a task failed on Spark, more often than it is retried",
                        "Start again once the cause is mended",
                    )
                ) from error

    def _done(self, group: str) -> int:
        """Number of finished tasks of a job group."""
        tracker = self._spark.sparkContext.statusTracker()
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                done += stage_info.numCompletedTasks if stage_info else 0
        return done


def in_order(numbered: Sequence[tuple[int, bytes]], tasks: int, buckets: int) -> list[bytes]:
    """Reports of both stages of an exchange, in the order of their tasks: stage 1, then stage 2.

    Args:
        numbered: each task's number, those of stage 2 below 0, and its report.
        tasks: tasks of stage 1.
        buckets: tasks of stage 2.

    Raises:
        RowCountError: a task has no report, or several: its rows would be lost, or counted twice.
    """
    expected = (*range(tasks), *range(-buckets, 0))
    found = dict(numbered)
    if len(numbered) != len(expected) or set(found) != set(expected):
        raise RowCountError(
            f"Spark gave {count(len(numbered), 'report')} of tasks {sorted(found)}; one of each of "
            f"{sorted(expected)} is due. Nothing of the epoch is committed; start again, and report this if it comes "
            "back"
        )
    return [found[task] for task in expected]


def _shuffle(tasks: int, slots: int) -> ShuffleConfig:
    """Sizes of an exchange through Spark's shuffle.

    PySpark's `partitionBy` buffers ten records for each partition, at most a thousand, before it passes any on.
    """
    buckets = ShuffleConfig.over(tasks, slots).buckets
    return ShuffleConfig.over(tasks, slots, chunks_held=min(10 * buckets, 1000))


def _exchange(context: SparkContext, specs: Sequence[TaskSpec], shuffle: ShuffleConfig) -> list[tuple[int, bytes]]:
    """Both stages of an exchange as one job; each task's number, those of stage 2 below 0, and its report.

    Reports of stage 1 are shuffled with its rows, so both come from attempts that Spark accepted. A task may
    still have two such attempts: where an executor is lost with its output, the task is retried, maybe after
    its report, or a part of its rows, was read from the first attempt. The result stays exact: by the plan both
    send the same rows to the same buckets, and unreported files are deleted when the epoch is prepared.
    """
    receive = partial(receive_in_task, outputs=specs[0].outputs, epoch=specs[0].epoch, shuffle=shuffle)
    sent = context.parallelize(specs, len(specs)).flatMap(partial(send_in_task, shuffle=shuffle))
    # The number behind the last bucket is 0 modulo their count: this saves a partition, and so a Python task.
    return sent.partitionBy(shuffle.buckets, partitionFunc=int).mapPartitions(receive).collect()


@contextlib.contextmanager
def _jvm_that_answers() -> Iterator[None]:
    """Raise SparkJobError for calls to a JVM that no longer answers; it may die at any time."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError) as error:
        raise SparkJobError(
            f"Spark's JVM does not answer any more ({cause_of(str(error))}): killed, or out of memory? "
            "Start again; spark.conf: {spark.driver.memory: 4g} gives it more"
        ) from error


class _TaskFailedError(SparkJobError):
    """A task itself failed; executors and JVM are alive.

    Attributes:
        told: the error as the driver raises it.
    """

    def __init__(self, told: TidelineError) -> None:
        super().__init__(str(told))
        self.told = told


class _ExecutorWatch:
    """Watches the executors of one job: a cluster that has lost all of them lets the job wait for ever."""

    def __init__(self, spark: SparkSession, config: SparkConfig) -> None:
        self._spark = spark
        self._config = config
        self._seen_s = time.monotonic()
        self.were_lost = False

    def are_lost(self) -> bool:
        """Whether there has been no executor for as long as the job file allows."""
        if self._config.is_cluster and not self.were_lost:
            # The count includes the driver.
            if self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 1:
                self._seen_s = time.monotonic()
            self.were_lost = time.monotonic() - self._seen_s > self._config.executor_wait
        return self.were_lost


def start_session(name: str, master: str, conf: dict[str, str], *, runs_queries: bool) -> SparkSession:
    """A Spark session with the settings that Tideline needs.

    The job's settings have precedence, then those given to spark-submit, then Tideline's.

    Args:
        name: the application's name.
        master: Spark's master URL.
        conf: the job's settings.
        runs_queries: see `SparkRunner`.

    Raises:
        SparkJobError: Spark does not start; the message says why.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": f"(?i){SECRET_NAME.pattern}",
    }
    if not is_cluster(master):
        # Driver and tasks share one machine: no port has to be reachable from outside.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if is_submitted():
        settings |= submitted_settings()
    settings |= conf | {"spark.app.name": name, "spark.master": master}
    _choose_python(settings)
    if not is_submitted():
        settings[_JAVA_OPTIONS] = java_options(settings.get(_JAVA_OPTIONS, ""), runs_queries=runs_queries)
    # The JVM's command line holds its launch settings and is visible to all users; secrets are passed later.
    launch_conf = SparkConf().setAll([(key, value) for key, value in settings.items() if not is_secret((key,))])
    log_lost_connections()
    silence_query_errors()
    try:
        start_jvm(launch_conf)
        # Created after the JVM started, so that it includes the settings of spark-defaults.conf.
        spark_conf = SparkConf().setAll(list(settings.items()))
        if runs_own_modules(spark_conf):
            for key, value in worker_settings(list(sys.modules)).items():
                spark_conf.setIfMissing(key, value)
        session = SparkSession(SparkContext.getOrCreate(spark_conf))
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise SparkJobError(
            f"Spark does not start on {master!r}: {cause_of(str(error))}; check spark.master and spark.conf"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _choose_python(settings: Mapping[str, str]) -> None:
    """Set the Python of tasks in the environment, where PySpark looks for it.

    The driver's own is right only on its own machine; elsewhere Spark's default is ``python3``.
    """
    given = settings.get(_PYTHON)
    if given:
        os.environ["PYSPARK_PYTHON"] = given
    elif not is_cluster(settings["spark.master"]):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def runs_own_modules(conf: SparkConf) -> bool:
    """Whether tasks run on this machine, with this Python and its modules.

    Elsewhere, and under spark-submit, Tideline arrives with the first task; so do modules that the job file names.
    """
    is_local = not is_cluster(conf.get("spark.master", "")) and not is_submitted()
    return is_local and os.environ["PYSPARK_PYTHON"] == sys.executable and not conf.get("spark.submit.pyFiles", "")


def worker_settings(loaded: Iterable[str]) -> dict[str, str]:
    """Settings that fork workers with the modules of tasks preloaded; see `ingest.execution.spark.daemon`.

    Args:
        loaded: modules of this process.
    """
    return {
        "spark.python.daemon.module": "ingest.execution.spark.daemon",
        f"spark.executorEnv.{IMPORTS}": ",".join(modules_for_tasks(loaded)),
    }


def java_options(given: str, *, runs_queries: bool) -> str:
    """Options of the driver's JVM. Of two values of one option the JVM takes the last: the job's own win.

    Args:
        given: the job's own options.
        runs_queries: see `SparkRunner`.
    """
    log4j = Path(__file__).parent / "log4j2.properties"
    options = [] if runs_queries else [_ONE_COMPILER]
    if log4j.is_file():  # missing where Tideline runs from a zip; Spark's own settings are enough
        options.append(f"-Dlog4j2.configurationFile=file:{log4j}")
    return " ".join([*options, given]).strip()
