"""Mutations have the bytes of protobuf's own encoding, and their slices keep to regions and sizes."""

from __future__ import annotations

import mmap

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.mutations import Mutations, mutation

KEYS = st.binary(min_size=1, max_size=200)
VALUES = st.none() | st.binary(max_size=300) | st.integers(120, 40_000).map(lambda size: b"v" * size)
ROWS = st.dictionaries(KEYS, VALUES, max_size=30).map(lambda rows: dict(sorted(rows.items())))


def made(rows: dict[bytes, bytes | None], *, inserts: bool = False) -> Mutations:
    return Mutations.of(pa.array(list(rows), pa.binary()), pa.array(list(rows.values()), pa.binary()), inserts=inserts)


def by_protobuf(rows: dict[bytes, bytes | None], *, inserts: bool = False) -> bytes:
    put = pb.Op.Insert if inserts else pb.Op.Put
    mutations = [
        pb.Mutation(op=pb.Op.Del, key=key) if value is None else pb.Mutation(op=put, key=key, value=value)
        for key, value in rows.items()
    ]
    return pb.PrewriteRequest(mutations=mutations).SerializeToString()


@given(ROWS, st.booleans())
def test_mutations_are_read_as_protobuf_would_have_written_them(rows: dict[bytes, bytes | None], inserts: bool) -> None:
    read = pb.PrewriteRequest.FromString(bytes(made(rows, inserts=inserts).body))
    assert read.SerializeToString() == by_protobuf(rows, inserts=inserts)


@given(ROWS.filter(lambda rows: b"" not in rows.values()), st.booleans())
def test_mutations_with_values_are_byte_for_byte_those_of_protobuf(
    rows: dict[bytes, bytes | None], inserts: bool
) -> None:
    assert bytes(made(rows, inserts=inserts).body) == by_protobuf(rows, inserts=inserts)


@given(ROWS, st.data())
def test_slices_hold_what_they_name(rows: dict[bytes, bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    inner = data.draw(st.integers(0, end - start))
    part = made(rows)[start:end][inner:]
    expected = dict(list(rows.items())[start + inner : end])
    assert pb.PrewriteRequest.FromString(bytes(part.body)).SerializeToString() == by_protobuf(expected)
    assert part.keys.to_pylist() == list(expected)


@given(ROWS, st.sets(KEYS, max_size=5), st.data())
def test_keys_can_be_taken_out(rows: dict[bytes, bytes | None], others: set[bytes], data: st.DataObject) -> None:
    gone = others | (data.draw(st.sets(st.sampled_from(list(rows)))) if rows else set())
    left = made(rows).without(pa.array(sorted(gone), pa.binary()))
    assert bytes(left.body) == bytes(made({key: value for key, value in rows.items() if key not in gone}).body)


@given(ROWS.filter(bool), st.binary(max_size=3), st.integers(1, 40), st.integers(1, 100_000), st.data())
def test_head_is_the_longest_that_fits(
    rows: dict[bytes, bytes | None], before: bytes, most_rows: int, most_bytes: int, data: st.DataObject
) -> None:
    skipped = data.draw(st.integers(0, len(rows) - 1))
    left = made(rows)[skipped:]
    count = left.head(before, most_rows, most_bytes)

    def fits(number: int) -> bool:
        keys = left.keys.to_pylist()[:number]
        is_inside = not before or all(key < before for key in keys)
        return is_inside and number <= most_rows and len(left[:number].body) <= most_bytes

    assert 1 <= count <= len(left)
    # At least one row is sent, however large it is, and wherever its region ends.
    assert count == 1 or fits(count)
    assert count == len(left) or not fits(count + 1)


def test_head_counts_from_the_slice_on_even_at_the_end_of_a_large_buffer() -> None:
    last = (1 << 31) - 1
    ends = np.array([last - 30, last - 20, last - 10, last], np.int32)
    # 2 GiB of zeros that take no memory, because they are never read.
    with mmap.mmap(-1, last) as zeros:
        frames = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(ends), pa.py_buffer(zeros)])
        count = Mutations(pa.array([b"a", b"b", b"c"], pa.binary()), frames).head(b"", 4096, 1 << 20)
        del frames
    assert count == 3


def test_no_rows_are_no_bytes() -> None:
    assert len(made({})) == 0
    assert bytes(made({}).body) == b""


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_lengths_at_the_borders_of_their_encoding(size: int) -> None:
    read = pb.PrewriteRequest.FromString(bytes(mutation(b"key", b"v" * size).body))
    assert [(each.key, len(each.value)) for each in read.mutations] == [(b"key", size)]
