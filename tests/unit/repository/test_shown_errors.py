"""Logs, timeline and quarantine show the class and the code location of a foreign error, never its text."""

from __future__ import annotations

import errno
import json
import logging
import os

import pytest
from rich.console import Console

from ingest.cli.logs import configure_logging, report_failure
from ingest.execution.spark.failure import shown_cause, task_failure
from timeline.errors import DataError, SparkJobError, StoreFullError, StoreRefusedError, StoreUnavailableError
from timeline.redact import shown_error, shown_trace

SECRET = "hunter2-Xq9"

OF_PYTHON = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (127.0.0.1 executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/opt/spark/pyspark/worker.py", line 1881, in main
    process()
  File "/home/somebody/jobs/enrich.py", line 12, in price_of
    raise {kind}({text!r})
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def spark_error(raised: str) -> Exception:
    kind, _, text = raised.partition(": ")
    return RuntimeError(OF_PYTHON.format(kind=kind, text=text, raised=raised))


def raised_with(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_foreign_error_shows_its_class_and_place() -> None:
    shown = shown_error(raised_with(ValueError(f"card {SECRET}")))
    assert shown.startswith("ValueError at repository/test_shown_errors.py:") and shown.endswith(" in raised_with")
    assert shown_error(raised_with(DataError("line 3 has no host"))) == "line 3 has no host"
    assert shown_error(OSError(f"{SECRET}")) == "OSError"
    assert (
        shown_error(OSError(errno.ENOENT, SECRET, "lake/a"))
        == f"FileNotFoundError: {os.strerror(errno.ENOENT)}: lake/a"
    )


def test_the_steps_to_an_error_and_its_causes_have_no_text_either() -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError as error:
        steps = shown_trace(error)
    assert SECRET not in steps.replace("raise KeyError(SECRET)", "")
    assert steps.index("KeyError") < steps.index("ValueError") and "in test_the_steps" in steps


@pytest.mark.parametrize("as_json", [True, False])
def test_logs_have_no_text_of_a_foreign_error_unless_details_are_asked_for(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for verbose in (False, True):
        configure_logging(Console(stderr=True), as_json=as_json, verbose=verbose)
        error = raised_with(ValueError(f"card {SECRET}"))
        logging.getLogger("ingest.protocol.events").warning("a listener failed", exc_info=error)
        report_failure("unforeseen", "ValueError", error)
        written = capsys.readouterr().err
        assert "ValueError" in written and (f"card {SECRET}" in written) is verbose
        if as_json:
            assert all(json.loads(line)["error"] for line in written.splitlines())


def test_what_a_users_function_raises_on_spark_is_told_by_class_and_place() -> None:
    failed = task_failure(spark_error(f"ValueError: card {SECRET}"), "a task failed", "Start again")
    assert type(failed) is SparkJobError
    assert str(failed) == "a task failed: ValueError at jobs/enrich.py:12 in price_of. Start again"


@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreRefusedError, DataError])
def test_tidelines_own_error_keeps_class_and_words_through_spark(kind: type[Exception]) -> None:
    failed = task_failure(spark_error(f"timeline.errors.{kind.__name__}: s3://lake: no\nsecond line"), "", "")
    assert type(failed) is kind
    assert str(failed) == "s3://lake: no\nsecond line"


def test_a_full_disk_in_a_task_of_python_or_java_is_the_one_of_the_driver() -> None:
    of_java = RuntimeError("org.apache.spark.SparkException: lost task: java.io.IOException: No space left on device")
    for error in (spark_error("OSError: [Errno 28] No space left on device"), of_java):
        failed = task_failure(error, "a task failed", "Start again")
        assert type(failed) is StoreFullError and "the disk is full: free space there, then start again" in str(failed)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            f'[CAST_INVALID_INPUT] The value \'{SECRET}\' of the type "STRING" cannot be cast to "INT".',
            "[CAST_INVALID_INPUT]",
        ),
        (f"lost task: java.lang.IllegalArgumentException: no price for {SECRET}", "java.lang.IllegalArgumentException"),
        (
            "lost task: java.lang.OutOfMemoryError: Java heap space",
            "lost task: java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            "ExecutorLostFailure (executor 1 exited) Reason: killed",
            "ExecutorLostFailure (executor 1 exited) Reason: killed",
        ),
    ],
)
def test_what_java_says_of_the_machine_is_shown_and_what_it_says_of_values_is_not(said: str, shown: str) -> None:
    assert shown_cause(said) == shown
