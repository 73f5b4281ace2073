"""The page of `tideline offsets`: every number whole at any width, and shards with problems first."""

from __future__ import annotations

import pytest
from rich.console import Console

from ingest.reports.offsets import JobOffsets, KnownHole, ShardOffsets, ShardState, shard_state
from ingest.reports.offsets_text import offsets_page
from ingest.sources.base import ShardEnd, Unit
from timeline.epoch import Position
from timeline.holes import Hole

HOLE = Hole(100, 150, "deleted by retention")
OFFSETS = JobOffsets(
    Unit.RECORDS,
    [
        ShardOffsets("a-topic-with-a-very-long-name-indeed/0", ShardState.CURRENT, 1_234_567_890, 1_234_567_890, 0, 7),
        ShardOffsets("a-topic-with-a-very-long-name-indeed/1", ShardState.BEHIND, 100, 120, 20, 6),
        ShardOffsets("a-topic-with-a-very-long-name-indeed/2", ShardState.BEHIND, 100, 1_100, 1_000, None),
        ShardOffsets("a-topic-with-a-very-long-name-indeed/3", ShardState.LOST, 100, 160, 10, 5, HOLE),
        ShardOffsets("gone/0", ShardState.GONE, 9, None, 0, 1, None, (KnownHole(1, HOLE),)),
    ],
    next_epoch=8,
    looked_from=1,
)


def lines_of(offsets: JobOffsets, width: int, limit: int = 0) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(offsets_page(offsets, limit=limit, width=width), highlight=False)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [70, 80, 120])
def test_long_names_give_way_and_numbers_never(width: int) -> None:
    lines = lines_of(OFFSETS, width)
    assert max(map(len, lines)) <= width
    assert lines[1].split() == ["shard", "state", "committed", "newest", "lag", "epoch"]
    assert lines[5].split()[1:] == ["current", "1,234,567,890", "1,234,567,890", "0", "7"]
    assert lines[5].split()[0].endswith("-indeed/0")


def test_what_needs_a_look_comes_first() -> None:
    lines = lines_of(OFFSETS, 120)
    assert lines[0] == "5 shards · 1,030 records behind · 1 lost · 1 gone"
    assert [line.split()[1] for line in lines[2:7]] == ["lost", "behind", "behind", "current", "gone"]
    assert lines[3].split()[0].endswith("/2"), "of those behind the one that is furthest"
    assert lines[7] == "no epoch: moved before epoch 1 (--epochs 0 looks at all)"
    assert "/3: not read and gone: [100, 150): deleted by retention. tideline run stops there" in " ".join(lines[8:])
    assert lines[-1] == "gone/0: epoch 1 went on behind a loss: [100, 150): deleted by retention"
    assert "4 more shards not shown (--limit 0 shows all)" in lines_of(OFFSETS, 120, 1)


@pytest.mark.parametrize(
    ("committed", "end", "state"),
    [
        (None, ShardEnd(0, 5, 5), ShardState.NEW),
        (None, ShardEnd(5, 5, 0), ShardState.NEW),
        (5, ShardEnd(5, 5, 0), ShardState.CURRENT),
        (5, ShardEnd(5, 9, 4), ShardState.BEHIND),
        (5, ShardEnd(5, None, 0), ShardState.GONE),
        (5, ShardEnd(5, None, 0, HOLE), ShardState.LOST),
        (5, ShardEnd(5, 9, 1, HOLE), ShardState.LOST),
        (5, ShardEnd(5, 3, 0), ShardState.LOST),
        (5, None, ShardState.UNKNOWN),
        (None, None, ShardState.UNKNOWN),
    ],
)
def test_the_state_of_a_shard(committed: int | None, end: ShardEnd | None, state: ShardState) -> None:
    assert shard_state(Position(committed) if committed is not None else None, end) is state
