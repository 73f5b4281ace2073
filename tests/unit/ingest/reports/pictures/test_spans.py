"""Values that pictures show, before anything is drawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ingest.reports.pictures.gaps import Squeezed
from ingest.reports.pictures.lag import shard_lags
from ingest.reports.pictures.palette import SpanPhase
from ingest.reports.pictures.recovery import rescues
from ingest.reports.pictures.sizes import begin_of, class_of, file_sizes
from ingest.reports.pictures.spans import InstantOutcome, bars, newest
from ingest.reports.pictures.throughput import rates
from tests.unit.ingest.reports import made_histories as made
from timeline.formatting import count, duration, shard_name, shortened, size
from timeline.history.entry import Entry
from timeline.history.epochs import History

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


def of(*entries: Entry) -> History:
    return History(entries)


def test_a_commit_is_its_three_states_one_after_the_other() -> None:
    (bar,) = bars(of(made.committed(0, made.START_MS)))
    assert [span.phase for span in bar.spans] == [SpanPhase.WRITE, SpanPhase.DECIDE, SpanPhase.APPLY]
    assert [(span.end - span.start).total_seconds() for span in bar.spans if span.end] == [1.5, 0.2, 0.4]
    assert bar.start == NINE
    assert bar.fate is InstantOutcome.COMMITTED
    assert not bar.note


def test_phases_never_go_backwards_where_two_clocks_disagree() -> None:
    ahead = made.committed(0, made.START_MS, pace=made.Pace(write_ms=1500, decide_ms=-700, apply_ms=200))
    (bar,) = bars(of(ahead))
    moments = [moment for span in bar.spans for moment in (span.start, span.end) if moment is not None]
    assert moments == sorted(moments)
    assert bar.end == NINE + timedelta(seconds=1)


def test_a_rollback_reaches_from_the_request_of_what_went_to_its_own_end() -> None:
    (bar,) = bars(of(made.rolled_back(3, made.START_MS, after_ms=3000)))
    assert bar.fate is InstantOutcome.ROLLED_BACK
    assert bar.start == NINE
    assert bar.seconds == pytest.approx(3.06)
    assert bar.label == "epoch 3"
    assert bar.note == "rolled back: not prepared"


@pytest.mark.parametrize(
    ("entry", "phases", "note"),
    [
        (made.pending(0, made.START_MS), [SpanPhase.OPEN], "pending, not prepared"),
        (made.pending(0, made.START_MS, is_prepared=True), [SpanPhase.WRITE, SpanPhase.OPEN], "pending, prepared"),
        (
            made.pending(0, made.START_MS, is_prepared=True, is_decided=True),
            [SpanPhase.WRITE, SpanPhase.DECIDE, SpanPhase.OPEN],
            "pending, decided: commit",
        ),
    ],
)
def test_what_is_pending_has_no_end(entry: Entry, phases: list[SpanPhase], note: str) -> None:
    (bar,) = bars(of(entry))
    assert [span.phase for span in bar.spans] == phases
    assert bar.end is None
    assert bar.seconds is None
    assert bar.note == note


def test_pending_ones_are_kept_before_rollbacks_and_those_before_the_newest() -> None:
    entries = [*made.steady(50), made.pending(50, made.START_MS + 1)]
    entries += [made.rolled_back(100 + at, made.START_MS + 10 + at) for at in range(30)]
    kept = newest(bars(of(*entries)), 9)
    assert len(kept) == 9
    assert sum(bar.fate is InstantOutcome.PENDING for bar in kept) == 1
    assert sum(bar.fate is InstantOutcome.ROLLED_BACK for bar in kept) == 3
    assert {bar.label for bar in kept if bar.fate is InstantOutcome.COMMITTED} == {
        f"epoch {number}" for number in range(45, 50)
    }
    assert [bar.start for bar in kept] == sorted(bar.start for bar in kept)


def test_long_gaps_take_the_same_little_room_and_order_stays() -> None:
    moments = [NINE + timedelta(seconds=at) for at in (0, 1, 2, 100_000, 100_001, 300_000, 300_002)]
    time = Squeezed.of(moments)
    assert [gap.seconds for gap in time.gaps] == [99_998, 199_999]
    positions = [time.at(moment) for moment in moments]
    assert positions == sorted(positions)
    assert time.at(moments[3]) - time.at(moments[2]) == pytest.approx(time.gap_s)
    assert time.at(moments[4]) - time.at(moments[3]) == pytest.approx(1)
    assert time.length_s < 10
    inside = time.at(NINE + timedelta(seconds=50_000))
    assert time.at(moments[2]) < inside < time.at(moments[3])


@pytest.mark.parametrize("seconds", [[0], [0, 5], [0, 1, 2, 3], [0, 0, 10, 14, 20]])
def test_a_timeline_without_long_gaps_is_drawn_as_it_is(seconds: list[int]) -> None:
    moments = [NINE + timedelta(seconds=at) for at in seconds]
    time = Squeezed.of(moments)
    assert not time.gaps
    assert [time.at(moment) for moment in moments] == seconds


def test_the_rate_of_an_epoch_is_over_its_whole_time() -> None:
    (rate,) = rates(of(made.committed(0, made.START_MS), made.rolled_back(1, made.START_MS + 3000)))
    assert rate.rows_per_s == pytest.approx(100 / 2.1)
    assert rate.bytes_per_s == pytest.approx(5_000_000 / 2.1)


def test_only_committed_files_are_counted() -> None:
    history = of(made.committed(0, made.START_MS), made.pending(1, made.START_MS + 1, is_prepared=True))
    assert file_sizes(history) == {"lake": [5_000_000]}


@pytest.mark.parametrize(
    ("size_bytes", "begin"), [(0, 1), (1, 1), (2, 2), (4, 2), (5, 5), (9, 5), (10, 10), (999, 500), (1000, 1000)]
)
def test_a_file_is_in_the_class_that_begins_at_or_below_its_size(size_bytes: int, begin: int) -> None:
    assert begin_of(class_of(size_bytes)) == begin


def test_lag_is_from_what_is_committed_to_the_newest_offset() -> None:
    history = of(*made.steady(3, shards=2), made.pending(3, made.START_MS + 9000))
    first, second, new = shard_lags(history, {"events-0": 300, "events-1": 350, "new": 5}, {"events-0": 300})
    assert (first.name, first.lag, first.stands_at) == ("events-1", 50, 300)
    assert (second.name, second.lag) == ("new", 5)
    assert (new.name, new.lag, new.planned) == ("events-0", 0, 400)


def test_where_a_shard_stands_is_known_beyond_the_history() -> None:
    (old, young) = shard_lags(of(made.committed(9, made.START_MS)), {"events-0": 1000, "old": 70}, {"old": 30})
    assert (old.name, old.lag) == ("old", 40)
    assert (young.name, young.lag) == ("events-0", 0)


def test_without_newest_offsets_no_lag_is_claimed() -> None:
    (only,) = shard_lags(of(made.committed(0, made.START_MS)))
    assert only.lag is None


def test_an_epoch_is_rescued_where_another_process_decided_it() -> None:
    undone, finished = rescues(made.eventful())
    assert (undone.epoch, undone.is_committed, undone.by, undone.reason) == (5, False, made.RESCUER, "not prepared")
    assert (finished.epoch, finished.is_committed, finished.by) == (6, True, made.RESCUER)
    assert finished.after_s == pytest.approx(4.4)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.16, "160 ms"),
        (0.9999, "1.0 s"),
        (4.24, "4.2 s"),
        (59.99, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7440, "2 h 4 min"),
        (86_400 * 2 + 3600 * 4, "2 d 4 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_numbers_and_texts_that_have_to_fit() -> None:
    assert (count(1, "file"), count(1200, "file")) == ("1 file", "1,200 files")
    assert (size(0), size(999), size(1500), size(2.5e9), size(7e13)) == ("0 B", "999 B", "1.5 kB", "2.5 GB", "70.0 TB")
    assert shortened("a\n b" + "c" * 99, 5) == "a bc…"
    assert shard_name("x" * 99 + "end", 5) == "…xend"
