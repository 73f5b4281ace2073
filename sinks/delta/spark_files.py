"""One instant's folder of files that Spark writes: announced, listed and deleted as a whole.

::

    .hoodie/.temp/<t>/<folder>/folder-<owner>-0_<t>.marker.CREATE     put before Spark starts to write
    <folder>/[<column>=<value>/…]part-….parquet                       what Spark has committed
    <folder>/_temporary/…                                             what it has not, or not any more

Spark names its files itself, so no marker can name them. Spark writes only into the folder, whose name holds instant
and job: ``<t>-<owner>``. So all files of killed or lost tasks, however late, lie in the folder; its marker stays until
no task can write into it any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from sinks.parquet.markers import Markers, marker_path, owner_of
from sinks.partition import NULL_SEGMENT, PartitionField, partitioned_schema
from timeline.concurrency import map_concurrently
from timeline.epoch import EpochRef, Part, WriteReport, WrittenFile
from timeline.errors import InvariantError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

FOLDER_DETAIL = "folder"
"""Key of a part's detail: the folder that holds its files."""

CLOSED_DETAIL = "is_closed"
"""Key of a part's detail: whether no task can write into that folder any more."""

READ_AT_ONCE = 16
"""Number of footers that are read concurrently."""

_ANNOUNCED = re.compile(r"(?P<instant>\d{17})-(?P<owner>[0-9a-f]{12})/folder-(?P=owner)-0_(?P=instant)")
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")


def without_folders(paths: Iterable[str]) -> list[str]:
    """Announced paths that are data files, without announcements of folders."""
    return [path for path in paths if not _ANNOUNCED.fullmatch(path)]


@dataclass(frozen=True)
class SparkFolder:
    """The folder into which Spark writes one job's files of an instant.

    Attributes:
        markers: the job's markers in the table.
        instant: the epoch's instant time.
    """

    markers: Markers
    instant: str

    @property
    def path(self) -> str:
        """The folder, below the table's root."""
        return f"{self.instant}-{owner_of(self.markers.app_id)}"

    @property
    def url(self) -> str:
        """The folder as Hadoop's file systems spell it."""
        return f"{re.sub('^s3:', 's3a:', self.markers.store.url)}/{self.path}"

    @property
    def announcement(self) -> str:
        """The path whose marker announces the folder; a file of this name never exists."""
        return f"{self.path}/folder-{owner_of(self.markers.app_id)}-0_{self.instant}"

    def announce(self) -> None:
        """Put the folder's marker; Spark may write into it once this has returned."""
        self.markers.announce(self.instant, self.announcement)

    def remove(self, keep: Iterable[str] = ()) -> list[str]:
        """Delete all files in the folder except some; returns the paths of the deleted files."""
        kept = set(keep)
        listed = self.markers.retry.call(partial(self.markers.store.list, self.path, recursive=True))
        lost = [info.path for info in listed if info.path not in kept]
        self.markers.delete_files(lost)
        self.markers.retry.call(partial(self.markers.store.prune, self.path))
        return lost

    def forget(self) -> None:
        """Delete the marker: no task can write into the folder any more."""
        self.markers.retry.call(partial(self.markers.store.delete, [marker_path(self.instant, self.announcement)]))

    def report(
        self, schema: pa.Schema, partition_by: Sequence[PartitionField], read_footer: Callable[[str], pq.FileMetaData]
    ) -> WriteReport:
        """Report the files that Spark has committed, made durable; other files in the folder are deleted.

        Call it after Spark's write has ended, and before anything else writes into the folder.

        Args:
            schema: columns of the rows.
            partition_by: partitioning that Spark was given.
            read_footer: reads a file's metadata.

        Raises:
            InvariantError: a file does not lie in the folders of its partition.
            StoreUnavailableError: the store failed.
        """
        listed = self.markers.retry.call(partial(self.markers.store.list, self.path, recursive=True))
        sizes = {info.path: info.size for info in listed if self._is_committed(info.path)}
        footers = dict(zip(sizes, map_concurrently(read_footer, list(sizes), READ_AT_ONCE), strict=True))
        table = partitioned_schema(schema, partition_by)
        files = [
            self._written(path, sizes[path], footer, table, partition_by)
            for path, footer in footers.items()
            if footer.num_rows  # Spark writes one file without rows if there are no rows at all
        ]
        self.remove(keep=[file.path for file in files])
        self._make_durable([file.path for file in files])
        return WriteReport(sum(file.rows for file in files), sum(file.size for file in files), tuple(files))

    def _is_committed(self, path: str) -> bool:
        names = path[len(self.path) + 1 :].split("/")
        return names[-1].endswith(".parquet") and not any(name.startswith(("_temporary", ".")) for name in names)

    def _written(
        self, path: str, size: int, footer: pq.FileMetaData, table: pa.Schema, partition_by: Sequence[PartitionField]
    ) -> WrittenFile:
        from sinks.parquet.stats import file_statistics

        folders = path[len(self.path) + 1 :].split("/")[:-1]
        columns = [by.column for by in partition_by]
        if [folder.partition("=")[0] for folder in folders] != [escaped_by_spark(name) for name in columns]:
            raise InvariantError(f"{path}: expected a folder for each of ({', '.join(columns)})")
        partition = {
            name: _partition_value(folder.partition("=")[2], table.field(name).type)
            for name, folder in zip(columns, folders, strict=True)
        }
        # Spark leaves partition columns out of its files.
        held = pa.schema([field for field in table if field.name not in partition])
        return WrittenFile(path, size, footer.num_rows, partition, file_statistics(footer, held))

    def _make_durable(self, paths: Sequence[str]) -> None:
        """Flush files that Spark has left in a file system's cache; in other stores they are durable."""
        folders = {os.path.dirname(path) for path in paths}
        above = {self.path, ""} if paths else set()
        self.markers.store.make_durable([*paths, *sorted(folders | above, key=len, reverse=True)])


def abort(markers: Markers, epoch: EpochRef, part: Part | None) -> Sequence[str]:
    """See `Markers.abort`; an announced folder is deleted with all its files."""
    gone = markers.abort(epoch, part)
    folder = SparkFolder(markers, epoch.instant)
    if folder.announcement not in gone:
        return gone
    return sorted({*without_folders(gone), folder.path, *folder.remove()})


def release(markers: Markers, epoch: EpochRef, part: Part | None, *, final: bool) -> None:
    """See `Markers.release`; also deletes late files of a folder, and its marker."""
    folder = SparkFolder(markers, epoch.instant)
    is_closed = part is not None and bool(part.detail.get(CLOSED_DETAIL))
    if (part is None or FOLDER_DETAIL in part.detail) and not is_closed:
        folder.remove(keep=[file.path for file in part.files] if part is not None else ())
    markers.release(epoch, part, final=final)
    if is_closed:
        folder.forget()


def escaped_by_spark(name: str) -> str:
    """A column's name as Spark writes it into a folder's name: `ExternalCatalogUtils.escapePathName`."""
    return "".join(f"%{ord(each):02X}" if each in ESCAPED_BY_SPARK else each for each in name)


ESCAPED_BY_SPARK = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 0x20)}


def _partition_value(segment: str, kind: pa.DataType) -> str | None:
    """A folder's value as Delta's log writes it (section "Partition Value Serialization")."""
    if segment == NULL_SEGMENT:
        return None
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), segment)
    if pa.types.is_decimal(kind):
        try:
            return f"{Decimal(text):f}"
        except InvalidOperation as error:
            raise InvariantError(f"partition value {text!r} is no {kind}") from error
    return text
