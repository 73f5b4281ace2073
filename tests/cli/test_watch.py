"""`tideline watch`: frames on a terminal, frames as lines, and the store requests of each."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.reports.offsets import open_job_source
from ingest.reports.watching import LagMeter, LagReport, Watcher
from ingest.sources.lag import LagProbe
from tests.cli.conftest import Call
from tests.cli.past import job_with_a_past, objects
from tests.job import LOCAL, Job, environment
from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore
from tests.unit.timeline.scripted_store import Call as StoreCall
from timeline.errors import StoreUnavailableError
from timeline.lease import LeaseState

KEYS = [
    *("at", "job", "timeline", "seen_at", "problem", "instants", "epochs", "pending"),
    *("rollbacks", "rate", "writer", "lag", "warning"),
]


@pytest.fixture
def past(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_with_a_past(tmp_path_factory)


def watcher_of(job: Job) -> tuple[Watcher, ScriptedStore]:
    """A watcher over a store that counts requests; the lag is measured in the calling thread."""
    opened = open_timeline(load_config(job.file))
    store = ScriptedStore(opened.store)
    opened = replace(opened, store=store, retry=AT_ONCE)
    return Watcher(opened, LagMeter(opened, open_job_source(opened))), store


def fail(_: StoreCall) -> None:
    raise StoreUnavailableError("the store is gone fishing")


def test_one_frame_is_printed_where_there_is_no_terminal(call: Call, past: Job) -> None:
    for options in ([], ["--once"]):
        ended = call("watch", past.file, *options)
        assert ended.code == 0
        lines = ended.out.splitlines()
        assert lines[0].startswith(f"cli · file://{past.lake}")
        assert "DEAD: process " in lines[1], "it was killed on this machine"
        assert "lag" in lines[3] and "B in 3 of 3 shards; most: " in lines[3]
        assert lines[4].rstrip() == "pending  1 instant"
        assert any(line.split()[:2] == ["1", "committed"] for line in lines)
        assert any(line.split()[:2] == ["2", "prepared"] for line in lines)
        assert "not prepared: instant " in lines[-1]


def test_json_is_one_object_a_line(call: Call, past: Job) -> None:
    ended = call("watch", past.file, "--once", "--json")
    assert ended.out.count("\n") == 1
    assert list(ended.json) == KEYS
    assert ended.json["writer"]["lease"] == "expired"
    assert (ended.json["lag"]["behind"], ended.json["lag"]["unit"]) == (3, "bytes")
    assert [epoch["state"] for epoch in ended.json["epochs"]] == ["rolled back", "committed", "pending"]
    assert [row["epoch"] for row in ended.json["pending"]] == [2]
    assert ended.json["rollbacks"][0]["note"].startswith("not prepared: instant ")


def test_a_frame_reads_one_listing_and_bodies_of_what_is_new(job: Job) -> None:
    assert job.tideline("run").code == 0
    watcher, store = watcher_of(job)
    first = watcher.look()
    store.calls.clear()
    assert watcher.look().epochs == first.epochs
    # Lists the timeline and the writers; gets the writer's record and the next decision, which does not exist yet.
    assert store.calls["list"] == 2
    assert store.calls["get"] == 2
    killed_at_next_epoch(job)
    store.calls.clear()
    frame = watcher.look()
    assert [epoch.state for epoch in frame.epochs] == ["committed", "pending"]
    assert store.calls["list"] == 2
    assert store.calls["get"] <= 2 + 4, "of the pending instant alone"


def killed_at_next_epoch(job: Job) -> None:
    job.append("b.jsonl", range(3))
    job.killed_at("manifest")


def test_a_pending_instant_is_looked_at_again_until_it_is_done(job: Job) -> None:
    job.killed_at("manifest")
    watcher, _ = watcher_of(job)
    (epoch,) = watcher.look().epochs
    assert (epoch.state, epoch.outcome) == ("pending", None)
    assert job.tideline("recover", env={"TIDELINE_CRASH_AT": "decided"}).code == -signal.SIGKILL
    (epoch,) = watcher.look().epochs
    assert (epoch.state, epoch.outcome) == ("pending", "commit"), "its file has the same name, its bodies do not"
    assert job.tideline("recover").code == 0
    frame = watcher.look()
    assert ([epoch.state for epoch in frame.epochs], frame.pending) == (["committed"], ())
    assert frame.lag is not None and frame.lag.lag is not None and frame.lag.lag.units == 0


def test_storage_that_does_not_answer_leaves_the_last_frame_and_the_next_look_goes_on(past: Job) -> None:
    watcher, store = watcher_of(past)
    before = watcher.look()
    assert before.problem is None
    store.fail("list", *[fail] * 50)
    frame = watcher.look()
    assert "the store is gone fishing" in str(frame.problem)
    assert (frame.epochs, frame.pending, frame.seen_at) == (before.epochs, before.pending, before.seen_at)
    assert frame.at > before.at
    watcher, store = watcher_of(past)
    store.fail("list", *[fail] * 4)
    assert watcher.look().problem is not None
    assert watcher.look().problem is None


def test_a_source_that_does_not_answer_never_holds_a_frame_up(past: Job) -> None:
    asked, answers = threading.Event(), threading.Event()
    opened = open_timeline(load_config(past.file))
    meter = LagMeter(opened, open_job_source(opened))

    def slow() -> LagReport:
        asked.set()
        assert answers.wait(60)
        return meter.latest()

    probe = LagProbe(slow, every_s=10)
    watcher = Watcher(opened, probe)
    assert watcher.look().lag is None
    assert asked.wait(60)
    assert watcher.look().lag is None
    answers.set()
    probe.wait()
    lag = watcher.look().lag
    assert lag is not None and lag.lag is not None and lag.lag.shards == 3


def test_a_source_that_says_no_is_told_in_the_frame(job: Job) -> None:
    assert job.tideline("run").code == 0
    (job.folder / "logs" / "a.jsonl").write_text('{"id": 1}\n' * 400)
    watcher, _ = watcher_of(job)
    frame = watcher.look()
    assert frame.problem is None and frame.lag is not None and frame.lag.lag is not None
    assert frame.lag.lag.units == 10 * 400 - 2_516, (
        "longer than what was read; the next run sees that it is another file"
    )


def test_a_writer_that_beats_is_alive(job: Job) -> None:
    job.write(writer={"lease_ttl": "1s"}, epoch={"interval": "50ms"})
    works = job.start("run", "--continuous")
    watcher, _ = watcher_of(job)
    while (writer := watcher.look().writer) is None or not writer.has_beaten:
        assert works.poll() is None
    assert writer.lease is LeaseState.LIVE
    assert writer.process == f"process {works.pid} on {os.uname().nodename}"
    works.send_signal(signal.SIGTERM)
    works.communicate(timeout=60)
    ended = watcher.look().writer
    assert ended is not None and ended.is_released and ended.lease is LeaseState.EXPIRED


@contextmanager
def on_a_terminal(job: Job, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`tideline watch` on a terminal of 100 columns, and the master end of the terminal."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*LOCAL, "watch", str(job.file), *options],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment() | size,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, words: bytes) -> bytes:
    """Output of the terminal until it contains a text."""
    written = b""
    while words not in written:
        try:
            written += os.read(terminal, 65536)
        except OSError:  # EIO: the other side is closed
            break
    assert words in written, written.decode()
    return written


LEFT = b"\x1b[?1049l"
"""Leaves the alternate screen (xterm's control sequences, DECSET 1049)."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(past: Job, number: signal.Signals, code: int) -> None:
    with on_a_terminal(past, "--interval", "100ms") as (process, terminal):
        for _ in range(3):
            written = read_until(terminal, b"Ctrl-C ends")
        assert b"committed" in written
        process.send_signal(number)
        assert LEFT in read_until(terminal, LEFT)
        assert process.wait(60) == code


def test_json_goes_on_line_after_line(past: Job) -> None:
    process = past.start("watch", "--json", "--interval", "100ms")
    assert process.stdout is not None
    frames = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert frames[0]["at"] < frames[1]["at"] < frames[2]["at"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize(("interval", "words"), [("fast", "for example 10s"), ("1ms", "0.1 s or more is allowed")])
def test_an_interval_that_is_none_is_refused(call: Call, past: Job, interval: str, words: str) -> None:
    ended = call("watch", past.file, "--interval", interval)
    assert ended.code == 2
    assert words in ended.err


def test_nothing_is_touched(call: Call, past: Job) -> None:
    before = objects(past.folder)
    assert call("watch", past.file, "--once").code == 0
    assert objects(past.folder) == before
