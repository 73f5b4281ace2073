"""The screen of `tideline watch`: one frame of a job, at any size of the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from ingest.reports.instants import InstantView
from ingest.reports.watch_screen import frame_json, watch_screen
from ingest.reports.watching import Frame, LagReport, Writer, rate_of
from ingest.sources.base import Unit
from ingest.sources.lag import Lag
from timeline.history.rows import EpochRow, as_json
from timeline.lease import LeaseState

NOW = datetime(2026, 3, 1, 10, 15, 30, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def committed(epoch: int, age_s: float) -> EpochRow:
    return EpochRow(
        *(epoch, "20260301101500000", "committed", "commit"),
        requested=ago(age_s + 2),
        completed=ago(age_s),
        rows=1000,
        rejected=3,
        files=2,
        bytes=4_000_000,
    )


EPOCHS = (
    *(committed(epoch, 100 - 10 * epoch) for epoch in range(8)),
    EpochRow(8, "20260301101520000", "rolled back", "rollback", requested=ago(18), completed=ago(17)),
    EpochRow(9, "20260301101526000", "pending", requested=ago(4)),
)
WRITER = Writer(3, "process 4711 on web-1", "clicks", LeaseState.LIVE, True, False, 1.2, 30.0)
LAG = LagReport(
    NOW, Unit.RECORDS, Lag(Unit.RECORDS, 1_234_567, 2, {"clicks/0": 34_567, "clicks/7": 1_200_000}), shards=12
)
NOTHING = Lag(Unit.BYTES, 0, 0)
FRAME = Frame(
    NOW,
    "clicks",
    "s3://lake/timelines/clicks",
    NOW,
    None,
    12,
    EPOCHS,
    (
        InstantView(
            *("20260301101526000", "commit", "inflight", 9),
            requested=ago(4),
            note="by process 4711 on web-1, generation 3",
        ),
    ),
    (
        InstantView(
            *("20260301101513000", "rollback", "completed", 8, "rollback"),
            requested=ago(17),
            note="not prepared: instant 20260301101512000, by process 4700 on web-1",
        ),
    ),
    rate_of(EPOCHS),
    WRITER,
    LAG,
)


def lines_of(frame: Frame, width: int = 120, height: int = 0) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(watch_screen(frame, width, height), highlight=False)
    return captured.get().splitlines()


def test_everything_is_on_one_screen() -> None:
    lines = [line.rstrip() for line in lines_of(FRAME)]
    assert lines[0].startswith("clicks · s3://lake/timelines/clicks")
    assert lines[0].endswith("2026-03-01 10:15:30 UTC")
    assert lines[1:6] == [
        "writer   alive: process 4711 on web-1, generation 3, heartbeat 1.2 s ago",
        "rate     last commit 30.0 s ago; 111 rows/s, 444.4 kB/s written over 8 epochs in 1 min 12 s",
        "lag      1,234,567 records in 2 of 12 shards; most: clicks/7 1,200,000 records, clicks/0 34,567 records",
        "pending  1 instant",
        "  20260301101526000 commit epoch 9 inflight for 4.0 s: by process 4711 on web-1, generation 3",
    ]
    assert lines[7].split() == ["epoch", "state", "rows", "rejected", "files", "size", "s", "rows/s", "age"]
    assert lines[8].split() == ["9", "writing", "4.0", "s"]
    assert lines[9].split()[:3] == ["8", "rolled", "back"]
    assert lines[10].split() == ["7", "committed", "1,000", "3", "2", "4.0", "MB", "2.0", "500", "30.0", "s"]
    assert lines[-1] == "  epoch 8, 17.0 s ago: not prepared: instant 20260301101512000, by process 4700 on web-1"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("height", [16, 24, 50])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    lines = lines_of(FRAME, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert any(line.split()[:2] == ["9", "writing"] for line in lines), "the newest epoch is always there"


@pytest.mark.parametrize(
    ("writer", "words"),
    [
        (None, "none yet"),
        (WRITER, "alive: process 4711 on web-1, generation 3, heartbeat 1.2 s ago"),
        (
            replace(WRITER, has_beaten=False),
            "not known to be dead: process 4711 on web-1, generation 3, silent for 1.2 s, counts as dead after 30.0 s",
        ),
        (replace(WRITER, lease=LeaseState.EXPIRED), "DEAD: process 4711 on web-1, generation 3; run or recover"),
        (replace(WRITER, lease=LeaseState.EXPIRED, is_released=True), "not running: ended by itself (process 4711"),
    ],
)
def test_whether_the_writer_lives_is_said_as_far_as_it_is_known(writer: Writer | None, words: str) -> None:
    assert lines_of(replace(FRAME, writer=writer), 160)[1].startswith(f"writer   {words}")


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (None, "asking the source …"),
        (LagReport(NOW, Unit.BYTES, NOTHING, 5), "nothing behind, 5 shards"),
        (LagReport(ago(95), Unit.BYTES, NOTHING, 5), "1 min 35 s ago: nothing behind, 5 shards"),
        (LagReport(NOW, Unit.BYTES, NOTHING, 5, 2), "2 LOST RECORDS, see tideline offsets; nothing behind"),
        (
            LagReport(NOW, Unit.RECORDS, unknown="brokers b:9092 do not answer"),
            "not known: brokers b:9092 do not answer",
        ),
    ],
)
def test_lag_that_is_not_known_is_never_shown_as_none(lag: LagReport | None, words: str) -> None:
    assert lines_of(replace(FRAME, lag=lag))[3].startswith(f"lag      {words}")


def test_storage_that_does_not_answer_is_told_above_what_was_last_seen() -> None:
    lines = lines_of(replace(FRAME, seen_at=ago(75), problem="s3://lake: the connection was refused"))
    assert lines[1] == "STORAGE DOES NOT ANSWER. Last answer: 1 min 15 s ago (shown below)"
    assert lines[2] == "s3://lake: the connection was refused"
    assert lines[3].startswith("writer   ")
    assert any(line.split()[:2] == ["7", "committed"] for line in lines)
    never = lines_of(Frame(NOW, "clicks", "s3://lake", problem="refused"))
    assert never[1] == "STORAGE DOES NOT ANSWER. Last answer: never yet"


def test_a_job_that_has_not_begun_is_a_picture_too() -> None:
    lines = lines_of(Frame(NOW, "clicks", "s3://lake", NOW))
    assert "rate     nothing committed yet" in lines
    assert "pending  nothing" in lines
    assert "no epochs yet" in lines
    assert "no rollbacks" in lines


def test_json_has_what_the_picture_shows() -> None:
    found = json.loads(json.dumps(frame_json(FRAME), default=as_json))
    assert found["at"] == "2026-03-01T10:15:30.000Z"
    assert found["writer"]["lease"] == "live"
    assert found["lag"]["unit"] == "records"
    assert found["lag"]["most"][0] == {"shard": "clicks/7", "units": 1_200_000}
    assert found["lag"]["waits"] == []
    assert [epoch["state"] for epoch in found["epochs"]][-2:] == ["rolled back", "pending"]
    assert found["rate"]["epochs"] == 8


def test_the_rate_counts_the_time_between_epochs_too() -> None:
    rate = rate_of([committed(0, 100), committed(1, 10)])
    assert rate is not None
    assert (rate.epochs, rate.over_s) == (2, 92.0)
    assert rate.rows_per_s == pytest.approx(2000 / 92)
    assert rate_of([EPOCHS[-1]]) is None


def test_what_waits_and_does_not_count_yet_is_told_by_shard() -> None:
    frame = replace(FRAME, lag=replace(LAG, waits=(("a.log", "a last line without its end counts in 8 s"),)))
    assert lines_of(frame, 120)[4] == "         a.log: a last line without its end counts in 8 s"
    found = json.loads(json.dumps(frame_json(frame), default=as_json))
    assert found["lag"]["waits"][0]["shard"] == "a.log"
