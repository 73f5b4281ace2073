"""Rows of a TiKV target as a reader of its own sees them: one snapshot, by the public tikv-client.

Nothing of the writer is used but the row layout, so what it shows is what any other client sees. While
an epoch is open, that client can read nothing that the epoch has locked; the snapshot is then one from
before the epoch, which nothing can change any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import closing

import pyarrow as pa
from tikv_client.asynchronous import TransactionClient

from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.place import TikvPlace
from sinks.tikv.settling import locks_in
from timeline.errors import ConfigError, StoreUnavailableError

_PAGE = 1024

_LETTING_GO_S = 0.1
"""What tikv-client's threads have after their last answer to let go of the interpreter. Where its end finds one of them
at it, the process dies of a signal: of 150 processes six did, of 300 that waited none."""


def read_rows(place: TikvPlace, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows in the order of their keys, in batches; all from one snapshot, taken when the first is asked for.

    Args:
        place: the target.
        limit: at most so many rows; None: all.

    Raises:
        ConfigError: the cluster speaks TLS, which tikv-client does not.
        StoreUnavailableError: it could not be read.
    """
    if place.endpoint.tls is not None:
        raise ConfigError(f"{place.target}: rows are read by tikv-client, and that does not speak TLS")
    # One loop for all pages: the client's connections belong to it. Not asyncio.Runner, which takes the loop away that
    # the caller's thread may have.
    with closing(asyncio.new_event_loop()) as loop:
        pages = _pages(place, snapshot_before_open_epochs(place), limit)
        try:
            while True:
                try:
                    page = loop.run_until_complete(_next(pages))
                except Exception as error:  # every error of tikv-client is a plain Exception
                    raise StoreUnavailableError(
                        f"{place.target}: cannot be read: {error}; a writer's transaction may be open there: try again"
                    ) from error
                if page is None:
                    return
                yield place.stager.restore(page)
        finally:
            loop.run_until_complete(pages.aclose())
            time.sleep(_LETTING_GO_S)


async def _next(pages: AsyncIterator[pa.Table]) -> pa.Table | None:
    return await anext(pages, None)


def snapshot_before_open_epochs(place: TikvPlace) -> int:
    """The latest timestamp at which no open transaction of any job is in the way below the target's prefix."""
    now = place.client.pd.timestamp()
    # An epoch's primary is in here, and is locked before any of its rows.
    return min([now, *(lock.lock_version - 1 for lock in locks_in(place.client, *own_range(place.prefix)))])


async def _pages(place: TikvPlace, version: int, limit: int | None) -> AsyncGenerator[pa.Table, None]:
    client = await TransactionClient.connect(list(place.endpoint.pd))
    snapshot = client.snapshot(version, False)
    start, end = row_range(place.prefix)
    left, page = limit, _PAGE
    while left is None or left > 0:
        most = page if left is None else min(page, left)
        try:
            pairs = await snapshot.scan(start, end, most, True, False)
        except Exception as error:  # see read_rows
            # tikv-client takes answers of 4 MiB; how large rows are shows when they come.
            if most == 1 or "message length too large" not in str(error):
                raise
            page = most // 2
            continue
        if not pairs:
            return
        keys, values = zip(*pairs, strict=True)
        yield pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        if len(pairs) < most:
            return
        left = None if left is None else left - len(pairs)
        start = keys[-1] + b"\0"
