"""`tideline show`: its text and JSON output, its filters, and the bodies that it never reads."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import pytest
from rich.console import Console

from ingest.reports.instants import InstantView, instants_table, instants_view
from ingest.reports.selection import Selection, select
from tests.cli.conftest import Call
from tests.cli.past import job_with_a_past, objects
from tests.job import Job
from tests.unit.timeline.scripted_store import ScriptedStore
from timeline.history.timeline import Timeline
from timeline.instant import Action
from timeline.stores.opening import open_store


@pytest.fixture
def past(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_with_a_past(tmp_path_factory)


def shown(call: Call, job: Job, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = call("show", job.file, "--json", *options).json
    return rows


def taken(rows: int) -> dict[str, int]:
    return {"written": rows, "dropped": 0, "rejected": 0}


def test_every_instant_is_printed_for_people_and_machines(call: Call, past: Job) -> None:
    rollback, commit, pending = shown(call, past)
    assert list(rollback) == list(commit) == list(pending) == [field.name for field in fields(InstantView)]
    assert (rollback["action"], rollback["state"], rollback["epoch"], rollback["outcome"]) == (
        *("rollback", "completed", 0, "rollback"),
    )
    wanted = {
        **{"action": "commit", "state": "completed", "epoch": 1, "outcome": "commit", "rows": 100, "rejected": 2},
        **{"files": 2, "dropped": 0, "reason": "written", "generation": 2, "offsets": {"a.jsonl": 2_516}},
        **{"lost": None, "note": None, "targets": {f"delta:{past.lake}": taken(100), "quarantine": taken(2)}},
    }
    assert {name: commit[name] for name in wanted} == wanted
    assert commit["bytes"] > 0 and commit["seconds"] > 0
    assert commit["requested"] <= commit["prepared"] and commit["completed"].endswith("Z")
    printed = call("show", past.file)
    assert all(row["time"] in printed.out for row in (rollback, commit, pending))
    assert f"1 pending: tideline recover {past.file} --dry-run tells what would become of it" in printed.out


def test_why_and_by_whom_an_instant_was_rolled_back_is_readable(call: Call, past: Job) -> None:
    (rollback,) = shown(call, past, "--action", "rollback")
    assert rollback["reason"].startswith("not prepared: instant 2")
    assert rollback["by"].startswith("process ")
    assert rollback["note"] == f"{rollback['reason']}, by {rollback['by']}"
    words = " ".join(call("show", past.file).out.split())
    assert rollback["note"] in words


def test_whose_a_pending_instant_is_and_how_far(call: Call, past: Job, job: Job) -> None:
    (row,) = shown(call, past, "--pending")
    assert (row["state"], row["outcome"], row["rows"], row["seconds"]) == ("inflight", None, 60, None)
    assert row["note"].startswith("by process ") and row["note"].endswith(", generation 3; prepared, not decided")
    job.killed_at("decided")
    (row,) = shown(call, job)
    assert (row["outcome"], row["rows"], row["rejected"]) == ("commit", 100, 2)
    assert row["note"].endswith(", generation 1; decided: commit (written), still to be applied")


def test_filters_add_up_and_the_limit_counts_what_they_leave(call: Call, past: Job) -> None:
    rollback, commit, pending = (row["time"] for row in shown(call, past))
    times = {
        (): [rollback, commit, pending],
        ("--limit", "1"): [pending],
        ("--limit", "0"): [rollback, commit, pending],
        ("--action", "commit"): [commit, pending],
        ("--action", "commit", "--pending"): [pending],
        ("--action", "commit", "--action", "rollback", "--limit", "2"): [commit, pending],
        ("--action", "rollback", "--limit", "2"): [rollback],
        ("--action", "clean"): [],
        ("--epoch", "0"): [rollback],
        ("--epoch", "1"): [commit],
        ("--epoch", "2"): [pending],
        ("--epoch", "7"): [],
        ("--since", "1d"): [rollback, commit, pending],
        ("--since", pending): [pending],
        ("--since", "2999-01-01"): [],
    }
    for options, wanted in times.items():
        assert [row["time"] for row in shown(call, past, *options)] == wanted, options
    assert "1 older instant not shown (--limit 0 shows all)" in call("show", past.file, "--limit", "2").out
    assert "none of 3 instants is asked for" in call("show", past.file, "--epoch", "7").out


def test_only_bodies_of_what_is_shown_are_read(past: Job) -> None:
    store = ScriptedStore(open_store(str(past.lake)))
    timeline = Timeline.load(store)
    for wanted in (Selection(limit=1), Selection(is_pending=True), Selection(actions=(Action.ROLLBACK,))):
        store.calls.clear()
        chosen, _ = select(timeline, wanted)
        assert store.calls == {}, "names alone say which"
        assert len(chosen.history().entries) == 1
        assert store.calls["get"] <= 4


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (["--since", "yesterday"], "an age (30m, 2h, 3d)"),
        (["--since", "2026"], "8, 14 or 17 are allowed"),
        (["--since", "3 parsecs"], "allowed are ms, s, m, h, d"),
        (["--action", "vacuum"], "replacecommit"),
        (["--epoch", "-1"], "greater than or equal to 0"),
    ],
)
def test_a_wrong_filter_is_refused_with_what_is_allowed(
    call: Call, past: Job, options: list[str], allowed: str
) -> None:
    ended = call("show", past.file, *options)
    assert ended.code == 2
    assert allowed in " ".join(ended.err.replace("│", " ").split())


def test_nothing_is_touched(call: Call, past: Job) -> None:
    before = objects(past.folder)
    for options in ([], ["--json"], ["--epoch", "0"], ["--pending"]):
        assert call("show", past.file, *options).code == 0
    assert objects(past.folder) == before


def test_instants_that_tideline_did_not_write_are_marked(call: Call, job: Job) -> None:
    assert job.tideline("run").code == 0
    timeline = job.lake / ".hoodie" / "timeline"
    (timeline / "20200101000000000.clean.requested").touch()
    (timeline / "20200102000000000.commit.requested").write_text("{}")
    ended = call("show", job.file)
    assert ended.code == 0
    assert "20200102000000000" in ended.out and "unreadable: " in ended.out
    assert "20200101000000000" in ended.out


ROWS = [
    InstantView(
        *("20260301101530123", "commit", "completed", 1234, "commit"),
        rows=12_345_678,
        rejected=1_234,
        files=48,
        bytes=1_234_567_890,
        offsets={"web/2026/03/01/access-000.jsonl": 1_234_567_890, "b.jsonl": 1},
        seconds=12.3,
    ),
    InstantView(
        *("20260301101601456", "rollback", "completed", 1235, "rollback"),
        files=3,
        seconds=0.1,
        note="not prepared: instant 20260301101530124, by process 12345 on web-1",
    ),
    InstantView("20260301101700789", "commit", "inflight", 1236, note="by process 12345 on web-1, generation 12"),
]


def lines_of(rows: list[InstantView], width: int) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(instants_view(rows, width))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_table_fits_the_terminal_and_keeps_what_matters(width: int) -> None:
    lines = lines_of(ROWS, width)
    assert all(len(line) <= width for line in lines)
    assert {"time", "action", "state", "epoch", "rows", "rejected", "note"} <= set(lines[0].split())
    shown = "".join(lines)
    for each in ("20260301101530123", "rollback", "completed", "inflight", "1236", "12,345,678", "1,234"):
        assert each in shown
    words = " ".join(shown.split())
    assert "not prepared" in words and "20260301101530124" in words, "a note is wrapped, never cut"
    assert ("offsets" in lines[0]) == (width >= 200)


def test_notes_are_lines_of_their_own_where_the_table_has_no_room_for_them() -> None:
    lines = lines_of(ROWS, 70)
    assert all(len(line) <= 70 for line in lines)
    assert "note" not in lines[0].split()
    assert "20260301101601456: not prepared: instant 20260301101530124" in " ".join(lines)


def test_rollbacks_are_red_and_pending_instants_yellow() -> None:
    styles = [row.style for row in instants_table(ROWS, 200).rows]
    assert styles == [None, "red", "yellow"]


def test_output_follows_the_terminal(call: Call, past: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        table = call("show", past.file).out.partition("1 pending:")[0]
        assert max(map(len, table.splitlines())) <= columns


def test_a_timeline_that_is_not_created_has_no_instants(call: Call, job: Job) -> None:
    assert call("show", job.file, "--since", "1h").out == f"file://{job.lake}: no instants yet\n"
    assert not os.path.exists(job.lake)


def test_a_moment_without_a_zone_is_utc(call: Call, past: Job) -> None:
    (row,) = shown(call, past, "--limit", "1")
    iso = row["requested"].removesuffix("Z")
    for moment in (iso, f"{iso}Z", f"{iso}+00:00"):
        assert [each["time"] for each in shown(call, past, "--since", moment)] == [row["time"]]
