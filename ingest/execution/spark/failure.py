"""Converts Spark's text of a failed task to a Tideline error: own errors whole, others by class and place.

::

    task ── raises ──► Python worker ── traceback as text ──► JVM ──► SparkException in the driver
                                              └── timeline.errors.X: text ──► X(text), as if raised in the driver
"""

from __future__ import annotations

import re

from timeline import errors
from timeline.errors import SparkJobError, StoreFullError, TidelineError
from timeline.redact import code_location
from timeline.stores.refusals import is_full, refusal

PYTHON_TRACE = "Traceback (most recent call last):"
STEPS_OF_A_TRACE = ("at ", "... ", "File ", "Traceback", "^", "JVM stacktrace", "Caused by: ")
"""Beginnings of the lines of a stack trace."""
_STEP = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>\S+)', re.M)
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<words>.*))?$")
_JAVA = re.compile(r"(?P<kind>(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Error|Exception))(?:: (?P<words>.*))?")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
_SYSTEMS = (
    "java.lang.OutOfMemoryError",
    "java.io.",
    "java.net.",
    "java.nio.",
    "org.apache.hadoop.",
    "org.apache.spark.",
)
"""Java classes whose texts are about the machine; other texts may come from a user's function, and quote a value."""

_LONGEST = 2000


def task_failure(error: BaseException, what: str, next_step: str) -> TidelineError:
    """The error to raise in the driver for a failed Spark job.

    Args:
        error: Spark's error, whose text includes the errors of tasks.
        what: the failed operation, as the beginning of a sentence.
        next_step: advice where the cause has none of its own.
    """
    said = str(error)
    own = _own(said)
    if own is not None:
        return own
    cause = shown_cause(said)
    if is_full(error):
        return StoreFullError(
            f"{what}: {cause}: No space left on device; the disk is full: free space there, then start again. "
            "Nothing that is committed was touched"
        )
    return refusal(what, "", cause) or SparkJobError(f"{what}: {cause}. {next_step}")


def shown_cause(said: str) -> str:
    """The cause that Spark's text names, without texts that may quote a row's value; see `timeline.redact`."""
    in_python = error_in_python(said)
    if in_python is not None:
        return in_python
    cause = cause_of(said)
    condition = _CONDITION.search(cause)
    if condition is not None:
        return condition[0]
    found = list(_JAVA.finditer(cause))
    if not found:
        return cause
    last = found[-1]
    return cause if last["kind"].startswith(_SYSTEMS) else last["kind"]


def error_in_python(said: str) -> str | None:
    """Class and place of the error that ended a Python task, with the text of a system error; None without one."""
    raised = _raised(said)
    if raised is None:
        return None
    kind, _, steps = raised
    system = re.search(r"^OSError: \[Errno \d+\] ([A-Z][a-z ]+)", said, re.M) if kind == "OSError" else None
    words = f": {system[1]}" if system is not None else ""
    return f"{kind.rpartition('.')[2]}{words}{f' at {code_location(*steps)}' if steps is not None else ''}"


def cause_of(message: str) -> str:
    """The line of a Spark error that names the cause: the last line with an error's class, or else the first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(STEPS_OF_A_TRACE)]
    failures = [line for line in causes if "Error: " in line or "Exception: " in line]
    cause = (failures or causes or ["it said nothing"])[-1 if failures else 0]
    return cause.strip(" :.")[:500]


def _own(said: str) -> TidelineError | None:
    """The `TidelineError` that a task raised; None for any other error."""
    raised = _raised(said)
    if raised is None or not raised[0].startswith(f"{errors.__name__}."):
        return None
    kind = getattr(errors, raised[0].rpartition(".")[2], None)
    if not (isinstance(kind, type) and issubclass(kind, TidelineError)):
        return None
    own: TidelineError = kind(raised[1])
    return own


def _raised(said: str) -> tuple[str, str, tuple[str, int, str] | None] | None:
    """Class, text and place of the error that ended a Python task; None without one."""
    _, trace, rest = said.rpartition(PYTHON_TRACE)
    if not trace:
        return None
    steps = [*_STEP.finditer(rest)]
    lines = rest.splitlines()
    # Steps of the trace are indented; Java's steps follow behind a blank line.
    for number, line in enumerate(lines):
        if line and not line[0].isspace() and (found := _RAISED.match(line)) is not None:
            words = [found["words"] or ""]
            for more in lines[number + 1 :]:
                if not more.strip() or more.startswith("\tat "):
                    break
                words.append(more)
            step = (steps[-1]["file"], int(steps[-1]["line"]), steps[-1]["function"]) if steps else None
            return found["kind"], "\n".join(words)[:_LONGEST], step
    return None
