"""Input of every peer, read by Spark's own sources."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from bench.serve import Work
from bench.systems.spark_session import target_folder


def read(spark: SparkSession, work: Work) -> DataFrame:
    """The whole input as a batch."""
    if work["source"] == "kafka":
        raw = spark.read.format("kafka").options(**_kafka(work)).load()
        return _transformed(spark, _decoded(raw, work), work)
    return _transformed(spark, spark.read.schema(work["schema"]).json(work["input"]), work)


def read_stream(spark: SparkSession, work: Work) -> DataFrame:
    """The input as a stream; ``files_per_batch``, if given, bounds a micro-batch."""
    if work["source"] == "kafka":
        return _decoded(spark.readStream.format("kafka").options(**_kafka(work)).load(), work)
    options = {"maxFilesPerTrigger": str(work["files_per_batch"])} if "files_per_batch" in work else {}
    return spark.readStream.schema(work["schema"]).options(**options).json(work["input"])


def run_stream(
    rows: DataFrame, work: Work, output_format: str, table: str | None = None, **options: str
) -> dict[str, float]:
    """Write all available input and end, as ``tideline run --once`` does.

    Args:
        rows: a stream.
        work: has the target.
        output_format: format of the sink.
        table: name of an existing table; None: the sink creates it at its path.
        options: options of the sink.

    Returns:
        ``batches``, and ``in_batch_s``: the time inside of them as Spark reports it.
    """
    writer = rows.writeStream.format(output_format).outputMode("append").options(**options)
    writer = writer.option("checkpointLocation", f"{target_folder(work)}/checkpoint")
    writer = writer.trigger(availableNow=True)
    query = writer.start(table_path(work)) if table is None else writer.toTable(table)
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    in_batch_ms = sum(int(progress["durationMs"]["triggerExecution"]) for progress in batches)
    return {"batches": len(batches), "in_batch_s": in_batch_ms / 1000}


def table_path(work: Work) -> str:
    """Path of a round's table."""
    return f"{target_folder(work)}/table"


def _decoded(raw: DataFrame, work: Work) -> DataFrame:
    return raw.select(from_json(col("value").cast("string"), work["schema"]).alias("row")).select("row.*")


def _transformed(spark: SparkSession, rows: DataFrame, work: Work) -> DataFrame:
    if not work.get("transform"):
        return rows
    rows.createOrReplaceTempView("source")
    return spark.sql(work["transform"])


def _kafka(work: Work) -> dict[str, str]:
    # The defaults are tuned for throughput: a task for each partition, consumers kept over batches.
    # https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
    return {
        "kafka.bootstrap.servers": work["bootstrap_servers"],
        "subscribe": work["topic"],
        "startingOffsets": "earliest",
    }
