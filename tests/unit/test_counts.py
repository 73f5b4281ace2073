"""An epoch whose rows do not add up is refused before it is prepared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from ingest.check_store.numbers import IDENTITY
from ingest.protocol import check_counts
from ingest.sources.base import Grain
from ingest.task import TaskReport, assign, merge_counts
from tests.explore.protocol_world import make_job
from timeline.epoch import EpochRef, OffsetRange, Plan, ShardCount, WriteReport
from timeline.errors import RowCountError
from timeline.store import MemoryStore

PLAN = Plan(
    EpochRef(0, "20260101000000000", 1),
    "numbers",
    "me",
    (OffsetRange("a", 0, 10), OffsetRange("b", 0, 5)),
    ("table", "quarantine"),
    IDENTITY.schema,
    "token",
)
GOOD = [ShardCount("a", 10, 9, 1), ShardCount("b", 5, 5, 0)]


def check(counts: Sequence[ShardCount], table: int, quarantine: int) -> None:
    reports = {"table": [WriteReport(table, 0)], "quarantine": [WriteReport(quarantine, 0)]}
    check_counts(make_job(MemoryStore(), "me", 0), PLAN, counts, reports)


def test_rows_that_add_up_pass() -> None:
    check(GOOD, 14, 1)


def test_a_row_that_is_neither_accepted_nor_rejected_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match="shard a: 10 rows read, 8 accepted \\+ 1 rejected"):
        check([ShardCount("a", 10, 8, 1), GOOD[1]], 13, 1)


def test_two_shards_that_make_up_for_each_other_stop_the_epoch() -> None:
    with pytest.raises(RowCountError, match="shard a"):
        check([ShardCount("a", 10, 10, 1), ShardCount("b", 5, 4, 0)], 14, 1)


def test_a_target_with_fewer_rows_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match="target table wrote 13 rows, expected 14"):
        check(GOOD, 13, 1)


def test_a_quarantine_without_the_rejected_rows_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match="target quarantine wrote 0 rows, expected 1"):
        check(GOOD, 14, 0)


def test_a_shard_that_no_task_counted_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match="planned shards"):
        check(GOOD[:1], 9, 1)


def test_counts_of_the_pieces_of_a_range_are_added_up() -> None:
    reports = [TaskReport((ShardCount("a", 4, 3, 1),), {}), TaskReport((ShardCount("a", 6, 6, 0), GOOD[1]), {})]
    assert merge_counts(reports) == GOOD


def test_every_piece_goes_to_exactly_one_task() -> None:
    ranges = [OffsetRange(f"s{number}", 0, number * 1_000) for number in range(1, 60)]

    def split(offsets: OffsetRange, most: int) -> list[OffsetRange]:
        cuts = [*range(offsets.start, offsets.until, most), offsets.until]
        return [OffsetRange(offsets.shard, a, b) for a, b in itertools.pairwise(cuts)]

    for slots in (1, 2, 7):
        tasks = assign(ranges, split, slots, Grain(smallest=100, largest=50_000, overhead=4096))
        pieces = [piece for task in tasks for piece in task]
        for offsets in ranges:
            mine = sorted((p.start, p.until) for p in pieces if p.shard == offsets.shard)
            assert mine[0][0] == 0
            assert mine[-1][1] == offsets.until
            assert all(a[1] == b[0] for a, b in itertools.pairwise(mine))
        sizes = [sum(piece.until - piece.start for piece in task) for task in tasks]
        assert max(sizes) <= 2 * min(sizes) + 50_000
