"""Spark alone: reads the input with a given schema, writes Parquet. It guarantees nothing; no system does less work."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bench.serve import Work, serve
from bench.systems.sources import read, table_path
from bench.systems.spark_session import start_spark
from bench.tuning import SPARK, settings


class Spark:
    """See `bench.serve.Served`."""

    def __init__(self, work: Work) -> None:
        """Start a session."""
        self._spark: SparkSession = start_spark(work, settings(SPARK))

    def round(self, work: Work) -> dict[str, float]:
        """See Served."""
        read(self._spark, work).write.partitionBy(*work.get("partition_by", ())).parquet(table_path(work))
        return {}

    def count(self, work: Work) -> int:
        """See Served."""
        return self._spark.read.parquet(table_path(work)).count()

    def close(self) -> None:
        """See Served."""
        self._spark.stop()


if __name__ == "__main__":
    serve(Spark)
