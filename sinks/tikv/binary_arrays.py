"""Conversion between Arrow's binary arrays and numpy bytes, without a loop over rows.

A binary array is one buffer of bytes and the offsets at which its values begin and end (Arrow Columnar Format,
"Variable-size Binary Layout"). Everything here is index arithmetic on the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Booleans = npt.NDArray[np.bool_]

WORD = 8
EMPTY = pa.scalar(b"", pa.binary())

# _KEEP[n] has the first n bytes of a little-endian word set.
_KEEP = np.array([(1 << (8 * kept)) - 1 for kept in range(WORD + 1)], dtype=np.uint64)


@dataclass(frozen=True)
class Values:
    """The values of a binary array without nulls: value ``i`` is ``data[starts[i]:ends[i]]``.

    Attributes:
        data: the bytes of all values, followed by at least `WORD` more so that a word can be read anywhere.
        starts: index of each value's first byte.
        ends: index behind each value's last byte.
    """

    data: Bytes
    starts: Ints
    ends: Ints

    @property
    def lengths(self) -> Ints:
        """Bytes of each value."""
        return self.ends - self.starts

    def words(self, places: Ints, kept: Ints | None = None) -> Words:
        """Eight bytes from each place, as little-endian words; with `kept`, bytes beyond that number are zero."""
        everywhere: Words = np.ndarray(
            (max(0, self.data.size - WORD + 1),), dtype="<u8", buffer=self.data.data, strides=(1,)
        )
        found = everywhere[places].astype(np.uint64, copy=False)
        return found if kept is None else found & _KEEP[kept]


def values_of(array: pa.Array) -> Values:
    """A binary or text array as bytes with starts and ends; nulls count as empty."""
    plain = as_binary(array)
    offsets = offsets_of(plain)
    start, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros(end - start + WORD, dtype=np.uint8)
    if end > start:
        data[: end - start] = np.frombuffer(plain.buffers()[2], dtype=np.uint8, count=end - start, offset=start)
    offsets = offsets - start
    return Values(data, offsets[:-1], offsets[1:])


def as_binary(array: pa.Array) -> pa.Array:
    """The array as plain `binary` with nulls replaced by empty values; not copied where nothing changes."""
    plain = array if pa.types.is_binary(array.type) else array.cast(pa.binary())
    return plain.fill_null(b"") if plain.null_count else plain


def offsets_of(array: pa.Array) -> Ints:
    """The ``len(array) + 1`` offsets of a binary array's values in its data buffer."""
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    found = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    return found.astype(np.int64)


def binary_array(data: Bytes, ends: Ints) -> pa.Array:
    """A binary array of consecutive values; `ends` counts from the first byte of `data`.

    Raises:
        pyarrow.ArrowInvalid: the values are more than 2 GiB, which 32-bit offsets cannot address.
    """
    total = int(ends[-1]) if len(ends) else 0
    if total > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{total} bytes in one binary array; at most 2 GiB are allowed: use smaller batches")
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed_rows(matrix: Bytes) -> pa.Array:
    """A binary array with one value for each row of a matrix of bytes."""
    rows, width = matrix.shape
    return binary_array(np.ascontiguousarray(matrix).reshape(-1), np.arange(1, rows + 1, dtype=np.int64) * width)


def pieces(data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The values ``data[starts[i]:ends[i]]`` as a binary array, copied by Arrow and not by index.

    Pieces and the gaps between them together are a binary array already, of which `take` keeps every second value.

    Args:
        data: bytes that hold the pieces.
        starts: index of each piece's first byte.
        ends: index behind each piece's last byte; pieces must not overlap: ``ends[i] <= starts[i + 1]``.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return both.take(pa.array(np.arange(count, dtype=np.int64) * 2))


def matrix_at(data: Bytes, starts: Ints, width: int) -> Bytes:
    """A matrix with `width` bytes from each start, one row each.

    Args:
        data: the bytes.
        starts: index of each row's first byte, at least `width` apart.
        width: bytes of a row.
    """
    if width == 0 or len(starts) == 0:
        return np.zeros((len(starts), width), dtype=np.uint8)
    gathered = pieces(data, starts, starts + width)
    return np.frombuffer(gathered.buffers()[2], dtype=np.uint8, count=len(starts) * width).reshape(-1, width)


def booleans(flags: Booleans) -> pa.Array:
    """A numpy mask as an Arrow array."""
    return pa.array(flags, pa.bool_())


def mask_of(flags: pa.Array) -> Booleans:
    """An Arrow array of booleans as a numpy mask; null is false."""
    filled = flags.fill_null(False) if flags.null_count else flags
    mask: Booleans = filled.to_numpy(zero_copy_only=False)
    return mask
