"""Hudi's appends: its streaming sink, and its batch writes, on a Spark that has a bundle."""

from __future__ import annotations

from bench.serve import Work, serve
from bench.systems.sources import read, read_stream, run_stream, table_path
from bench.systems.spark_session import start_spark
from bench.tuning import HUDI, settings


class Hudi:
    """See `bench.serve.Served`. Work of a round has the ``operation``, and ``is_stream``."""

    def __init__(self, work: Work) -> None:
        """Start a session."""
        # https://hudi.apache.org/docs/quick-start-guide
        self._spark = start_spark(
            work,
            {
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            },
        )

    def round(self, work: Work) -> dict[str, float]:
        """See Served."""
        options = settings(HUDI) | {
            "hoodie.table.name": "bench",
            "hoodie.datasource.write.operation": str(work["operation"]),
        }
        if work["is_stream"]:
            return run_stream(read_stream(self._spark, work), work, "hudi", **options)
        read(self._spark, work).write.format("hudi").options(**options).mode("append").save(table_path(work))
        return {}

    def count(self, work: Work) -> int:
        """See Served."""
        return self._spark.read.format("hudi").load(table_path(work)).count()

    def close(self) -> None:
        """See Served."""
        self._spark.stop()


if __name__ == "__main__":
    serve(Hudi)
