"""Opens a task's writer of Parquet files; see `sinks.parquet.writer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from sinks.base import BatchWriter, TaskAttempt
from sinks.parquet.table_files import TableFiles
from sinks.partition import EmptyPartition, fraction_columns, text_columns


@dataclass(frozen=True)
class ParquetPartitionWriter(TableFiles):
    """Opens a writer for one task attempt; picklable, so it reaches the executors. See PartitionWriter.

    Attributes:
        on_empty_partition: what becomes of rows with an empty text in a partition column.
    """

    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE

    @property
    def may_refuse(self) -> bool:
        """See RefusingWriter. Dates that readers do not take are refused too, but no source decodes any."""
        texts = [] if self._takes_empty else text_columns(self.schema, self.partition_by)
        return bool(texts or fraction_columns(self.schema, self.partition_by))

    def refuse(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        """See RefusingWriter."""
        from sinks.parquet.partition_rows import unfit_rows  # with Arrow's functions, which only tasks need

        return unfit_rows(batch, self.partition_by, takes_empty=self._takes_empty)

    @property
    def _takes_empty(self) -> bool:
        return self.on_empty_partition is EmptyPartition.TO_NULL

    def open(self, attempt: TaskAttempt) -> BatchWriter:
        """See PartitionWriter."""
        from sinks.parquet.writer import ParquetBatchWriter  # with Arrow's encoder, which only tasks need

        return ParquetBatchWriter(self, attempt)
