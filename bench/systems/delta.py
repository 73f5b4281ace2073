"""Delta's streaming sink: exactly once, by Spark's checkpoint and the batch number in the table's log."""

from __future__ import annotations

from bench.serve import Work, serve
from bench.systems.sources import read_stream, run_stream, table_path
from bench.systems.spark_session import start_spark
from bench.tuning import DELTA, settings


class Delta:
    """See `bench.serve.Served`."""

    def __init__(self, work: Work) -> None:
        """Start a session."""
        extension = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        self._spark = start_spark(work, extension | settings(DELTA))

    def round(self, work: Work) -> dict[str, float]:
        """See Served."""
        return run_stream(read_stream(self._spark, work), work, "delta")

    def count(self, work: Work) -> int:
        """See Served."""
        return self._spark.read.format("delta").load(table_path(work)).count()

    def close(self) -> None:
        """See Served."""
        self._spark.stop()


if __name__ == "__main__":
    serve(Delta)
