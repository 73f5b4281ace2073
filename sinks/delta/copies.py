"""Copies of data files between Delta tables of one job, byte for byte."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sinks.parquet.markers import Markers, draw_file_id, file_id
from sinks.partition import partition_folder, unfit_partition
from timeline.epoch import WriteReport, WrittenFile
from timeline.errors import NotFoundError, StoreUnavailableError, TargetRefusedError
from timeline.stores.base import ObjectStore, Retry


@dataclass(frozen=True)
class DeltaCopies:
    """Exchanges data files with other tables of the job; see `sinks.held.FileCopies`.

    Attributes:
        target: the target's name.
        app_id: key of the job's marker in the table.
        schema: the table's columns; all tables of a job have the same columns and partitions.
        store: the table's folder.
        markers: announce each file before it exists.
        retry: bounds of each read.
    """

    target: str
    app_id: str
    schema: pa.Schema
    store: ObjectStore
    markers: Markers
    retry: Retry

    def read(self, file: WrittenFile) -> bytes:
        """See FileCopies."""
        try:
            body = self.retry.call(lambda: self.store.get(file.path))
        except NotFoundError as error:
            raise StoreUnavailableError(f"{self.target}: {file.path} is gone") from error
        if len(body) != file.size or (file.crc32 is not None and zlib.crc32(body) != file.crc32):
            raise StoreUnavailableError(f"{self.target}: the bytes of {file.path} are not those that were written")
        return body

    def refused(self, files: Sequence[WrittenFile]) -> str:
        """See FileCopies: older versions wrote partition values that delta-rs cannot read."""
        reasons = (unfit_partition(file.partition, self.schema) for file in files)
        return next((reason for reason in reasons if reason), "")

    def write(self, instant: str, files: Sequence[WrittenFile], read: Callable[[WrittenFile], bytes]) -> WriteReport:
        """See FileCopies."""
        refused = self.refused(files)
        if refused:
            raise TargetRefusedError(f"{self.target}: {refused}. Nothing was copied")
        copies = tuple(self._copied(instant, number, file, read(file)) for number, file in enumerate(files))
        return WriteReport(sum(file.rows for file in copies), sum(file.size for file in copies), copies)

    def _copied(self, instant: str, number: int, file: WrittenFile, body: bytes) -> WrittenFile:
        name = f"{file_id(self.app_id, draw_file_id())}-0_{number}-0-0_{instant}.parquet"
        folder = partition_folder(file.partition)
        path = f"{folder}/{name}" if folder else name
        self.markers.announce(instant, path)
        upload = self.store.open_write(path)
        try:
            upload.sink.write(body)
            upload.close()
        except BaseException:
            upload.discard()
            raise
        return replace(file, path=path)
