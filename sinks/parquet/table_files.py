"""Names, partitioning and sizes of the Parquet files of one epoch in a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from sinks.parquet.markers import Markers
from sinks.partition import PartitionField
from timeline.stores.base import ObjectStore

INDEXED_LEAVES = 32
"""Leaf columns that get statistics, from the left: Delta's default of ``delta.dataSkippingNumIndexedCols``."""


@dataclass(frozen=True)
class ParquetSettings:
    """Sizes of files, and the bounds of a task's memory.

    A task holds at most `waiting_bytes` of rows, one batch, one row group being encoded (at its end those of several
    partitions, together no more than the waiting rows), and the upload buffers of `max_open_files` files (1 MiB each on
    a file system, up to 16 MiB each on S3, and as much again for each file that is being closed). More partitions at a
    time than `max_open_files` are written to more and smaller files.

    Attributes:
        target_file_bytes: a file is closed once it has reached this size.
        row_group_bytes: rows of one partition that are written as one row group, by Arrow's size in memory.
        waiting_bytes: bound of all waiting rows, over all partitions.
        max_open_files: uploads open at once.
        compression: Parquet codec.
    """

    target_file_bytes: int = 128 * 1024 * 1024
    row_group_bytes: int = 32 * 1024 * 1024
    waiting_bytes: int = 96 * 1024 * 1024
    max_open_files: int = 32
    compression: str = "zstd"


@dataclass(frozen=True)
class TableFiles:
    """The files that tasks write to a table in one epoch.

    Attributes:
        markers: this job's markers in the target's root.
        instant: the epoch's instant time, part of every file name.
        schema: columns of the batches that will be written.
        partition_by: how files are laid out.
    """

    markers: Markers
    instant: str
    schema: pa.Schema
    partition_by: tuple[PartitionField, ...] = ()
    settings: ParquetSettings = field(default_factory=ParquetSettings)

    @property
    def store(self) -> ObjectStore:
        """The target's root."""
        return self.markers.store
