"""How a target's Parquet files are cut, and what opens a task's writer of them; see `sinks.parquet_writer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from sinks.base import BatchWriter, TaskAttempt
from sinks.markers import Markers
from sinks.partition import EmptyPartition, PartitionField, fraction_columns, text_columns
from timeline.store import ObjectStore


@dataclass(frozen=True)
class ParquetSettings:
    """How files are cut, and what bounds a task's memory.

    A task holds at most `waiting_bytes` of rows, one batch, one row group being encoded (at its end those
    of several partitions, together no more than what waited), and the upload buffers of `max_open_files`
    files (1 MiB each on a file system, up to 16 MiB each on S3, and as much again for each that is just being
    closed). More partitions at a time than that are written too, to more and smaller files.

    Attributes:
        target_file_bytes: a file is closed once it has reached this size.
        row_group_bytes: rows of one partition that are written together, as Arrow's size in memory.
        waiting_bytes: bound of all rows that wait, over all partitions.
        max_open_files: uploads open at once.
        compression: Parquet codec.
    """

    target_file_bytes: int = 128 * 1024 * 1024
    row_group_bytes: int = 32 * 1024 * 1024
    waiting_bytes: int = 96 * 1024 * 1024
    max_open_files: int = 32
    compression: str = "zstd"


@dataclass(frozen=True)
class ParquetPartitionWriter:
    """Opens a writer for one task attempt; picklable, so it reaches the executors. See PartitionWriter.

    Attributes:
        markers: this job's markers in the target's root.
        instant: the epoch's instant time, part of every file name.
        schema: columns of the batches that will be written.
        partition_by: how files are laid out.
        on_empty_partition: what becomes of rows with an empty text in a partition column.
    """

    markers: Markers
    instant: str
    schema: pa.Schema
    partition_by: tuple[PartitionField, ...] = ()
    settings: ParquetSettings = field(default_factory=ParquetSettings)
    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE

    @property
    def may_refuse(self) -> bool:
        """See RefusingWriter. Dates that readers do not take are refused too, but no source decodes any."""
        texts = [] if self._takes_empty else text_columns(self.schema, self.partition_by)
        return bool(texts or fraction_columns(self.schema, self.partition_by))

    def refuse(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        """See RefusingWriter."""
        from sinks.partition_rows import unfit_rows  # with Arrow's functions, which only tasks need

        return unfit_rows(batch, self.partition_by, takes_empty=self._takes_empty)

    @property
    def _takes_empty(self) -> bool:
        return self.on_empty_partition is EmptyPartition.TO_NULL

    @property
    def store(self) -> ObjectStore:
        """The target's root."""
        return self.markers.store

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """See PartitionWriter."""
        from sinks.parquet_writer import ParquetBatchWriter  # with Arrow's encoder, which only tasks need

        return ParquetBatchWriter(self, attempt)
