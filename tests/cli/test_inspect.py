"""`tideline inspect`: everything about one instant, however it is named, and what recovery would do with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.past import job_with_a_past, objects
from tests.job import Job

KEYS = [
    *("instant", "reached", "decision", "plan", "manifest", "offsets", "rejected", "rollback"),
    *("files", "files_in_all", "recovery", "problems"),
]


@pytest.fixture
def past(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_with_a_past(tmp_path_factory)


def inspected(call: Call, job: Job, instant: str, *options: str) -> dict[str, Any]:
    ended = call("inspect", job.file, instant, "--json", *options)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = ended.json
    assert list(found) == KEYS
    return found


def times(job: Job) -> list[str]:
    return [instant.time for instant in job.timeline()]


def test_a_commit_is_told_whole(call: Call, past: Job) -> None:
    found = inspected(call, past, "epoch:1")
    assert found["instant"]["time"] == times(past)[1]
    assert [each["state"] for each in found["reached"]] == ["requested", "prepared", "decided", "completed"]
    assert found["reached"][0]["after_s"] is None
    assert (found["decision"]["outcome"], found["decision"]["reason"], found["decision"]["generation"]) == (
        *("commit", "written", 2),
    )
    assert (found["plan"]["epoch"], found["plan"]["shards"], found["plan"]["units"]) == (1, 1, 2_516)
    assert (found["manifest"]["read"], found["manifest"]["rows"], found["manifest"]["rejected"]) == (102, 100, 2)
    assert [part["rows"] for part in found["manifest"]["parts"]] == [100, 2]
    (offsets,) = found["offsets"]
    assert (offsets["shard"], offsets["start"], offsets["until"], offsets["read"]) == ("a.jsonl", 0, 2_516, 102)
    assert sum(row["rows"] for row in found["rejected"]) == 2
    assert found["files_in_all"] == len(found["files"]) == 2
    assert {file["rows"] for file in found["files"]} == {100, 2}
    assert (found["rollback"], found["recovery"], found["problems"]) == (None, None, [])
    printed = call("inspect", past.file, "epoch:1").out
    for words in (
        *(f"commit {found['instant']['time']} · epoch 1 · completed", "decision    commit, by process "),
        *("102 read: 100 accepted, 2 quarantined", "malformed JSON", found["files"][0]["path"]),
    ):
        assert words in printed


def test_a_rollback_says_why_by_whom_and_what_went(call: Call, past: Job) -> None:
    found = inspected(call, past, "epoch:0")
    gone = found["decision"]["instant"]
    assert found["instant"]["action"] == "rollback"
    assert (found["decision"]["outcome"], found["decision"]["reason"]) == ("rollback", "not prepared")
    assert found["rollback"]["instants"] == [gone]
    assert (found["rollback"]["reason"], found["rollback"]["by"]) == ("not prepared", found["decision"]["by"])
    assert found["rollback"]["files_deleted"] == found["files_in_all"] > 0
    printed = call("inspect", past.file, "epoch:0").out
    assert f"why         not prepared: instant {gone}" in printed
    assert "files deleted" in printed
    assert inspected(call, past, gone) == found, "a commit that is gone is found in its rollback"


def test_a_pending_instant_comes_with_what_recovery_would_do_and_why(call: Call, past: Job, job: Job) -> None:
    found = inspected(call, past, "latest")
    assert found["decision"] is None
    assert found["recovery"]["found"]["step"] == "claim commit"
    assert found["recovery"]["writer"]["generation"] == 3
    dry_run = call("recover", past.file, "--dry-run", "--json").json
    assert found["recovery"]["found"] == dry_run["found"][0]
    printed = call("inspect", past.file, "latest").out
    assert "→ claim commit: prepared: every target is ready" in printed
    assert "none yet: neither committed nor rolled back" in printed
    job.killed_at("begun")
    printed = call("inspect", job.file, "latest").out
    assert "not known: not prepared yet" in printed
    assert "→ claim rollback: not prepared" in printed


def test_a_rollback_that_was_killed_is_pending_and_told_as_that(call: Call, job: Job) -> None:
    job.killed_at("written")
    job.killed_at("rollback-requested")
    (rollback,) = [row["time"] for row in call("show", job.file, "--json", "--action", "rollback").json]
    found = inspected(call, job, rollback)
    assert found["recovery"]["words"].startswith("finish it: delete what is left")
    assert found["rollback"]["reason"] == "not prepared"
    assert found["recovery"]["found"] is None
    shown = call("show", job.file, "--json", "--epoch", "0").json
    assert {row["action"] for row in shown} == {"commit", "rollback"}


def test_a_unique_beginning_of_a_time_is_enough(call: Call, past: Job) -> None:
    first, _, last = times(past)
    same = next(at for at in range(18) if first[: at + 1] != last[: at + 1])
    assert inspected(call, past, "latest")["instant"]["time"] == last
    assert inspected(call, past, last)["instant"]["time"] == last
    beginnings = {time[: same + 1] for time in times(past)}
    for beginning in beginnings:
        named = [time for time in times(past) if time.startswith(beginning)]
        if len(named) == 1:
            assert inspected(call, past, beginning)["instant"]["time"] == named[0]


@pytest.mark.parametrize(
    ("instant", "words"),
    [
        ("2", "3 instants begin so ("),
        ("19700101000000000", "there is none on the timeline; tideline show CONF lists what there is"),
        ("epoch:7", "the timeline has no instant of epoch 7"),
        ("epoch:x", "epoch:N with a number is allowed"),
        ("newest", "allowed are latest, epoch:N, and an instant time or the beginning of one"),
    ],
)
def test_an_instant_that_is_not_one_is_a_clear_error(call: Call, past: Job, instant: str, words: str) -> None:
    ended = call("inspect", past.file, instant)
    assert ended.code == 2
    assert words in ended.err


def test_before_the_first_instant_there_is_nothing_to_inspect(call: Call, job: Job) -> None:
    ended = call("inspect", job.file, "latest")
    assert (ended.code, ended.err) == (2, "tideline: instant latest: the timeline has no instants yet\n")


def test_files_are_limited_and_counted(call: Call, past: Job) -> None:
    assert len(inspected(call, past, "epoch:1", "--files", "1")["files"]) == 1
    assert inspected(call, past, "epoch:1", "--files", "1")["files_in_all"] == 2
    assert "files (1 of 2; --files 0 shows all)" in call("inspect", past.file, "epoch:1", "--files", "1").out
    assert len(inspected(call, past, "epoch:1", "--files", "0")["files"]) == 2


def test_a_body_that_cannot_be_read_is_named_and_costs_only_itself(call: Call, job: Job) -> None:
    assert job.tideline("run").code == 0
    (time,) = times(job)
    (job.lake / ".hoodie" / "timeline" / f"{time}.inflight").write_bytes(b'{"version": 99}')
    found = inspected(call, job, "latest")
    assert found["manifest"] is None and found["plan"]["epoch"] == 0
    assert len(found["problems"]) == 1
    assert f"not read: {found['problems'][0]}" in " ".join(call("inspect", job.file, "latest").out.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_fits_the_terminal(call: Call, past: Job, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for instant in ("epoch:0", "epoch:1", "epoch:2"):
        assert max(map(len, call("inspect", past.file, instant).out.splitlines())) <= width


def test_nothing_is_touched(call: Call, past: Job) -> None:
    before = objects(past.folder)
    for instant in ("epoch:0", "epoch:1", "latest"):
        inspected(call, past, instant)
    assert objects(past.folder) == before
