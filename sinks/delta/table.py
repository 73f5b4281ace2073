"""Delta tables as delta-rs opens them: the one place that does, and that reads its errors.

Every failure is one error, StoreUnavailableError: what delta-rs says about a put that did not return
says too little to tell whether it landed.
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
        location: as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: whom its clients trust, see `trusting`.
        version: which one; None for the newest.

    Raises:
        StoreUnavailableError: it cannot be opened; `is_missing` tells whether that is for there being none.
    """
    with foreign_errors(location), trusting(authorities):
        return DeltaTable(location, version=version, storage_options=dict(storage_options) or None)


def table_files(location: str, storage_options: Mapping[str, str], authorities: str | None) -> pafs.FileSystem:
    """A table's folder as pyarrow reads parts of files in it; may be used by several threads.

    Args:
        location: as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: whom its clients trust, see `trusting`.

    Raises:
        StoreUnavailableError: no client can be made of this.
    """
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if not location.startswith("s3://"):
        return pafs.SubTreeFileSystem(location, pafs.LocalFileSystem())
    with foreign_errors(location), trusting(authorities):
        return pafs.PyFileSystem(DeltaStorageHandler(location, options=dict(storage_options)))


def is_missing(error: StoreUnavailableError) -> bool:
    """Whether a table could not be opened because delta-rs finds none."""
    return isinstance(error.__cause__, TableNotFoundError)


@contextmanager
def foreign_errors(location: str) -> Iterator[None]:
    """Turn whatever delta-rs raises into the one error that is known here."""
    try:
        yield
    except (DeltaError, OSError) as error:
        said = _reason(error)
        raise refusal(location, "", said) or store_error(location, error, said) from error


def _reason(error: Exception) -> str:
    """The first line of what delta-rs says, and the system's error below it; the rest may quote a whole answer."""
    first, _, rest = str(error).partition("\n")
    found = re.search(r"[A-Z][\w ,'-]+ \(os error \d+\)", rest)
    return f"{first.rstrip()}: {found[0]}" if found else first
