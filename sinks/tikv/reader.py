"""Rows of a TiKV target in one snapshot, read by the public tikv-client.

The reader shares only the row layout with the writer, so it returns the rows that any other client
sees. tikv-client cannot read keys that an open epoch has locked; the snapshot is then one from before
the epoch, which cannot change any more.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import closing
from typing import Protocol

import pyarrow as pa
from tikv_client.asynchronous import TransactionClient

from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.settling import locks_in
from sinks.tikv.table import TikvTable
from timeline.errors import ConfigError, FormatError, StoreUnavailableError, TidelineError

_FIRST_PAGE = 64
_LARGEST_PAGE = 1024
_GROWTH = 4
_PAGE_BYTES = 2 << 20
"""Rows in an answer, if they are as large as the previous ones: tikv-client accepts answers of 4 MiB."""

_TOO_LARGE = re.compile("message length too large|message larger than max")
"""Error texts for an answer that is too large for tikv-client (4 MiB), and for TiKV (10 MiB)."""

_LETTING_GO_S = 0.1
"""Time for tikv-client's threads to release the interpreter after their last answer. If the process exits while a
thread holds the interpreter, it dies of a signal: of 150 processes six did, of 300 that waited none."""


def read_rows(table: TikvTable, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows in key order, in batches; all from one snapshot, taken when the first batch is requested.

    Args:
        table: the target.
        limit: largest number of rows; None: all.

    Raises:
        ConfigError: the cluster uses TLS, which this reader does not support.
        FormatError: a row is larger than tikv-client reads; Tideline writes no such row.
        StoreUnavailableError: the rows could not be read.
    """
    if table.endpoint.tls is not None:
        raise ConfigError(f"{table.target}: rows are read by tikv-client, and that does not speak TLS")
    # One event loop for all pages: the client's connections belong to it. Not asyncio.Runner, which unsets the event
    # loop that the caller's thread may have.
    with closing(asyncio.new_event_loop()) as loop:
        pages = _pages_of(table, snapshot_before_open_epochs(table), limit)
        try:
            while True:
                try:
                    page = loop.run_until_complete(_next(pages))
                except TidelineError:
                    raise
                except Exception as error:  # every error of tikv-client is a plain Exception
                    raise StoreUnavailableError(
                        f"{table.target}: cannot be read: {error}; a writer's transaction may be open there: try again"
                    ) from error
                if page is None:
                    return
                yield table.stager.restore(page)
        finally:
            loop.run_until_complete(pages.aclose())
            time.sleep(_LETTING_GO_S)


async def _next(pages: AsyncIterator[pa.Table]) -> pa.Table | None:
    return await anext(pages, None)


def snapshot_before_open_epochs(table: TikvTable) -> int:
    """The latest timestamp at which no open transaction of any job blocks reads below the target's prefix."""
    now = table.client.pd.timestamp()
    # The range holds the primary of each epoch, which is locked before any of the epoch's rows.
    return min([now, *(lock.lock_version - 1 for lock in locks_in(table.client, *own_range(table.prefix)))])


class KeyScanner(Protocol):
    """The scan of tikv-client's snapshot; its error for an answer that is too large matches `_TOO_LARGE`."""

    async def scan(
        self, start: bytes, end: bytes, limit: int, include_start: bool, include_end: bool
    ) -> Sequence[tuple[bytes, bytes]]:
        """Keys and values in a range, in key order.

        Args:
            start: lower bound.
            end: upper bound.
            limit: largest number of pairs.
            include_start: whether `start` is in the range.
            include_end: whether `end` is in the range.
        """


async def _pages_of(table: TikvTable, version: int, limit: int | None) -> AsyncGenerator[pa.Table, None]:
    client = await TransactionClient.connect(list(table.endpoint.pd))
    async for page in pages(client.snapshot(version, False), *row_range(table.prefix), limit=limit):
        yield page


async def pages(
    snapshot: KeyScanner, start: bytes, end: bytes, *, limit: int | None = None
) -> AsyncGenerator[pa.Table, None]:
    """Keys and values of a range in key order, in tables of as many rows as fit into an answer.

    An answer that is too large costs tikv-client seconds of retries. So a page has as many rows as would fit if all
    were as large as the largest row of the previous page, and pages grow again only behind the rows of an answer that
    was too large.

    Args:
        snapshot: the snapshot.
        start: first key.
        end: end key, exclusive.
        limit: largest number of rows; None: all.

    Raises:
        FormatError: a single row is too large.
        Exception: any error of tikv-client.
    """
    left, page, held = limit, _FIRST_PAGE, 0
    while left is None or left > 0:
        most = page if left is None else min(page, left)
        try:
            pairs = await snapshot.scan(start, end, most, True, False)
        except Exception as error:  # every error of tikv-client is a plain Exception
            if not _TOO_LARGE.search(str(error)):
                raise
            if most == 1:
                raise FormatError(
                    f"the first row from key 0x{start.hex()} on is larger than tikv-client reads (4 MiB), and was "
                    "written by another program or an older Tideline: read it by a client that takes larger answers, "
                    "or delete it"
                ) from error
            page, held = max(1, most // _GROWTH), most
            continue
        if not pairs:
            return
        keys, values = zip(*pairs, strict=True)
        yield pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        if len(pairs) < most:
            return
        left = None if left is None else left - len(pairs)
        start = keys[-1] + b"\0"
        held -= len(pairs)
        largest = max(len(key) + len(value) for key, value in pairs)
        page = max(1, min(_LARGEST_PAGE, page if held > 0 else _GROWTH * page, _PAGE_BYTES // largest))
