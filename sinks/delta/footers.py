"""Footers of Parquet files that others have written, read without the rest of the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from sinks.delta.location import delta_location, delta_storage_options, trusted_authorities
from sinks.delta.table import table_files
from timeline.errors import StoreUnavailableError


def footer_reader(path: str, storage: Mapping[str, Any]) -> Callable[[str], pq.FileMetaData]:
    """A thread-safe reader of metadata of files, by their paths below a table's folder.

    The reader raises StoreUnavailableError if a file is missing or is not Parquet.

    Args:
        path: the table's folder in the job file.
        storage: the job's storage options.

    Raises:
        ConfigError: a Delta table cannot lie there.
        StoreUnavailableError: no client can be created for the folder.
    """
    location = delta_location(path)
    files = table_files(location, delta_storage_options(location, storage), trusted_authorities(location, storage))

    def read(name: str) -> pq.FileMetaData:
        try:
            with files.open_input_file(name) as file:
                return pq.read_metadata(file)
        except (OSError, pa.ArrowException, DeltaError) as error:
            raise StoreUnavailableError(f"{location}/{name}: its footer cannot be read: {error}") from error

    return read
