"""Settings of each system, each with a page of the system's own documentation. Systems are started with them.

Standard library only: Hudi's environment reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SPARK = "https://spark.apache.org/docs/latest"
_DELTA = "https://docs.delta.io/latest"
_ICEBERG = "https://iceberg.apache.org/docs/latest"
_HUDI = "https://hudi.apache.org/docs"


@dataclass(frozen=True)
class Setting:
    """One setting of one peer.

    Attributes:
        key: name of the setting; "" for a choice that is no setting.
        value: value of the setting.
        why: purpose of the setting.
        source: page that documents it: an address, or a path below docs/.
    """

    key: str
    value: str
    why: str
    source: str


EVERYONE = (
    Setting("spark.master", "local[2]", "as ours has", f"{_SPARK}/submitting-applications.html#master-urls"),
    Setting(
        "spark.driver.memory",
        "2g",
        "as ours has",
        f"{_SPARK}/configuration.html",
    ),
    Setting("spark.sql.parquet.compression.codec", "zstd", "as ours writes", f"{_SPARK}/sql-data-sources-parquet.html"),
    Setting(
        "spark.hadoop.parquet.compression.codec.zstd.level",
        "1",
        "as ours writes; the default, 3, takes more",
        "https://github.com/apache/parquet-java/blob/master/parquet-hadoop/README.md",
    ),
    Setting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "as ours writes; the default, INT96, takes more room",
        f"{_SPARK}/configuration.html#runtime-sql-configuration",
    ),
    Setting(
        "spark.sql.shuffle.partitions",
        "2",
        "one for each core; only what a table format does for its log shuffles here",
        f"{_SPARK}/sql-performance-tuning.html",
    ),
    Setting("", "", "a schema is given: the input is read once, not twice", f"{_SPARK}/sql-data-sources-json.html"),
)
SPARK = (
    Setting(
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version",
        "2",
        "files are renamed once, not twice (and are left behind by tasks that fail)",
        f"{_SPARK}/cloud-integration.html",
    ),
)
DELTA = (
    Setting(
        "spark.databricks.delta.properties.defaults.checkpointInterval",
        "100",
        "as ours makes them; the default is every tenth commit",
        f"{_DELTA}/optimizations-oss.html",
    ),
    Setting(
        "spark.databricks.delta.snapshotPartitions",
        "2",
        "the log's state in as many pieces as there are cores, not 50",
        "https://github.com/delta-io/delta/blob/master/spark/src/main/scala/org/apache/spark/sql/delta/sources/DeltaSQLConf.scala",
    ),
    Setting(
        "",
        "",
        "no optimized writes, no auto compaction (defaults): they read and write once more",
        f"{_DELTA}/optimizations-oss.html",
    ),
)
ICEBERG = (
    Setting(
        "write.distribution-mode",
        "none",
        "rows are written by the tasks that read them, without a shuffle",
        f"{_ICEBERG}/spark-writes/#writing-distribution-modes",
    ),
    Setting("write.parquet.compression-codec", "zstd", "as ours writes", f"{_ICEBERG}/configuration/#write-properties"),
    Setting("write.parquet.compression-level", "1", "as ours writes", f"{_ICEBERG}/configuration/#write-properties"),
    Setting(
        "write.metadata.delete-after-commit.enabled",
        "true",
        "old metadata files go, as is told for tables with frequent commits",
        f"{_ICEBERG}/maintenance/#remove-old-metadata-files",
    ),
    Setting(
        "write.metadata.previous-versions-max", "10", "the same", f"{_ICEBERG}/maintenance/#remove-old-metadata-files"
    ),
)
HUDI = (
    Setting("hoodie.datasource.write.table.type", "COPY_ON_WRITE", "appends have no updates", f"{_HUDI}/table_types"),
    Setting(
        "hoodie.bulkinsert.sort.mode",
        "NONE",
        "nothing is sorted: the fastest of its ways to write",
        "https://hudi.apache.org/blog/2021/08/27/bulk-insert-sort-modes",
    ),
    Setting("hoodie.bulkinsert.shuffle.parallelism", "2", "one for each core", f"{_HUDI}/configurations"),
    Setting("hoodie.insert.shuffle.parallelism", "2", "one for each core", f"{_HUDI}/configurations"),
    Setting(
        "hoodie.combine.before.insert", "false", "an append has no duplicates (default)", f"{_HUDI}/configurations"
    ),
    Setting(
        "hoodie.parquet.small.file.limit",
        "0",
        "inserts write new files and read none again",
        f"{_HUDI}/file_sizing",
    ),
    Setting("hoodie.parquet.compression.codec", "zstd", "as ours writes", f"{_HUDI}/configurations"),
    Setting("hoodie.clean.automatic", "false", "an append leaves nothing to clean", f"{_HUDI}/cleaning"),
    Setting(
        "",
        "",
        "the five meta fields stay in the rows: logs have no key, and Hudi refuses to make keys up without them",
        f"{_HUDI}/key_generation",
    ),
    Setting("hoodie.metadata.enable", "false", "no second table is kept up with each commit", f"{_HUDI}/metadata"),
    Setting(
        "hoodie.embed.timeline.server",
        "false",
        "nothing serves file listings that an append never asks for",
        f"{_HUDI}/configurations",
    ),
)
S3A = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
        "a checkpoint's files are put, not renamed",
        f"{_SPARK}/cloud-integration.html",
    ),
    Setting(
        "",
        "",
        "Iceberg keeps its Hadoop catalog, which needs no server; on S3 its renames are safe with one writer only",
        f"{_ICEBERG}/java-api-quickstart/#using-a-hadoop-catalog",
    ),
    Setting(
        "spark.hadoop.fs.s3a.fast.upload.buffer",
        "bytebuffer",
        "uploads are buffered in memory, not on disk",
        "https://hadoop.apache.org/docs/r3.4.2/hadoop-aws/tools/hadoop-aws/performance.html",
    ),
    Setting(
        "spark.hadoop.fs.s3a.directory.marker.retention",
        "keep",
        "no deletion of directory markers behind every write (default since 3.4)",
        "https://hadoop.apache.org/docs/r3.3.4/hadoop-aws/tools/hadoop-aws/directory_markers.html",
    ),
    Setting(
        "spark.hadoop.fs.s3a.create.performance",
        "true",
        "fewer requests before a file is created",
        "https://hadoop.apache.org/docs/r3.4.2/hadoop-aws/tools/hadoop-aws/performance.html",
    ),
)

OURS = (
    Setting(
        "source.max_bytes_per_epoch",
        "1GB",
        "in the table of throughput: peers take all there is at once, and fixed costs count less",
        "how-to/monitor-a-job.md#it-falls-behind",
    ),
    Setting("", "", "`spark.master` and `spark.driver.memory` as the peers have", "job-file.md#spark"),
    Setting(
        "", "", "`source.close_after` = `0s`: nothing is appended to the files of a benchmark", "job-file.md#source"
    ),
    Setting(
        "",
        "",
        "`source.max_files_per_epoch` = `1` where an epoch has 1,000 rows, as the peers' `maxFilesPerTrigger`",
        "job-file.md#source",
    ),
)
ALL: Mapping[str, Sequence[Setting]] = {
    "Tideline": OURS,
    "every peer": EVERYONE,
    "Spark alone": SPARK,
    "Delta": DELTA,
    "Iceberg": ICEBERG,
    "Hudi": HUDI,
    "peers on S3": S3A,
}


def settings(tuning: Sequence[Setting]) -> dict[str, str]:
    """Key → value of all entries with a key."""
    return {setting.key: setting.value for setting in tuning if setting.key}
