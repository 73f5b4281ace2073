"""Lines of Spark's JVM become records that name errors and repeat no row's value."""

from __future__ import annotations

import io
import json
import logging
import os
import time

import pytest

from ingest.execution.spark.jvm import JvmOutput, silence_query_errors
from ingest.execution.spark.jvm_log import ToDriver, read_line

SECRET = "hunter2-Xq9"

CAST = f"""org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{SECRET}
ERROR Forged: {SECRET}
Caused by: {SECRET}
Caused by: java.io.IOException: {SECRET}
\tat {SECRET}.Forged.run(Forged.java:1)' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== SQL (line 1, position 12) ==
SELECT id, CAST(s AS INT) AS n FROM source
           ^^^^^^^^^^^^^^
"""
STEPS = """
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInput(QueryExecutionErrors.scala:147)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
IN_PYTHON = f"""org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/pyspark/worker.py", line 1881, in main
    process()
  File "/home/somebody/jobs/enrich.py", line 12, in price_of
    raise ValueError("{SECRET}")
ValueError: {SECRET}
and more: {SECRET}
"""


def event(message: str, thrown: str = "", at: str = "") -> str:
    """A log event as log4j writes it with Tideline's settings."""
    fields = {"level": "ERROR", "logger": "org.apache.spark.executor.Executor", "message": message}
    return json.dumps(fields | {"at": f" {at}: 147" if at else "", "thrown": f" {thrown}" if thrown else ""})


@pytest.mark.parametrize(
    ("thrown", "at", "shown"),
    [
        (
            CAST + STEPS,
            "QueryExecutionErrors.scala",
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] at QueryExecutionErrors.scala:147"
            ", caused by java.io.IOException: SQLSTATE: 22018",
        ),
        (
            f"org.apache.spark.SparkException: [TASK_WRITE_FAILED] {SECRET}{STEPS}Caused by: {CAST}{STEPS}",
            "",
            "org.apache.spark.SparkException: [TASK_WRITE_FAILED], caused by "
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT]"
            ", caused by java.io.IOException: SQLSTATE: 22018",
        ),
        (
            f"org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] {SECRET}. SQLSTATE: 22012{STEPS}",
            "QueryExecutionErrors.scala",
            "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] SQLSTATE: 22012"
            " at QueryExecutionErrors.scala:147",
        ),
        (IN_PYTHON + STEPS, "PythonRunner.scala", "ValueError at jobs/enrich.py:12 in price_of"),
        (f"scala.MatchError: {SECRET} (of class java.lang.String){STEPS}", "", "scala.MatchError"),
        (f"java.lang.OutOfMemoryError: Java heap space{STEPS}", "", "java.lang.OutOfMemoryError: Java heap space"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)" + STEPS,
            "",
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        ),
    ],
)
def test_an_error_of_spark_has_class_condition_and_place_and_not_its_text(thrown: str, at: str, shown: str) -> None:
    line = read_line(event("Exception in task 0.0 in stage 0.0 (TID 0)", thrown, at))
    assert line.shown == f"ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0): {shown}"
    assert line.level == logging.WARNING and thrown.strip() in line.whole


def test_a_message_that_quotes_an_error_is_cut_down_to_it() -> None:
    lost = "Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.1 executor 1): "
    assert read_line(event(lost + CAST)).shown == (
        f"ERROR Executor: {lost}org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT]"
        ", caused by java.io.IOException: SQLSTATE: 22018"
    )
    assert (
        read_line(event(f"Query 7: [DIVIDE_BY_ZERO] of {SECRET}")).shown == "ERROR Executor: Query 7: [DIVIDE_BY_ZERO]"
    )
    gone = "Lost executor 0 on 127.0.0.1: Remote RPC client disassociated"
    assert read_line(event(gone)).shown == f"ERROR Executor: {gone}"


def test_without_tidelines_log4j_settings_each_line_is_judged_alone() -> None:
    """Tideline runs from a zip, or the job has its own log4j2 file."""
    seen = [read_line(line) for line in ("26/11/24 22:54:16 ERROR Executor: Exception in task\n" + CAST).splitlines()]
    assert [line.shown for line in seen[:2]] == [
        "26/11/24 22:54:16 ERROR Executor: Exception in task",
        "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT]",
    ]
    for text in (
        f"Caused by: java.lang.RuntimeException: {SECRET}",
        f"{SECRET}",
        f"\tat {SECRET}",
        f'  File "{SECRET}"',
        f"' of the type {SECRET}",
    ):
        assert read_line(text).shown == ""
    assert read_line(f"ValueError: {SECRET}").shown == "ValueError"
    assert read_line(f'Exception in thread "main" java.lang.IllegalStateException: {SECRET}').shown == (
        "java.lang.IllegalStateException"
    )
    for own in ("#  SIGSEGV (0xb) at pc=0x0, pid=1", "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory"):
        assert read_line(own).shown == own


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_texts_are_logged_with_details_and_while_the_jvm_starts(level: int, caplog: pytest.LogCaptureFixture) -> None:
    output = JvmOutput()
    with caplog.at_level(level, "ingest.execution.spark.jvm"):
        with output.opened() as write_end:
            os.write(write_end, b"Error: no such option\n")
            while "no such option" not in caplog.text:
                time.sleep(0.01)
            output.has_started()
            os.write(write_end, f"{event('Aborting task', CAST + STEPS)}\n{SECRET}\n".encode())
        said = output.last_lines()
    assert "no such option" in caplog.text and "[CAST_INVALID_INPUT]" in caplog.text
    assert (SECRET in caplog.text) is (level == logging.DEBUG)
    assert SECRET in said


def test_warnings_of_a_task_arrive_whole() -> None:
    stream = io.StringIO()
    logger = logging.Logger("ingest.sources.kafka.client")
    logger.addHandler(ToDriver(stream))
    logger.warning("brokers %s do not answer\nwaiting", "a:9092")
    (line,) = stream.getvalue().splitlines()
    assert read_line(line).shown == "WARNING client: brokers a:9092 do not answer\nwaiting"


def test_pyspark_does_not_print_errors_of_queries(capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.logger import PySparkLogger

    silence_query_errors()
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).exception(SECRET, errorClass="CAST_INVALID_INPUT")
    assert capsys.readouterr().err == ""
