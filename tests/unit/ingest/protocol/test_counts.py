"""An epoch whose rows do not add up is refused before it is prepared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ingest.execution.task import TaskReport, assign, merge_counts
from ingest.protocol.counts import TargetRows, check_counts, check_part, left_out, rows_by_target, rows_read
from ingest.sources.base import SplitSize
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, Plan, ShardCount, WriteReport
from timeline.errors import InvariantError, RowCountError

PLAN = Plan(
    EpochRef(0, "20260101000000000", 1),
    "numbers",
    "me",
    (OffsetRange("a", 0, 10), OffsetRange("b", 0, 5)),
    ("table", "quarantine"),
    {"number": "bigint"},
    "token",
)
GOOD = [ShardCount("a", 10, 9, 1), ShardCount("b", 5, 5, 0)]


def check(counts: Sequence[ShardCount], table: int | WriteReport, quarantine: int) -> None:
    written = table if isinstance(table, WriteReport) else WriteReport(table, 0)
    check_counts(PLAN, "quarantine", counts, {"table": [written], "quarantine": [WriteReport(quarantine, 0)]})


def test_rows_that_add_up_pass() -> None:
    check(GOOD, 14, 1)


def test_a_row_that_is_neither_accepted_nor_rejected_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match="shard a: 10 rows read, 8 accepted \\+ 1 rejected"):
        check([ShardCount("a", 10, 8, 1), GOOD[1]], 13, 1)


def test_two_shards_that_make_up_for_each_other_stop_the_epoch() -> None:
    with pytest.raises(RowCountError, match="shard a"):
        check([ShardCount("a", 10, 10, 1), ShardCount("b", 5, 4, 0)], 14, 1)


def test_a_target_with_fewer_rows_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match=r"target table took 13 written .* = 13 rows, expected 14"):
        check(GOOD, 13, 1)


def test_a_quarantine_without_the_rejected_rows_stops_the_epoch() -> None:
    with pytest.raises(RowCountError, match=r"target quarantine took 0 written .* expected 1 rejected by the decoder"):
        check(GOOD, 14, 0)


def test_rows_that_a_target_dropped_or_rejected_are_still_accounted_for() -> None:
    check(GOOD, WriteReport(9, 0, dropped=3, rejected=2), 1 + 2)


@pytest.mark.parametrize("report", [WriteReport(9, 0, dropped=4), WriteReport(13, 0, rejected=2)])
def test_a_dropped_or_rejected_row_too_many_stops_the_epoch(report: WriteReport) -> None:
    with pytest.raises(RowCountError, match=f"target table .* = {report.rows + report.dropped + report.rejected} rows"):
        check(GOOD, report, 1 + report.rejected)


@pytest.mark.parametrize("quarantined", [1, 2, 4])
def test_rows_that_a_target_rejected_have_to_be_in_the_quarantine(quarantined: int) -> None:
    with pytest.raises(RowCountError, match="expected 1 rejected by the decoder \\+ 2 rejected by table"):
        check(GOOD, WriteReport(12, 0, rejected=2), quarantined)


def test_each_target_rejects_for_itself() -> None:
    reports = {
        "table": [WriteReport(14, 0)],
        "keyed": [WriteReport(5, 0, dropped=1), WriteReport(6, 0, rejected=2)],
        "quarantine": [WriteReport(1, 0), WriteReport(2, 0)],
    }
    check_counts(PLAN, "quarantine", GOOD, reports)


def test_a_quarantine_neither_drops_nor_rejects() -> None:
    reports = {"table": [WriteReport(14, 0)], "quarantine": [WriteReport(0, 0, dropped=1)]}
    with pytest.raises(RowCountError, match="target quarantine took 0 written \\+ 1 dropped"):
        check_counts(PLAN, "quarantine", GOOD, reports)


@pytest.mark.parametrize("part", [(13, 0, 0), (14, 1, 0), (14, 0, 1)])
def test_a_part_holds_what_was_written_for_it(part: tuple[int, int, int]) -> None:
    rows, dropped, rejected = part
    with pytest.raises(RowCountError, match="target table took 14 written"):
        check_part(
            "table",
            PLAN.ref,
            Part("table", PLAN.ref, rows, 0, dropped=dropped, rejected=rejected),
            [WriteReport(14, 0)],
        )


def test_what_is_shown_of_an_epoch_adds_up() -> None:
    keyed = Part("keyed", PLAN.ref, 11, 0, dropped=1, rejected=2)
    manifest = Manifest(PLAN.ref, tuple(GOOD), (Part("table", PLAN.ref, 14, 0), keyed, Part("bad", PLAN.ref, 3, 0)))
    assert rows_read(manifest) == 15
    assert (manifest.rows, manifest.rejected) == (14, 3)
    assert rows_by_target(manifest) == {"keyed": TargetRows(11, 1, 2)}
    assert rows_by_target(manifest)["keyed"].given == manifest.rows
    assert left_out(rows_by_target(manifest)) == "; keyed: 11 written + 1 dropped + 2 rejected"
    assert left_out({"table": TargetRows(14)}) == ""


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
        tasks = assign(ranges, split, slots, SplitSize(smallest=100, largest=50_000, overhead=4096))
        pieces = [piece for task in tasks for piece in task]
        for offsets in ranges:
            mine = sorted((p.start, p.until) for p in pieces if p.shard == offsets.shard)
            assert mine[0][0] == 0
            assert mine[-1][1] == offsets.until
            assert all(a[1] == b[0] for a, b in itertools.pairwise(mine))
        sizes = [sum(piece.until - piece.start for piece in task) for task in tasks]
        assert max(sizes) <= 2 * min(sizes) + 50_000


@pytest.mark.parametrize("part", [Part("other", PLAN.ref, 1, 0), Part("table", replace(PLAN.ref, epoch=9), 1, 0)])
def test_a_part_of_another_target_or_epoch_is_refused_before_the_decision(part: Part) -> None:
    with pytest.raises(InvariantError, match="the sink of target table prepared a part of target"):
        check_part("table", PLAN.ref, part, [WriteReport(1, 0)])
