"""Mutations of a transaction as bytes of prewrite requests: encoded for a whole bucket at once, sent in slices.

A request is its head (context, primary, timestamps) followed by its mutations, and protobuf accepts
fields in any order. So the mutations of consecutive keys are one slice of one buffer, and no Python
object is created per row.

::

    mutations field   0x12 length { [0x08 op] 0x12 length key [0x1a length value] }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.tikv import tikv_pb2 as pb

_MUTATIONS = bytes([pb.PrewriteRequest.MUTATIONS_FIELD_NUMBER << 3 | 2])
_OP = bytes([pb.Mutation.OP_FIELD_NUMBER << 3])
_KEY = bytes([pb.Mutation.KEY_FIELD_NUMBER << 3 | 2])
_VALUE = bytes([pb.Mutation.VALUE_FIELD_NUMBER << 3 | 2])


@dataclass(frozen=True)
class Mutations:
    """Mutations of distinct keys in ascending order.

    Attributes:
        keys: binary.
        frames: binary, each mutation as a field of a prewrite request.
    """

    keys: pa.BinaryArray
    frames: pa.BinaryArray

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray, *, inserts: bool) -> Self:
        """Put keys that have a value, delete keys whose value is null.

        Args:
            keys: ascending and unique.
            values: one per key; null deletes the key.
            inserts: refuse keys that exist.
        """
        put = pb.Op.Insert if inserts else pb.Op.Put
        # Op.Put is 0, which protobuf leaves out.
        put_head = _OP + bytes([put]) if put else b""
        deleted = values.is_null()
        key_sizes, value_sizes = _sizes(keys), _sizes(values)
        parts: list[pa.Array | pa.Scalar] = [
            pc.if_else(deleted, pa.scalar(_OP + bytes([pb.Op.Del])), pa.scalar(put_head)),
            pa.scalar(_KEY),
            _varints(key_sizes),
            keys,
            pc.if_else(deleted, pa.scalar(b""), pa.scalar(_VALUE)),
            pc.if_else(deleted, pa.scalar(b""), _varints(value_sizes)),
            pc.fill_null(values, b""),
        ]
        bodies = pc.binary_join_element_wise(*parts, b"")
        return cls(keys, pc.binary_join_element_wise(pa.scalar(_MUTATIONS), _varints(_sizes(bodies)), bodies, b""))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, span: slice) -> Mutations:
        """A slice of the mutations, without a copy."""
        start, end, _ = span.indices(len(self))
        return Mutations(self.keys.slice(start, end - start), self.frames.slice(start, end - start))

    def without(self, keys: pa.Array) -> Mutations:
        """The mutations of all other keys."""
        stay = pc.invert(pc.is_in(self.keys, value_set=keys))
        return Mutations(self.keys.filter(stay), self.frames.filter(stay))

    @property
    def first_key(self) -> bytes:
        """The smallest key."""
        return _bytes(self.keys[0])

    @property
    def last_key(self) -> bytes:
        """The largest key."""
        return _bytes(self.keys[-1])

    @property
    def body(self) -> memoryview:
        """All frames, one after another."""
        offsets = _offsets(self.frames)
        data = self.frames.buffers()[2]
        return memoryview(data)[offsets[0] : offsets[-1]] if data is not None else memoryview(b"")

    def head(self, before: bytes, most_rows: int, most_bytes: int) -> int:
        """Number of leading mutations that fit into one request, at least 1.

        Args:
            before: end key (exclusive) of the region; empty: unbounded.
            most_rows: largest request, in rows.
            most_bytes: largest request, in bytes.
        """
        offsets = _offsets(self.frames)
        count = min(len(self), most_rows, int(np.searchsorted(offsets, int(offsets[0]) + most_bytes, "right")) - 1)
        if before:
            low, high = 0, max(1, count)
            while low < high:
                middle = (low + high) // 2
                if _bytes(self.keys[middle]) < before:
                    low = middle + 1
                else:
                    high = middle
            count = min(count, low)
        return max(1, count)


def mutation(key: bytes, value: bytes) -> Mutations:
    """A put of one key."""
    return Mutations.of(pa.array([key], pa.binary()), pa.array([value], pa.binary()), inserts=False)


def _bytes(scalar: pa.Scalar) -> bytes:
    value = scalar.as_py()
    assert isinstance(value, bytes)
    return value


def _offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    offsets: npt.NDArray[np.int32] = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _sizes(array: pa.BinaryArray) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)


def _varints(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Numbers as protobuf varints; few are distinct, so each distinct one is encoded once."""
    different, which = np.unique(numbers, return_inverse=True)
    return pa.array([_varint(int(number)) for number in different], pa.binary()).take(pa.array(which))


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
