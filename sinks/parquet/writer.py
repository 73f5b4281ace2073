"""Writes one task's rows as Parquet files at their final place: streaming, partitioned, in bounded memory.

::

    write(batch) ─ split by partition ─→ rows waiting, per partition
                                           │ a row group is full, or all that waits is too much
                                           ▼
                              marker ─→ open file ─→ row group … ─→ closed: WrittenFile
                                           │ target size reached, or too many open: the oldest in use
                                           ▼
                                         closed; the partition's next rows go to a new file

A file is opened when its first row group is written, so partitions whose rows are still waiting
hold no upload. Names are Hudi's, ``<uuid>-0_<task>-<stage>-<attempt>_<instant>.parquet``: there is
no rename, and a file that no log entry names is not part of the table.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.base import TaskAttempt
from sinks.parquet.encoding import dictionary_columns
from sinks.parquet.markers import draw_file_id, file_id
from sinks.parquet.partition_rows import split, with_partition_columns
from sinks.parquet.stats import ValueStatistics, file_statistics, leaves
from sinks.parquet.table_files import TableFiles
from sinks.partition import partition_folder, partitioned_schema
from timeline.concurrency import MOST_REQUESTS, map_concurrently
from timeline.epoch import WriteReport, WrittenFile
from timeline.errors import DataError, InvariantError, StoreError, TargetRefusedError
from timeline.stores.base import ObjectWriter
from timeline.stores.refusals import store_error
from timeline.units import count

_PIECE_OVERHEAD_BYTES = 4096
"""Memory of a waiting piece besides its values; makes many tiny pieces count."""

_SMALL_PIECE_BYTES = 64 << 10
"""Encoding a piece costs some 50 µs besides its values: smaller pieces are merged first."""

Partition = tuple[str | None, ...]


@dataclass
class _Waiting:
    """Rows of one partition that are not in a row group yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class _Valve(io.RawIOBase):
    """Forwards bytes with count and CRC-32; drops them once shut: a discarded encoder still writes its footer."""

    def __init__(self, upload: ObjectWriter) -> None:
        self._upload = upload
        self._shut = False
        self.passed_bytes = 0
        self.crc32 = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if not self._shut:
            self._upload.sink.write(data)
            self.passed_bytes += size
            self.crc32 = zlib.crc32(data, self.crc32)
        return size

    def tell(self) -> int:
        return self.passed_bytes

    def shut(self) -> None:
        self._shut = True


@dataclass
class _OpenFile:
    """One file being written. Its upload is discarded unless `finish` returns."""

    path: str
    partition: dict[str, str | None]
    schema: pa.Schema
    upload: ObjectWriter
    valve: _Valve
    parquet: pq.ParquetWriter
    footers: list[pq.FileMetaData]
    values: ValueStatistics

    def append(self, rows: pa.Table) -> int:
        """Write one row group; returns the file's size so far in bytes."""
        self.values.add(rows)
        self.parquet.write_table(rows, row_group_size=rows.num_rows)
        return self.valve.passed_bytes

    def finish(self) -> WrittenFile:
        """Write the footer and make the object durable."""
        self.parquet.close()
        size = self.upload.close()
        footer = self.footers[0]
        statistics = file_statistics(footer, self.schema, partition_columns=self.partition.keys(), values=self.values)
        return WrittenFile(self.path, size, footer.num_rows, self.partition, statistics, self.valve.crc32)

    def discard(self) -> None:
        """Leave no object behind."""
        self.valve.shut()
        with contextlib.suppress(pa.ArrowException, OSError, RuntimeError):
            self.parquet.close()  # else it is closed when it is garbage-collected, and fails then
        self.upload.discard()


class ParquetBatchWriter:
    """One task attempt's open writer; see the module for the path of rows, and BatchWriter for the contract."""

    def __init__(self, writer: TableFiles, attempt: TaskAttempt) -> None:
        """No file is opened before there are rows to write."""
        self._writer = writer
        self._attempt = attempt
        self._columns = [field.column for field in writer.partition_by]
        self._schema = partitioned_schema(writer.schema, writer.partition_by).remove_metadata()
        # Statistics ignore NaN: Spark would skip row groups with matching rows.
        self._bounded = [".".join(leaf.path) for leaf in leaves(self._schema) if not leaf.is_float]
        self._waiting: dict[Partition, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[Partition, _OpenFile] = OrderedDict()  # least recently used first
        self._written: list[WrittenFile] = []
        self._over = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; memory stays bounded for any number of rows.

        Raises:
            TargetRefusedError: the batch does not have the writer's schema.
            DataError: a null, or an empty string in a partition column, where the schema allows none.
            StoreUnavailableError: the store failed. The attempt is lost: abort it.
        """
        self._must_be_open()
        rows = with_partition_columns(self._checked(batch), self._writer.partition_by)
        settings = self._writer.settings
        with self._foreign_errors():
            for partition, piece in split(rows, self._columns):
                self._wait(partition, piece)
                if self._waiting[partition].bytes >= settings.row_group_bytes:
                    self._flush(partition)
                while self._waiting_bytes > settings.waiting_bytes:
                    self._flush(max(self._waiting, key=lambda key: self._waiting[key].bytes))

    def close(self) -> WriteReport:
        """Make all written rows durable and report them.

        Raises:
            StoreUnavailableError: the store failed. The attempt is lost: abort it.
        """
        self._must_be_open()
        with self._foreign_errors():
            # Partitions with an open file come first, so that never more files are open.
            left = [*self._open, *(partition for partition in self._waiting if partition not in self._open)]
            map_concurrently(self._complete, left, min(MOST_REQUESTS, self._writer.settings.max_open_files))
        self._over = True
        files = tuple(sorted(self._written, key=lambda file: file.path))
        return WriteReport(sum(file.rows for file in files), sum(file.size for file in files), files)

    def abort(self) -> None:
        """Give up and delete this attempt's files; a file that cannot be deleted now keeps its marker for `prepare`."""
        self._over = True
        self._waiting.clear()
        self._waiting_bytes = 0
        while self._open:
            _, file = self._open.popitem()
            try:
                file.discard()
            except StoreError:
                continue
        while self._written:
            try:
                self._writer.store.delete([self._written.pop().path])
            except StoreError:
                continue

    def _must_be_open(self) -> None:
        if self._over:
            raise InvariantError(f"task {self._attempt}: the writer of instant {self._writer.instant} is closed")

    @contextlib.contextmanager
    def _foreign_errors(self) -> Iterator[None]:
        """Translate errors of the encoder: the file system's own, and those of rows that cannot be encoded."""
        try:
            yield
        except pa.ArrowInvalid as error:  # a null inside a struct or list that allows none
            raise DataError(f"{self._attempt}: a row cannot be written: {error}") from error
        except OSError as error:
            raise store_error(f"{self._writer.store.url}: writing {self._attempt}", error, str(error)) from error

    def _wait(self, partition: Partition, piece: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(partition, _Waiting())
        size = piece.nbytes + _PIECE_OVERHEAD_BYTES
        waiting.batches.append(piece)
        waiting.bytes += size
        self._waiting_bytes += size

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with exactly the writer's schema: its nullability, no metadata."""
        wanted = self._writer.schema
        differences = [
            f"  {name}: found {found}, wanted {want}"
            for name, found, want in _compared(batch.schema, wanted)
            if found is None or want is None or not found.equals(want)
        ]
        if differences:
            raise TargetRefusedError("rows do not have the columns of the target:\n" + "\n".join(differences))
        columns = [batch.column(name) for name in wanted.names]
        for column, declared in zip(columns, wanted, strict=True):
            if column.null_count and not declared.nullable:
                raise DataError(f"column {declared.name!r} is not null, and null in {count(column.null_count, 'row')}")
        return pa.RecordBatch.from_arrays(columns, schema=wanted.remove_metadata())

    def _flush(self, partition: Partition) -> None:
        """Write a partition's waiting rows; close files if too many are open, and this one if it is large enough."""
        while partition not in self._open and len(self._open) >= self._writer.settings.max_open_files:
            self._finish(next(iter(self._open)))
        if self._append(partition) >= self._writer.settings.target_file_bytes:
            self._finish(partition)
        else:
            self._open.move_to_end(partition)

    def _complete(self, partition: Partition) -> None:
        """Write a partition's waiting rows and close its file; may run for several partitions concurrently."""
        if partition in self._waiting:
            self._append(partition)
        self._finish(partition)

    def _append(self, partition: Partition) -> int:
        """Write a partition's waiting rows as one row group of its file; returns the file's size so far in bytes."""
        waiting = self._waiting.pop(partition)
        self._waiting_bytes -= waiting.bytes
        rows = pa.Table.from_batches(waiting.batches, schema=self._schema)
        if waiting.bytes < len(waiting.batches) * _SMALL_PIECE_BYTES:
            rows = rows.combine_chunks()
        if partition not in self._open:
            self._open[partition] = self._opened(partition, rows)
        return self._open[partition].append(rows)

    def _opened(self, partition: Partition, first: pa.Table) -> _OpenFile:
        writer, attempt = self._writer, self._attempt
        values = dict(zip(self._columns, partition, strict=True))
        drawn = file_id(writer.markers.app_id, draw_file_id())
        name = f"{drawn}-0_{attempt.task}-{attempt.stage}-{attempt.attempt}_{writer.instant}.parquet"
        path = f"{partition_folder(values)}/{name}" if values else name
        # The marker comes first: a file without a marker could never be deleted.
        writer.markers.announce(writer.instant, path)
        upload = writer.store.open_write(path)
        footers: list[pq.FileMetaData] = []
        valve = _Valve(upload)
        parquet = pq.ParquetWriter(
            valve,
            self._schema,
            compression=writer.settings.compression,
            use_dictionary=dictionary_columns(first),
            write_statistics=self._bounded,
            write_page_index=True,
            store_decimal_as_integer=True,
            metadata_collector=footers,
        )
        return _OpenFile(path, values, self._schema, upload, valve, parquet, footers, ValueStatistics(self._schema))

    def _finish(self, partition: Partition) -> None:
        """Close a partition's file. It stays in `_open` until it is closed, so that `abort` finds it."""
        self._written.append(self._open[partition].finish())
        del self._open[partition]


def _compared(found: pa.Schema, wanted: pa.Schema) -> list[tuple[str, pa.DataType | None, pa.DataType | None]]:
    types = {field.name: field.type for field in found}
    listed = [(field.name, types.pop(field.name, None), field.type) for field in wanted]
    return [*listed, *((name, kind, None) for name, kind in types.items())]
