"""The `PartitionWriter` of Parquet files; see `sinks.parquet.writer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from sinks.base import BatchWriter, PartitionWriter, TaskAttempt
from sinks.parquet.table_files import TableFiles
from sinks.partition import EmptyPartition, fraction_columns, text_columns
from timeline.errors import InvariantError


@dataclass(frozen=True)
class ParquetPartitionWriter(TableFiles):
    """Opens a writer for one task attempt; picklable, so it reaches the executors. See PartitionWriter.

    Attributes:
        on_empty_partition: treatment of rows with an empty text in a partition column.
    """

    on_empty_partition: EmptyPartition = EmptyPartition.QUARANTINE

    @property
    def may_refuse(self) -> bool:
        """See RefusingWriter. Dates that readers do not accept are refused too, but no source decodes one."""
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


def parquet_writer(target: str, writer: PartitionWriter) -> ParquetPartitionWriter:
    """The writer of a target that takes files written by Spark; see `sinks.options.QueryRows`.

    Args:
        target: the target's name in the job.
        writer: returned by the sink's `begin`.

    Raises:
        InvariantError: the sink's options say that it takes files, and its writer is no `ParquetPartitionWriter`.
    """
    if not isinstance(writer, ParquetPartitionWriter):
        raise InvariantError(
            f"{target}: its options say QueryRows.FILES, but its begin() gives {type(writer).__name__} and not "
            "ParquetPartitionWriter: this is a mistake in the sink"
        )
    return writer
