"""Iceberg's streaming append: exactly once, by Spark's checkpoint and the batch number in the table's snapshots."""

from __future__ import annotations

from bench.serve import Work, serve
from bench.systems.sources import read_stream, run_stream
from bench.systems.spark_session import start_spark, target_folder
from bench.tuning import ICEBERG, settings


class Iceberg:
    """See `bench.serve.Served`."""

    def __init__(self, work: Work) -> None:
        """Start a session."""
        extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        self._spark = start_spark(work, {"spark.sql.extensions": extension})
        self._catalogs: dict[str, str] = {}

    def round(self, work: Work) -> dict[str, float]:
        """See Served."""
        table = self._table(work)
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in settings(ICEBERG).items())
        # Iceberg's streaming sink creates no table.
        self._spark.sql(f"CREATE TABLE {table} ({work['schema']}) USING iceberg TBLPROPERTIES ({properties})")
        return run_stream(read_stream(self._spark, work), work, "iceberg", table=table)

    def count(self, work: Work) -> int:
        """See Served."""
        return self._spark.table(self._table(work)).count()

    def close(self) -> None:
        """See Served."""
        self._spark.stop()

    def _table(self, work: Work) -> str:
        """Table name by catalog, folder and table: in a Hadoop catalog the name is the location."""
        warehouse, _, folder = target_folder(work).rpartition("/")
        if warehouse not in self._catalogs:
            name = f"bench_{len(self._catalogs)}"
            self._catalogs[warehouse] = name
            catalog = f"spark.sql.catalog.{name}"
            self._spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
            self._spark.conf.set(f"{catalog}.type", "hadoop")
            self._spark.conf.set(f"{catalog}.warehouse", warehouse)
        return f"{self._catalogs[warehouse]}.`{folder}`.table"


if __name__ == "__main__":
    serve(Iceberg)
