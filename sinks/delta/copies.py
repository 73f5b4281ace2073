"""Data files of one Delta table as data files of another one of the same job, byte for byte."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sinks.parquet.markers import Markers, draw_file_id, file_id
from sinks.partition import partition_folder
from timeline.epoch import WriteReport, WrittenFile
from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.stores.base import ObjectStore, Retry


def read_whole(target: str, store: ObjectStore, retry: Retry, file: WrittenFile) -> bytes:
    """The bytes of a data file, as they were written.

    Args:
        target: whose file it is.
        store: that target's folder.
        retry: bounds of the read.
        file: as the manifest has it.

    Raises:
        StoreUnavailableError: it is gone, or has other bytes.
    """
    try:
        body = retry.call(lambda: store.get(file.path))
    except NotFoundError as error:
        raise StoreUnavailableError(f"{target}: {file.path} is gone") from error
    if len(body) != file.size or (file.crc32 is not None and zlib.crc32(body) != file.crc32):
        raise StoreUnavailableError(f"{target}: the bytes of {file.path} are not those that were written")
    return body


@dataclass(frozen=True)
class Copier:
    """Writes data files of other tables to one.

    Attributes:
        app_id: key of the job's marker in the table.
        store: the table's folder.
        markers: announce each file before it is there.
    """

    app_id: str
    store: ObjectStore
    markers: Markers

    def copy(self, instant: str, files: Sequence[WrittenFile], read: Callable[[WrittenFile], bytes]) -> WriteReport:
        """See `sinks.held.CopyingSink.copy_files`."""
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
