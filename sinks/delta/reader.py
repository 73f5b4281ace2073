"""Reads rows of one version of a Delta table in a task, by delta-rs.

Tasks of every job import this module, but few read a table: delta-rs is imported by the first read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from sinks.delta.location import trusting
from sinks.parquet.markers import is_of_another
from timeline.errors import StoreUnavailableError

if TYPE_CHECKING:
    # Both take a tenth of a second at every start of the command line; datasets import pandas.
    import pyarrow.compute as pc
    import pyarrow.dataset as ds


@dataclass(frozen=True)
class DeltaRows:
    """A table to read. See `sinks.reading.SnapshotRows`.

    Attributes:
        location: the table's place as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: certificate file that its clients trust, see `trusting`.
        app_id: key of the job's marker in the table: rows in data files of other jobs and timelines are left out. None:
            all rows.
    """

    location: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorities: str | None = None
    app_id: str | None = None

    def newest(self) -> int | None:
        """The newest version; None if there is no table.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        from sinks.delta.table import is_missing, open_table

        try:
            return open_table(self.location, self.storage_options, self.authorities).version()
        except StoreUnavailableError as error:
            if is_missing(error):
                return None
            raise

    def read(self, version: int, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        """Rows of one version, in no particular order.

        Args:
            version: the version to read.
            columns: names of the columns to read, in order.
            where: filter of the rows.

        Raises:
            StoreUnavailableError: the version no longer exists, or cannot be read.
        """
        from deltalake.exceptions import DeltaError

        from sinks.delta.table import open_table

        table = open_table(self.location, self.storage_options, self.authorities, version)
        with trusting(self.authorities):
            dataset = self._own(table.to_pyarrow_dataset())
        # The process's environment is not locked while a reader waits: clients keep their trust.
        try:
            yield from dataset.to_batches(columns=list(columns), filter=where)
        except (DeltaError, OSError, pa.ArrowInvalid) as error:
            raise StoreUnavailableError(f"{self.location}: version {version} cannot be read: {error}") from error

    def _own(self, dataset: ds.FileSystemDataset) -> ds.Dataset:
        if self.app_id is None:
            return dataset
        import pyarrow.dataset as ds

        own = [file for file in dataset.get_fragments() if not is_of_another(file.path, self.app_id)]
        return ds.FileSystemDataset(own, dataset.schema, dataset.format, dataset.filesystem)
