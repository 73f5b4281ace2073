"""Messages of a run: each transition once, and for a failed epoch one line with all that an operator needs."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.exit_message import ExitMessage
from ingest.driver.takeover import run_recovery
from ingest.protocol.events import EpochOpened, LeftPending, Phase, PhaseDone, RolledBack
from sinks.held import REPLAY
from tests.cli.conftest import Call
from tests.cli.local_tideline import SparkFreeRunner
from tests.job import Job
from tests.transaction_sink import LOSE, installed, tell
from tests.watched_run import fails_at, run_watched
from timeline import failpoints
from timeline.epoch import EpochRef, Plan
from timeline.errors import FencedError, TargetBusyError, TargetError
from timeline.stores.opening import open_store

REF = EpochRef(7, "20260301101530123", 3)
NAMED = r"Epoch \d+ \(instant \d{17}\)"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("ingest.execution.spark.runner.SparkRunner", SparkFreeRunner)
    yield
    failpoints.arm(None)


def fail_at(point: str, error: Exception) -> None:
    def reached(passed: str) -> None:
        if passed == point:
            failpoints.arm(None)
            raise error

    failpoints.arm(reached)


def test_each_transition_is_logged_once_with_its_ids(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for at in (fails_at("written"), fails_at("applied"), None):
        with run_watched(job.file, at):
            pass
    job.append("a.jsonl", range(100, 110))
    with run_watched(job.file):
        pass
    words = r"none → requested|requested → inflight|prepared|decided|inflight → completed|inflight → rolled back"
    passed = Counter(
        (int(found[1]), found[3])
        for record in caplog.records
        if (found := re.match(rf"epoch (\d+) \(instant (\d{{17}})\):? ({words})", record.getMessage()))
    )
    whole = ["none → requested", "requested → inflight", "prepared", "decided", "inflight → completed"]
    expected = {
        0: ["none → requested", "requested → inflight", "decided", "inflight → rolled back"],
        1: whole,  # left pending by a crash, completed by recovery
        2: whole,
    }
    assert passed == Counter({(epoch, words): 1 for epoch, each in expected.items() for words in each})


@pytest.mark.parametrize(
    ("point", "fate"),
    [
        ("begun", "was rolled back. Next: tideline run {job} reads its records again"),
        ("manifest", "was completed all the same. Next: tideline run {job} goes on"),
        (
            "part-committed",
            "is committed, and pending because not every target has it yet. "
            "Next: tideline run {job} (or recover) applies it once the cause is mended",
        ),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_failed_epoch_ends_in_one_line_that_says_all(
    job: Job, call: Call, point: str, fate: str, as_json: bool
) -> None:
    fail_at(point, TargetError("delta:lake: the table has another schema"))
    ended = call("run", job.file, *(["--log-json"] if as_json else []))
    assert ended.code == 5
    *before, last = ended.err.splitlines()
    assert not any("the table has another schema" in line and "WARNING" in line for line in before)
    whole = rf"delta:lake: the table has another schema\. {NAMED} {re.escape(fate.format(job=job.file))}"
    if as_json:
        record = json.loads(last)
        assert re.fullmatch(whole, record["message"])
        assert (record["level"], record["kind"], record["epoch"]) == ("ERROR", "TargetError", 0)
        assert record["instant"] in record["message"]
        assert [json.loads(line)["level"] for line in before].count("ERROR") == 0
    else:
        assert re.fullmatch(f"tideline: {whole}", last)
    assert call("run", job.file).code == 0, "what it says to run next is right"
    assert job.ids() == Counter(range(100))


def test_what_is_unforeseen_says_what_became_of_the_epoch_too(job: Job, call: Call) -> None:
    fail_at("written", RuntimeError("odd"))
    ended = call("run", job.file)
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert (
        "unforeseen RuntimeError at " in last
        and "odd" not in ended.err
        and "was rolled back. Next: tideline run" in last
    )


def test_a_fenced_writer_says_that_there_is_nothing_to_do(job: Job, call: Call) -> None:
    job.write(writer={"lease_ttl": "1h"})  # no heartbeat detects the fencing before the decision

    def reached(point: str) -> None:
        if point == "written":
            failpoints.arm(None)
            run_recovery(open_timeline(load_config(job.file)), force=True)

    failpoints.arm(reached)
    ended = call("run", job.file)
    assert ended.code == 7
    last = ended.err.splitlines()[-1]
    assert "decided it first" in last
    assert re.search(rf"{NAMED} was rolled back here\. Nothing to do: the other process goes on", last)


def test_an_error_outside_of_an_epoch_names_none(job: Job, call: Call) -> None:
    assert call("run", job.file).code == 0
    job.append("a.jsonl", range(5))
    (job.folder / "logs" / "a.jsonl").write_text("x")
    ended = call("run", job.file)
    assert ended.code == 4
    assert "Next: tideline run" not in ended.err.splitlines()[-1]


def test_a_target_that_has_lost_an_epoch_says_what_to_run(
    job: Job, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.config.registry.installed_sinks", installed)
    job.write(
        targets=[
            {"type": "delta", "path": f"{job.folder}/lake"},
            {"type": "transactions", "name": "keyed", "place": f"{job.folder}/keyed"},
        ]
    )
    keyed = open_store(str(job.folder / "keyed"))
    tell(keyed, LOSE, 4)
    ended = call("run", job.file)
    assert ended.code == 9
    last = ended.err.splitlines()[-1]
    assert re.search(rf"{NAMED} is committed and pending\. Next: tideline run .* writes it there again", last)


class TestExitMessage:
    def word(
        self,
        *events: RolledBack | LeftPending | PhaseDone | EpochOpened,
        error: Exception | None = None,
        said: str = "why.",
    ) -> str:
        last = ExitMessage(Path("job.yaml"))
        for event in events:
            last(event)
        return last.after(error or TargetError("why"), said)

    def test_what_is_undecided_is_settled_by_recover(self) -> None:
        assert self.word(LeftPending(REF, is_decided=False)) == (
            f"why. Epoch 7 (instant {REF.instant}) is pending, and nothing of it is visible. "
            "Next: tideline recover job.yaml (or run) settles it once the store answers"
        )

    def test_an_epoch_in_every_target_is_not_said_to_lack_one(self) -> None:
        assert self.word(LeftPending(REF, is_decided=True, is_applied=True)) == (
            f"why. Epoch 7 (instant {REF.instant}) is in every target. "
            "Next: tideline run job.yaml (or recover) completes it"
        )

    def test_an_error_that_names_the_next_command_is_the_only_one_to_do_so(self) -> None:
        word = self.word(LeftPending(REF, is_decided=True), said=REPLAY)
        assert word == (
            f"{REPLAY}. Epoch 7 (instant {REF.instant}) is committed, and pending because not every target has it yet."
        )

    def test_what_was_rolled_back_is_read_again(self) -> None:
        assert self.word(RolledBack(REF, "not prepared: busy"), error=TargetBusyError("busy")) == (
            f"why. Epoch 7 (instant {REF.instant}) was rolled back. Next: tideline run job.yaml reads its records again"
        )

    def test_what_recovery_has_settled_is_not_what_failed(self) -> None:
        assert self.word(RolledBack(REF, "not prepared"), PhaseDone(Phase.RECOVER)) == "why."

    def test_the_epoch_is_named_though_storage_no_longer_knows_its_number(self) -> None:
        plan = Plan(REF, "job", "p", (), (), {}, "t")
        word = self.word(EpochOpened(plan), RolledBack(EpochRef(-1, REF.instant, 3), ""), error=FencedError("fenced"))
        assert "Epoch 7 (instant" in word


def test_show_watch_and_the_lease_say_which_error_ended_the_last_writer(job: Job, call: Call) -> None:
    write_deltalake(job.lake, pa.table({"id": pa.array([], pa.string()), "host": pa.array([], pa.string())}))
    assert call("run", job.file).code == 5, "before any instant"
    shown, watched = call("show", job.file).out, call("watch", job.file, "--once", "--json")
    assert "no instants yet" in shown and "was ended by: TargetRefusedError: " in shown
    assert watched.json["writer"]["ended_by"].startswith("TargetRefusedError: delta:")
    assert "ended by an error: TargetRefusedError" in call("watch", job.file, "--once").out
    shutil.rmtree(job.lake)
    fail_at("written", ValueError("card 4711"))
    assert call("run", job.file).code == 1
    shown = call("show", job.file).out
    assert re.search(r"generation 1\) was ended by: ValueError at \S+:\d+ in \w+", shown)
    stored = b"".join(path.read_bytes() for path in (job.lake / ".hoodie").rglob("*") if path.is_file())
    assert b"card 4711" not in stored and b"ValueError" in stored
    assert call("run", job.file).code == 0
    assert "was ended by" not in call("show", job.file).out
