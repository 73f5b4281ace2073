"""Rows of any size within the client's limit are read, in order, in answers within the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from sinks.tikv.reader import pages
from sinks.tikv.staged import MAX_ROW_BYTES
from timeline.errors import FormatError

CLIENT_BYTES = 4 << 20
STORE_BYTES = 10 << 20
BESIDE_A_ROW = 30


@dataclass
class Snapshot:
    """Rows of given sizes, with the message limits of tikv-client and of TiKV.

    Attributes:
        sizes: bytes of each row, key and value together; a row's key is its number.
        asked: row limit of each scan.
        refused: number of scans whose answer was larger than a message may be.
        broken: error message of every scan; None: no error.
    """

    sizes: Sequence[int]
    asked: list[int] = field(default_factory=list)
    refused: int = 0
    broken: str | None = None

    async def scan(
        self, start: bytes, end: bytes, limit: int, include_start: bool, include_end: bool
    ) -> Sequence[tuple[bytes, bytes]]:
        if self.broken:
            raise Exception(self.broken)
        self.asked.append(limit)
        keys = [key for key, _ in rows(self) if start <= key < end][:limit]
        found = sum(self.sizes[int(key)] + BESIDE_A_ROW for key in keys)
        if found > CLIENT_BYTES:
            self.refused += 1
            if found > STORE_BYTES:
                raise Exception(f"ResourceExhausted: Sent message larger than max ({found} vs. {STORE_BYTES})")
            raise Exception(f"Error, message length too large: found {found} bytes, the limit is: {CLIENT_BYTES} bytes")
        return [(key, b"x" * (self.sizes[int(key)] - len(key))) for key in keys]


def read(snapshot: Snapshot, limit: int | None = None) -> list[tuple[bytes, int]]:
    """Key and size in bytes of each row that is read."""

    async def collect() -> list[tuple[bytes, int]]:
        rows: list[tuple[bytes, int]] = []
        async for page in pages(snapshot, b"0", b"~", limit=limit):
            keys, values = (page.column(name).to_pylist() for name in ("key", "value"))
            rows += [(key, len(key) + len(value)) for key, value in zip(keys, values, strict=True)]
        return rows

    # asyncio.run would leave this thread without an event loop, which tikv-client needs in later tests.
    with closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(collect())


def rows(snapshot: Snapshot) -> list[tuple[bytes, int]]:
    return [(b"%06d" % number, size) for number, size in enumerate(snapshot.sizes)]


MIB = 1 << 20
SIZES: dict[str, list[int]] = {
    "none": [],
    "one of the largest": [MAX_ROW_BYTES],
    "many of the largest": [MAX_ROW_BYTES] * 20,
    "many of a mebibyte": [MIB] * 100,
    "small, then large, then small": [100] * 3000 + [3 * MIB] * 10 + [100] * 3000,
    "a large one among many small": ([200] * 40 + [3 * MIB]) * 20,
    "large ones by turns": [MAX_ROW_BYTES, 100] * 20,
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_rows_of_all_sizes_up_to_the_limit_are_read_in_order(sizes: list[int]) -> None:
    snapshot = Snapshot(sizes)
    assert read(snapshot) == rows(snapshot)


def test_few_answers_are_too_large_and_pages_grow_again_behind_large_rows() -> None:
    """Each answer that is too large costs tikv-client two seconds."""
    snapshot = Snapshot(SIZES["small, then large, then small"])
    assert read(snapshot) == rows(snapshot)
    assert snapshot.refused <= 5
    assert snapshot.asked.count(1024) >= 2, "before and behind the large rows"
    assert len(snapshot.asked) < 40


@pytest.mark.parametrize("limit", [0, 1, 63, 64, 65, 500])
def test_no_more_rows_are_read_than_are_wanted(limit: int) -> None:
    snapshot = Snapshot([100] * 300 + [3 * MIB] * 2)
    assert read(snapshot, limit) == rows(snapshot)[:limit]


def test_row_that_is_too_large_alone_is_named_by_the_key_before_it() -> None:
    snapshot = Snapshot([100, 5 * MIB, 100])
    with pytest.raises(FormatError, match=f"from key 0x{b'000000'.hex()}00 on is larger than tikv-client reads"):
        read(snapshot)


def test_other_errors_of_the_client_are_not_taken_for_a_large_answer() -> None:
    with pytest.raises(Exception, match="Failed to resolve lock"):
        read(Snapshot([100], broken="Failed to resolve lock"))
