"""Rows for the TiKV benchmark: 200 bytes each as a value, made in the tasks, keys scattered over their whole range.

Before a row is staged, only its key has a cost; the other columns are made once in each process. So the figures are
those of the target, not of a source or a decoder.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.sources.base import Block, Decoded
from sinks.base import REJECTED_SCHEMA
from timeline.epoch import OffsetRange

BLOCK_ROWS = 25_000
VALUE_BYTES = 200

_MESSAGE_BYTES = 153
"""`VALUE_BYTES` less the other columns and the value's own header."""

_SCATTER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that multiplication by it modulo 2^64 maps different numbers to different ones: all keys are unique."""

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_REJECTED = pa.RecordBatch.from_pylist([], REJECTED_SCHEMA)

KEY_TYPES: dict[str, pa.DataType] = {"bigint": pa.int64(), "string": pa.string()}


def schema(key: str) -> pa.Schema:
    """Columns of the rows.

    Args:
        key: the key column's type, one of `KEY_TYPES`.
    """
    return pa.schema([("id", KEY_TYPES[key]), *_others().schema])


def rows(key: str, start: int, until: int) -> pa.RecordBatch:
    """A block of rows, the same on every call.

    Args:
        key: the key column's type, one of `KEY_TYPES`.
        start: number of the first row.
        until: number behind the last row, at most `start` + `BLOCK_ROWS`.
    """
    ids = np.arange(start, until, dtype=np.uint64) * _SCATTER
    column = pa.array(ids.view(np.int64)) if key == "bigint" else _as_text(ids)
    return pa.RecordBatch.from_arrays([column, *_others().slice(0, until - start).columns], schema=schema(key))


def _as_text(ids: npt.NDArray[np.uint64]) -> pa.Array:
    """``user-`` and 16 hexadecimal digits."""
    data = np.empty((len(ids), 21), np.uint8)
    data[:, :5] = np.frombuffer(b"user-", np.uint8)
    digits = ids.astype(">u8").view(np.uint8).reshape(-1, 8)
    data[:, 5::2], data[:, 6::2] = _HEX[digits >> 4], _HEX[digits & 15]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * data.shape[1]
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@functools.lru_cache(maxsize=1)
def _others() -> pa.RecordBatch:
    """A block of all columns but the key; with random letters, so that it compresses no better than a log would."""
    random = np.random.default_rng(1)
    letters = random.integers(97, 123, BLOCK_ROWS * _MESSAGE_BYTES, np.uint8)
    offsets = np.arange(BLOCK_ROWS + 1, dtype=np.int32) * _MESSAGE_BYTES
    message = pa.Array.from_buffers(pa.string(), BLOCK_ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    hosts = pa.array([f"10.20.{number // 256:03}.{number % 256:03}" for number in range(1000)])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(1_700_000_000_000_000 + np.arange(BLOCK_ROWS) * 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(random.choice(np.array([200, 301, 404, 500], np.int16), BLOCK_ROWS)),
            pa.array(random.integers(0, 1 << 20, BLOCK_ROWS)),
            hosts.take(pa.array(random.integers(0, len(hosts), BLOCK_ROWS))),
            message,
        ],
        names=["ts", "status", "bytes", "host", "message"],
    )


@dataclass(frozen=True)
class MadeRows:
    """Reader and decoder of generated rows; offsets count rows.

    Attributes:
        key: the key column's type.
    """

    key: str

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader."""
        for start in range(offsets.start, offsets.until, BLOCK_ROWS):
            made = rows(self.key, start, min(start + BLOCK_ROWS, offsets.until))
            yield Block(offsets.shard, start, made.num_rows, made)

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        assert isinstance(block.data, pa.RecordBatch)
        return Decoded(block.data, pa.array(np.arange(block.start, block.start + block.rows)), _REJECTED)
