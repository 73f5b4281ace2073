"""Code that runs on executors: tasks, and the check of their Python before the first epoch.

Only modules of the standard library are imported at the top: the check runs where others may be missing.
Executors do not need the packages that only the driver uses.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ingest.execution.shuffle import ShuffleConfig, ShuffleMessage
    from ingest.execution.task import Outputs, TaskSpec
    from sinks.base import TaskAttempt

Failure: TypeAlias = tuple[str, str]
"""Class and message of an error to raise in the driver; see `ingest.execution.task.error_of`."""


def run_in_task(spec: TaskSpec) -> bytes:
    """Run a task inside a Spark task; return its report as bytes."""
    from ingest.execution.task import TASK_REPORT, run_task

    return TASK_REPORT.dump(run_task(spec, this_attempt()))


def send_in_task(spec: TaskSpec, *, shuffle: ShuffleConfig) -> Iterator[ShuffleMessage]:
    """Stage 1 of an exchange inside a Spark task; yields its messages as chunks fill up."""
    from ingest.execution.shuffle import send

    attempt = this_attempt()
    return send(spec, attempt, attempt.task, shuffle)


def receive_in_task(
    messages: Iterable[ShuffleMessage], *, outputs: Outputs, epoch: int, shuffle: ShuffleConfig
) -> Iterator[tuple[int, bytes]]:
    """Stage 2 of an exchange inside a Spark task; messages for the driver pass through.

    Args:
        messages: messages of this partition.
        outputs: the outputs that the rows were staged for.
        epoch: the epoch's number.
        shuffle: sizes of the shuffle.

    Yields:
        a task's number, those of stage 2 below 0, and its report.

    Raises:
        InvariantError: rows of another bucket arrived here: two tasks would write the same key.
    """
    from ingest.execution.shuffle import BucketBuffer, TaskOutcome, receive
    from ingest.execution.task import TASK_REPORT
    from timeline.errors import InvariantError

    attempt = this_attempt()
    with BucketBuffer(folder=_local_folder()) as buffer:
        for bucket, content in messages:
            if bucket < shuffle.buckets:
                if bucket != attempt.task:
                    raise InvariantError(
                        f"epoch {epoch}: rows for bucket {bucket} came to bucket {attempt.task}: Spark does not "
                        "shuffle by Tideline's numbers. Nothing of the epoch is committed; report this"
                    )
                buffer.put(content)
            elif isinstance(content, TaskOutcome):
                yield content.task, TASK_REPORT.dump(content.report)
        report = receive(buffer, outputs, epoch, attempt)
    yield attempt.task - shuffle.buckets, TASK_REPORT.dump(report)


def exchange_in_task(spec: TaskSpec) -> list[bytes]:
    """Both stages inside one Spark task, the only one of its epoch; return the reports as bytes."""
    from ingest.execution.shuffle import ShuffleConfig, exchange_here
    from ingest.execution.task import TASK_REPORT

    attempt = this_attempt()
    reports = exchange_here([spec], ShuffleConfig(1), lambda stage, task: attempt, folder=_local_folder())
    return [TASK_REPORT.dump(report) for report in reports]


def call_in_task(calls: Iterable[Callable[[], None]]) -> list[Failure]:
    """Run calls inside a Spark task; all of them, even if some raise a `TidelineError`.

    Returns:
        the `TidelineError` of each call that raised one. Other errors are raised for Spark to retry.
    """
    from timeline.errors import TidelineError

    failures: list[Failure] = []
    for call in calls:
        try:
            call()
        except TidelineError as error:
            failures.append((type(error).__name__, str(error)))
    return failures


def this_attempt() -> TaskAttempt:
    """Numbers of the Spark task attempt that calls this. Every task calls this function first."""
    from pyspark import TaskContext

    from ingest.execution.spark.worker import reduce_task_overhead
    from sinks.base import TaskAttempt

    reduce_task_overhead()
    context = TaskContext.get()
    assert context is not None
    return TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())


def _local_folder() -> str | None:
    """Spark's directory on this executor for data that does not fit into memory."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


@dataclass(frozen=True)
class Python:
    """The Python of one executor.

    Attributes:
        host: the executor's machine.
        executable: the program that runs its tasks.
        problems: why tasks cannot run there, human-readable.
    """

    host: str
    executable: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.executable} on {self.host}: {'; '.join(self.problems) or 'as needed'}"


def check_environment(needed: Mapping[str, str]) -> Python:
    """Find modules that are missing or of another version in the Python that runs this.

    Args:
        needed: module → the required version; "" for any.
    """
    problems: list[str] = []
    for module, version in needed.items():
        try:
            found = getattr(importlib.import_module(module), "__version__", "")
        except (ImportError, OSError) as error:
            problems.append(f"{module} cannot be imported ({error})")
        else:
            if version and found != version:
                problems.append(f"{module} is {found}, the driver has {version}")
    return Python(socket.gethostname(), sys.executable, tuple(problems))


def complaint(pythons: Sequence[Python], needed: Mapping[str, str]) -> str | None:
    """Message about missing modules; None where every executor has all that are needed."""
    lacking = sorted({str(python) for python in pythons if python.problems})
    if not lacking:
        return None
    found = "".join(f"\n  {line}" for line in lacking)
    return f"executors lack what this job needs:{found}\n{advice(needed)}"


def advice(needed: Mapping[str, str]) -> str:
    """Advice on a Python for executors that can run the job's tasks."""
    packages = ", ".join(f"{module} {version}".strip() for module, version in needed.items())
    return (
        f"Tasks need Python {sys.version_info.major}.{sys.version_info.minor} with {packages}; Tideline itself is "
        "shipped. Install it on every machine and name it by spark.pyspark.python (or PYSPARK_PYTHON), or send an "
        "environment along by spark.archives: docs/how-to/run-on-a-cluster.md"
    )
