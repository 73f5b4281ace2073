"""Content of the report page, without a browser."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from ingest.protocol.recovery import StepKind
from ingest.reports.offsets import JobOffsets, ShardState
from ingest.reports.report import (
    JobReport,
    Level,
    Notice,
    findings,
    lagging,
    level_of,
    newest_offsets,
    rejected_by_reason,
    situation,
)
from ingest.reports.report_page import page
from ingest.sources.base import Unit
from ingest.sources.quarantine import QUARANTINE_SHARD
from tests.unit.ingest.reports import made_histories as made
from tests.unit.ingest.reports.made_reports import AT, pending, report, shard
from tests.unit.ingest.reports.pictures.test_pictures import many
from tests.unit.timeline.well_formed import elements
from timeline.epoch import OffsetRange, ShardCount
from timeline.history.entry import Entry
from timeline.instant import Action, Instant, State
from timeline.lease import LeaseState

HOSTILE = """<script>alert(1)</script> "double" 'single' & </style></title>"""


def level(of: JobReport) -> Level:
    return level_of(findings(of))


def said(of: JobReport) -> str:
    return " ".join(finding.words for finding in findings(of))


def test_all_is_well_where_nothing_is_open_and_the_last_epoch_is_committed() -> None:
    well = report(*made.steady(3), made.rolled_back(3, made.START_MS + 9000), made.committed(4, made.START_MS + 20_000))
    assert findings(well) == []
    assert level(well) is Level.WELL
    assert situation(well).startswith("Epoch 4 is the last one that every target has, completed 2 min 38 s before")


def test_an_instant_that_nobody_finishes_has_to_be_recovered() -> None:
    left = report(*made.steady(3), found=(pending(StepKind.CLAIM_COMMIT),), released=False)
    assert level(left) is Level.ACT
    assert "tideline recover job.yaml" in said(left)


def test_an_instant_that_its_writer_is_at_is_in_order_until_it_is_open_for_long() -> None:
    open_now = made.pending(3, made.START_MS + 170_000)
    step = (pending(StepKind.WAIT),)
    young = report(*made.steady(3), open_now, found=step, lease=LeaseState.LIVE, released=False)
    assert level(young) is Level.WELL
    assert "its writer may be alive" in situation(young)
    old = report(
        *made.steady(3), open_now, found=step, lease=LeaseState.LIVE, released=False, at=AT + timedelta(hours=2)
    )
    assert level(old) is Level.LOOK
    assert f"! {level(old).value.capitalize()}" in page(old), "as the command says"
    assert "open for 2 h" in said(old)


@pytest.mark.parametrize(
    ("kind", "words"), [(StepKind.HALT, "mend the store"), (StepKind.REPLAY, "tideline run job.yaml")]
)
def test_what_recovery_cannot_do_alone_is_said_whoever_is_alive(kind: StepKind, words: str) -> None:
    stuck = report(*made.steady(3), found=(pending(kind),), lease=LeaseState.LIVE)
    assert level(stuck) is Level.ACT
    assert words in said(stuck)


def test_rollbacks_at_the_end_are_said_and_three_of_them_call_for_someone() -> None:
    ends = [made.rolled_back(3 + at, made.START_MS + 20_000 + at * 5000, reason="disk full") for at in range(3)]
    assert level(report(*made.steady(3), ends[0])) is Level.LOOK
    assert level(report(*made.steady(3), *ends)) is Level.ACT
    assert "The last 3 epochs were rolled back (disk full)" in said(report(*made.steady(3), *ends))


def test_an_open_rollback_has_to_be_finished() -> None:
    undone = made.rolled_back(3, made.START_MS + 20_000)
    open_one = replace(undone, instant=Instant(undone.instant.time, Action.ROLLBACK, State.REQUESTED), completed=None)
    assert "A rollback is not at its end" in said(report(*made.steady(3), open_one))


def test_lost_records_and_a_silent_source_are_said() -> None:
    lost = report(*made.steady(3), shards=(shard("events-9", 5, state=ShardState.LOST),))
    assert level(lost) is Level.ACT
    assert "events-9" in said(lost)
    silent = report(*made.steady(3), offsets=JobOffsets(Unit.RECORDS, (), 3, unknown="no broker", is_silent=True))
    assert level(silent) is Level.LOOK
    assert "no broker" in said(silent)


def test_records_that_wait_while_nobody_writes_are_said_after_some_minutes() -> None:
    behind = (shard("events-0", 70), shard("events-1", 0))
    assert findings(report(*made.steady(3), shards=behind)) == []
    late = report(*made.steady(3), shards=behind, at=AT + timedelta(hours=1))
    assert level(late) is Level.LOOK
    assert "70 records in 1 of 2 shards wait, and no writer is running. Run: tideline run job.yaml" in said(late)
    at_work = report(*made.steady(3), shards=behind, at=AT + timedelta(hours=1), lease=LeaseState.LIVE)
    assert findings(at_work) == []
    assert "70 records in 1 of 2 shards wait to be read" in situation(at_work)


def test_many_rejected_rows_are_said_and_few_are_not() -> None:
    assert findings(report(made.committed(0, made.START_MS, rejected=10))) == []
    assert "11 of 100 records were rejected (11%)" in said(report(made.committed(0, made.START_MS, rejected=11)))


def test_what_could_not_be_looked_at_is_said() -> None:
    partly = report(*made.steady(1), unknown=("the lake: no answer",), unreadable=("strange.file",))
    assert level(partly) is Level.LOOK
    shown = page(partly)
    assert "the lake: no answer" in shown
    assert "strange.file is no instant that is known" in shown


def test_a_job_that_has_not_begun_has_a_page() -> None:
    shown = page(report(shards=(), lease=LeaseState.NONE))
    assert "has not begun" in shown
    assert "No epoch has been committed yet" in shown
    elements(shown)


def test_the_most_urgent_comes_first() -> None:
    both = report(*made.steady(3), found=(pending(StepKind.HALT),), unreadable=("x",))
    assert [finding.level for finding in findings(both)] == [Level.ACT, Level.LOOK]


def test_lags_of_the_picture_are_those_of_the_table() -> None:
    rows = (shard("a", 7), shard("gone", 0, state=ShardState.GONE), shard("b", 0))
    newest, stands = newest_offsets(JobOffsets(Unit.RECORDS, rows, 3))
    assert newest is not None
    assert {name: newest[name] - stands[name] for name in newest} == {"a": 7, "gone": 0, "b": 0}
    assert newest_offsets(JobOffsets(None, rows, 3, unknown="why"))[0] is None
    assert [row.shard for row in lagging(JobOffsets(Unit.RECORDS, rows, 3))] == ["a", "gone", "b"]


def test_reasons_are_added_up_over_committed_epochs() -> None:
    open_one = made.pending(3, made.START_MS + 15_000, is_prepared=True)
    assert open_one.plan is not None
    undecided = replace(open_one, manifest=made.manifest(open_one.plan, rejected=50))
    entries = [
        made.committed(0, made.START_MS, rejected=3, shards=2),
        made.committed(1, made.START_MS + 5000, rejected=9, why_rejected="id: not bigint"),
        made.rolled_back(2, made.START_MS + 9000),
        # Its rejected rows count once it is committed: a rollback would delete them.
        undecided,
    ]
    assert rejected_by_reason(report(*entries).history) == [
        ("id: not bigint", 9, "events-0"),
        ("malformed JSON", 6, "events-1"),
    ]


def test_the_page_is_well_formed_needs_no_script_and_names_no_other_place() -> None:
    shown = page(report(*made.eventful().entries, found=(pending(StepKind.WAIT),)))
    assert shown.startswith("<!DOCTYPE html>")
    names = elements(shown)
    assert names.count("img") == 5
    assert not {"script", "link", "iframe", "object"} & set(names)
    without_pictures = re.sub(r'src="data:image/svg\+xml;base64,[^"]+"', "", shown)
    assert "http" not in without_pictures.replace("http-equiv", "")
    assert "url(" not in without_pictures
    for data in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', shown):
        drawn = base64.b64decode(data).decode()
        assert "<script" not in drawn
        # Names of XML namespaces are never fetched; nothing else is referenced.
        assert not re.findall(r'href="(?!#)', drawn)


def test_texts_from_storage_are_escaped_everywhere() -> None:
    entries = (
        made.committed(0, made.START_MS, rejected=5, why_rejected=HOSTILE, by=HOSTILE, reason=HOSTILE),
        made.rolled_back(1, made.START_MS + 3000, reason=HOSTILE),
    )
    shown = page(
        report(
            *entries,
            shards=(shard(HOSTILE, 7, note=HOSTILE),),
            found=(pending(StepKind.HALT, HOSTILE),),
            unknown=(HOSTILE,),
            unreadable=(HOSTILE,),
            job=HOSTILE,
        )
    )
    assert "script" not in elements(shown)
    assert shown.count("&lt;script&gt;") > 10


def test_a_page_of_10_000_epochs_stays_small() -> None:
    shards = tuple(shard(f"events-{number}", number) for number in range(1000))
    shown = page(report(*many().entries, shards=shards))
    assert len(shown.encode()) < 3_000_000
    assert "950 more" in shown
    assert shown.count("<td") < 50 * 7 + 20 * 6 + 100


def replay_of(epoch: int, before: int, *, read: int, rejected: int) -> Entry:
    """A committed replay of records that were rejected before an epoch.

    Args:
        epoch: the replay's epoch.
        before: the first epoch whose rejected records are not replayed.
        read: number of replayed records.
        rejected: how many of them were rejected again.
    """
    done = made.committed(epoch, made.START_MS + 5000 * epoch)
    assert done.plan is not None and done.manifest is not None
    ranges = (OffsetRange(QUARANTINE_SHARD, 0, before),)
    counts = (
        ShardCount(QUARANTINE_SHARD, read, read - rejected, rejected, {"still bad": rejected} if rejected else {}),
    )
    return replace(done, plan=replace(done.plan, ranges=ranges), manifest=replace(done.manifest, counts=counts))


def test_rejected_records_that_a_replay_has_taken_in_count_no_more() -> None:
    entries = [
        made.committed(0, made.START_MS, rejected=40),
        replay_of(1, 1, read=40, rejected=2),
        made.committed(2, made.START_MS + 20_000, rejected=3),
    ]
    whole = report(*entries)
    assert rejected_by_reason(whole.history) == [("malformed JSON", 3, "events-0"), ("still bad", 2, QUARANTINE_SHARD)]
    assert findings(whole) == [], "5 of 200 are few"
    assert "5 rejected, after 40 records replayed" in page(whole)
    unreadable = report(made.committed(0, made.START_MS, rejected=40), replay_of(1, 1, read=30, rejected=0))
    assert rejected_by_reason(unreadable.history) == [("could not be read, so that there is nothing to replay", 10, "")]


def test_the_error_that_ended_the_last_writer_is_told_first() -> None:
    ended = replace(report(*made.steady(3)), ended_by="TargetRefusedError: column `id` is text")
    assert findings(ended)[0] == Notice(
        Level.ACT,
        "The last writer was ended by an error: TargetRefusedError: column `id` is text. Run: tideline run job.yaml",
    )
    assert "was ended by: TargetRefusedError: column `id` is text" in page(ended)
