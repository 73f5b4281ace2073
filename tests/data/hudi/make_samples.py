"""Makes the samples beside this file with Apache Hudi itself; see README.md for how it is run.

Not a test: it needs its own environment, because Hudi has no bundle for the Spark version that Tideline uses.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, raise_error, when

COMMON = {
    "hoodie.table.name": "clicks",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "at",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.datasource.write.row.writer.enable": "false",
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.commits.archival.batch": "30",
    "hoodie.timeline.compaction.batch.size": "3",
    "hoodie.archive.merge.enable": "false",
}
MERGE_ON_READ = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BLOOM",
    "hoodie.compact.inline.max.delta.commits": "3",
}


class Table:
    """One table that grows write by write."""

    def __init__(self, spark: SparkSession, path: Path, options: Mapping[str, str]) -> None:
        self.spark = spark
        self.path = path
        self.options = {**COMMON, **options}
        self._next = 0

    def rows(self, first: int, count: int) -> DataFrame:
        ids = self.spark.range(first, first + count, 1, 2)
        return ids.select("id", col("id").alias("at"), (col("id") % 2).cast("string").alias("day"), lit("x").alias("v"))

    def write(self, operation: str, rows: DataFrame, options: Mapping[str, str] | None = None) -> None:
        settings = {**self.options, "hoodie.datasource.write.operation": operation, **(options or {})}
        rows.write.format("hudi").options(**settings).mode("append").save(str(self.path))

    def insert(self, options: Mapping[str, str] | None = None, *, count: int = 10) -> None:
        self.write("bulk_insert", self.rows(self._next, count), options)
        self._next += count

    def upsert(self, options: Mapping[str, str] | None = None, *, count: int = 4) -> None:
        self.write("upsert", self.rows(0, count), options)

    def fail(self) -> None:
        """A write that ends in the middle: its instant stays inflight."""
        broken = when(col("id") == lit(self._next + 3), raise_error(lit("a broken disk"))).otherwise(col("v"))
        try:
            self.write("bulk_insert", self.rows(self._next, 5).withColumn("v", broken))
        except (PySparkException, Py4JError) as error:
            print("failed as wanted:", str(error)[:80])
        else:
            raise AssertionError("the write should have failed")

    def call(self, statement: str) -> None:
        """A procedure of Hudi's SQL extension."""
        print(statement)
        self.spark.sql(statement.format(path=self.path)).show(5, False)


def copy_on_write(table: Table) -> None:
    """Commits, a clustering, cleans, a rollback, a savepoint, archived instants, and one that is inflight."""
    table.insert()
    table.insert()
    table.fail()
    for _ in range(3):
        table.upsert()
    table.insert({"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"})
    for _ in range(3):
        table.upsert()
    table.write("insert_overwrite", table.rows(0, 3))
    table.upsert()
    table.fail()
    table.insert({"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"})
    table.upsert()
    table.call("CALL create_savepoint(path => '{path}', commit_time => '" + newest(table) + "')")
    table.upsert()
    table.fail()


def merge_on_read(table: Table) -> None:
    """Delta commits, compactions done and one that waits, archived instants."""
    table.insert()
    for number in range(8):
        table.upsert({"hoodie.compact.inline": "true"}, count=4 + number)
    table.insert()
    for _ in range(3):
        table.upsert({"hoodie.compact.inline": "false", "hoodie.compact.schedule.inline": "true"})


def newest(table: Table) -> str:
    """Time of the newest completed commit."""
    names = (path.name for path in (table.path / ".hoodie").rglob("[0-9]*.commit"))
    return max(name.split(".")[0].split("_")[0] for name in names)


def keep_timeline(table: Path, sample: Path) -> None:
    """Copy ``.hoodie`` without data, checksums and what only lives while something is written."""
    shutil.rmtree(sample, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.crc", ".temp", ".heartbeat", "metadata", ".aux", ".locks", "*.backup")
    shutil.copytree(table / ".hoodie", sample / ".hoodie", ignore=ignored)


MADE: Mapping[str, tuple[Callable[[Table], None], Mapping[str, str]]] = {
    "copy_on_write": (copy_on_write, {}),
    "merge_on_read": (merge_on_read, MERGE_ON_READ),
}


def main() -> None:
    """``make_samples.py BUNDLE SUFFIX FOLDER [KEY=VALUE…]``."""
    bundle, suffix, folder, *settings = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", bundle)
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    extra = dict(setting.split("=", 1) for setting in settings)
    for name, (make, options) in MADE.items():
        path = Path(folder) / f"{name}_{suffix}"
        shutil.rmtree(path, ignore_errors=True)
        make(Table(spark, path, {**options, **extra}))
        keep_timeline(path, Path(__file__).parent / f"{name}_{suffix}")
    spark.stop()


if __name__ == "__main__":
    main()
