"""What runs on executors: a task, and before the first epoch the question whether their Python can run any.

Only Python's own modules are imported at once: the question is asked where all others may be missing.
What the driver alone needs, executors need not have.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.task import TaskSpec


def run_in_task(spec: TaskSpec) -> bytes:
    """Do a task's work as the Spark task that this is called in; its report as bytes."""
    from pyspark import TaskContext

    from ingest.task import TASK_REPORT, run_task
    from sinks.base import TaskAttempt

    context = TaskContext.get()
    assert context is not None
    attempt = TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())
    return TASK_REPORT.dump(run_task(spec, attempt))


@dataclass(frozen=True)
class Python:
    """The Python of one executor.

    Attributes:
        host: the executor's machine.
        executable: the program that runs its tasks.
        problems: why tasks cannot run there, in words.
    """

    host: str
    executable: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.executable} on {self.host}: {'; '.join(self.problems) or 'as needed'}"


def look_around(needed: Mapping[str, str]) -> Python:
    """What is missing in the Python that this runs in.

    Args:
        needed: module → the version that it must have; "" for any.
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
    """What to tell the user; None where every executor has what is needed."""
    lacking = sorted({str(python) for python in pythons if python.problems})
    if not lacking:
        return None
    found = "".join(f"\n  {line}" for line in lacking)
    return f"executors lack what this job needs:{found}\n{advice(needed)}"


def advice(needed: Mapping[str, str]) -> str:
    """How executors get a Python that can run the job's tasks."""
    packages = ", ".join(f"{module} {version}".strip() for module, version in needed.items())
    return (
        f"Tasks need Python {sys.version_info.major}.{sys.version_info.minor} with {packages}; Tideline itself is "
        "shipped. Install it on every machine and name it by spark.pyspark.python (or PYSPARK_PYTHON), or send an "
        "environment along by spark.archives: docs/how-to/run-on-a-cluster.md"
    )
