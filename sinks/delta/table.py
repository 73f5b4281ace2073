"""The one place that opens Delta tables by delta-rs, and that translates its errors.

Every failure is a StoreUnavailableError: delta-rs's error of a failed put does not tell whether the put landed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from sinks.delta.location import trusting
from timeline.errors import StoreUnavailableError
from timeline.stores.refusals import refusal, store_error

if TYPE_CHECKING:
    import pyarrow.fs as pafs


def open_table(
    location: str, storage_options: Mapping[str, str], authorities: str | None, version: int | None = None
) -> DeltaTable:
    """A table as delta-rs sees it.

    Args:
        location: the table's place as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: certificate file that its clients trust, see `trusting`.
        version: the version to open; None for the newest.

    Raises:
        StoreUnavailableError: the table cannot be opened; `is_missing` tells whether it does not exist.
    """
    with foreign_errors(location), trusting(authorities):
        return DeltaTable(location, version=version, storage_options=dict(storage_options) or None)


def table_files(location: str, storage_options: Mapping[str, str], authorities: str | None) -> pafs.FileSystem:
    """A table's folder as a thread-safe pyarrow file system that reads parts of files.

    Args:
        location: the table's place as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: certificate file that its clients trust, see `trusting`.

    Raises:
        StoreUnavailableError: no client can be created.
    """
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if not location.startswith("s3://"):
        return pafs.SubTreeFileSystem(location, pafs.LocalFileSystem())
    with foreign_errors(location), trusting(authorities):
        return pafs.PyFileSystem(DeltaStorageHandler(location, options=dict(storage_options)))


def is_missing(error: StoreUnavailableError) -> bool:
    """Whether a table could not be opened because delta-rs finds no table."""
    return isinstance(error.__cause__, TableNotFoundError)


@contextmanager
def foreign_errors(location: str) -> Iterator[None]:
    """Translate errors of delta-rs into StoreUnavailableError."""
    try:
        yield
    except (DeltaError, OSError) as error:
        said = _reason(error)
        raise refusal(location, "", said) or store_error(location, error, said) from error


def _reason(error: Exception) -> str:
    """The first line of delta-rs's message, and the system's error below it; the rest may quote a whole response."""
    first, _, rest = str(error).partition("\n")
    found = re.search(r"[A-Z][\w ,'-]+ \(os error \d+\)", rest)
    return f"{first.rstrip()}: {found[0]}" if found else first
