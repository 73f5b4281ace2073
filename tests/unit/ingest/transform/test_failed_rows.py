"""Whether a row's value made a query fail, by where in Spark the error was raised."""

from __future__ import annotations

import pytest

from ingest.transform.failed_rows import is_about_a_value

EVALUATED = "org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIteratorForCodegenStage1"
WRITTEN = "org.apache.spark.sql.execution.datasources.FileFormatDataWriter"


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        ("java.util.IllegalFormatConversionException", ["java.util.Formatter", EVALUATED, WRITTEN]),
        (
            "org.apache.spark.SparkRuntimeException",
            [
                "org.apache.spark.sql.errors.QueryExecutionErrors$",
                "org.apache.spark.sql.catalyst.util.MapBuilder",
                WRITTEN,
            ],
        ),
        (
            "org.apache.spark.SparkException",
            ["scala.Predef$", "org.apache.spark.sql.catalyst.json.JacksonParser", EVALUATED],
        ),
    ],
)
def test_what_an_expression_raises_is_about_the_row(kind: str, frames: list[str]) -> None:
    assert is_about_a_value(kind, frames)


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        ("java.lang.OutOfMemoryError", ["java.util.Arrays", EVALUATED]),
        ("org.apache.spark.api.python.PythonException", ["org.apache.spark.api.python.BasePythonRunner", EVALUATED]),
        ("java.io.IOException", ["java.io.FileOutputStream", "org.apache.hadoop.fs.RawLocalFileSystem", WRITTEN]),
        ("java.nio.channels.ClosedChannelException", ["org.apache.spark.sql.vectorized.ArrowColumnVector", EVALUATED]),
        (
            "org.codehaus.commons.compiler.InternalCompilerException",
            ["org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$", WRITTEN],
        ),
        ("org.apache.spark.SparkException", ["org.apache.spark.scheduler.DAGScheduler"]),
        ("java.lang.RuntimeException", []),
    ],
)
def test_what_a_worker_a_file_or_memory_raises_is_about_the_machine(kind: str, frames: list[str]) -> None:
    assert not is_about_a_value(kind, frames)
