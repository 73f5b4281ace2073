"""Errors of Spark tasks: a Tideline error keeps class and message, a foreign error loses its text."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.execution.spark.failure import task_failure
from timeline.errors import SparkJobError, StoreRefusedError, TidelineError

SECRET = "hunter2-Xq9"

pytestmark = pytest.mark.spark


def refuse(number: int) -> int:
    raise StoreRefusedError(f"s3://lake/{number}: AccessDenied: no")


def leak(number: int) -> int:
    raise ValueError(f"card {SECRET}")


def failure_of(spark: SparkSession, task: object) -> TidelineError:
    from py4j.protocol import Py4JJavaError

    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        spark.sparkContext.parallelize([1], 1).map(task).collect()  # type: ignore[arg-type]
    return task_failure(raised.value, "a task failed on Spark", "Start again once the cause is mended")


def test_a_tasks_own_error_comes_back_with_class_and_words(spark: SparkSession) -> None:
    failed = failure_of(spark, refuse)
    assert type(failed) is StoreRefusedError and str(failed) == "s3://lake/1: AccessDenied: no"


def test_a_foreign_error_comes_back_by_class_and_place(spark: SparkSession) -> None:
    failed = failure_of(spark, leak)
    assert type(failed) is SparkJobError and SECRET not in str(failed)
    assert "ValueError at spark/test_task_errors.py:" in str(failed) and "in leak" in str(failed)
