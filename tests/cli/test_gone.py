"""Timeline objects deleted by hand: every command reports the same error, before it opens anything."""

from __future__ import annotations

import html
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ingest.cli.picture_commands import PictureKind
from tests.cli.conftest import Call
from tests.job import Job, finish
from tests.waiting import wait_until
from timeline.active import ActiveTimeline, states_before
from timeline.chain import move_settled
from timeline.instant import Action
from timeline.stores.base import Retry
from timeline.stores.opening import open_store


@pytest.fixture
def ingested(job: Job) -> Job:
    """A job with three epochs."""
    for number in range(3):
        job.append(f"more-{number}.jsonl", range(1000 * number + 1000, 1000 * number + 1005))
        assert job.tideline("run").code == 0
    return job


def states_of(job: Job, epoch: int) -> Sequence[Path]:
    """Files of a completed commit's states: requested, inflight, completed."""
    timeline = job.timeline()
    instant = timeline.completed().by_action(Action.COMMIT).instants[epoch]
    folder = job.lake / ".hoodie" / "timeline"
    return [*(folder / name for name in states_before(instant)), folder / instant.file_name]


def decision(job: Job, epoch: int) -> None:
    (job.lake / f".hoodie/decisions/{epoch:020d}.json").unlink()


def newest_decision(job: Job) -> None:
    decision(job, 2)


def middle_decision(job: Job) -> None:
    decision(job, 1)


def plan(job: Job) -> None:
    states_of(job, 2)[0].unlink()


def manifest(job: Job) -> None:
    states_of(job, 1)[1].unlink()


def instants(job: Job) -> None:
    shutil.rmtree(job.lake / ".hoodie" / "timeline")


def properties(job: Job) -> None:
    (job.lake / ".hoodie" / "hoodie.properties").unlink()


def owner(job: Job) -> None:
    (job.lake / ".hoodie" / "owner.json").unlink()


GONE: Sequence[tuple[Callable[[Job], None], str]] = [
    (newest_decision, "epoch 2 is decided, and its decision .hoodie/decisions/00000000000000000002.json is gone"),
    (middle_decision, "epoch 1 is decided, and its decision .hoodie/decisions/00000000000000000001.json is gone"),
    (plan, "is completed, and its plan "),
    (manifest, "is completed, and its manifest "),
    (instants, "epochs up to 2 are decided, and the timeline has no instant"),
    (properties, "it has epochs, and .hoodie/hoodie.properties, which holds the timeline's id and the columns"),
    (owner, "it has epochs, and .hoodie/owner.json, which holds the job and source that it belongs to"),
]


@pytest.mark.parametrize(("delete", "words"), GONE)
def test_what_was_deleted_by_hand_is_told_alike_and_nothing_is_touched(
    ingested: Job, call: Call, delete: Callable[[Job], None], words: str
) -> None:
    delete(ingested)
    ingested.append("later.jsonl", range(9000, 9005))
    before = {path: path.read_bytes() for path in ingested.lake.rglob("*") if path.is_file()}
    for command in ("run", "recover", "show", "fsck", "replay", "replay --dry-run", "replay --accept-loss"):
        name, *options = command.split()
        found = call(name, ingested.file, *options)
        assert (command, found.code) == (command, 6)
        assert words in " ".join((found.out + found.err).split()), command
        if command == "fsck":
            assert "broken chain: 1: " in found.out or delete is instants, found.out
    look_alike(ingested, call, 6, words)
    assert {path: path.read_bytes() for path in ingested.lake.rglob("*") if path.is_file()} == before


def look_alike(job: Job, call: Call, code: int, words: str) -> None:
    """Read-only commands fail like a start; commands that show a page show the message on it."""
    plots = [f"plot --kind {kind.value} -o {job.folder}/a.png" for kind in PictureKind]
    for command in ("show", "show --json", "inspect latest", "offsets", *plots):
        name, *options = command.split()
        found = call(name, job.file, *options)
        assert (command, found.code) == (command, code)
        assert words in " ".join((found.out + found.err).split()), command
    assert words in " ".join(call("watch", job.file, "--once").out.split())
    page = job.folder / "page.html"
    call("report", job.file, "--output", str(page))
    text = " ".join(page.read_text().split())
    assert html.escape(words) in text or words in text
    assert "something has to be done" in text and "Run: tideline run" not in text


def newest_epoch(job: Job, timeline: Path) -> None:
    """Delete the newest epoch, like a restored backup."""
    folder = timeline / ".hoodie" / "timeline"
    newest = max(path.name[:17] for path in folder.glob("*.commit.requested"))
    for path in folder.glob(f"{newest}*"):
        path.unlink()
    (timeline / ".hoodie" / "decisions" / f"{2:020d}.json").unlink()


def everything(job: Job, timeline: Path) -> None:
    shutil.rmtree(timeline)


@pytest.mark.parametrize(
    ("delete", "words"),
    [
        (newest_epoch, "has epoch 2, which"),
        (everything, "has rows of job 'cli' from another timeline than"),
    ],
)
def test_a_timeline_that_tables_are_ahead_of_is_told_alike_by_commands_that_only_look(
    job: Job, call: Call, delete: Callable[[Job, Path], None], words: str
) -> None:
    timeline = job.folder / "timeline"
    job.write(timeline={"path": str(timeline)}, spark=None)
    for number in range(3):
        job.append("a.jsonl", range(1000 * number + 1000, 1000 * number + 1005))
        assert call("run", job.file).code == 0
    delete(job, timeline)
    for command in ("run", "recover", "recover --dry-run", "replay", "replay --dry-run"):
        name, *options = command.split()
        found = call(name, job.file, *options)
        assert (command, found.code) == (command, 5)
        assert words in " ".join((found.out + found.err).split()), command
    look_alike(job, call, 5, words)


def test_a_decision_that_is_deleted_under_a_running_writer_ends_it(job: Job) -> None:
    process = job.start("run", "--continuous")
    wait_until(lambda: (job.lake / f".hoodie/decisions/{0:020d}.json").exists(), "it is decided", 60)
    job.append("b.jsonl", range(1000, 1005))
    wait_until(lambda: job.ids()[1000] == 1, "the row is there", 60)
    decision(job, 1)
    job.append("c.jsonl", range(2000, 2005))
    wait_until(lambda: process.poll() is not None, "it ends", 60)
    ended = finish(process)
    assert ended.code == 6
    assert "epoch 1 is decided, and its decision" in " ".join(ended.err.split())


def test_an_owner_that_was_deleted_is_written_anew_where_that_is_meant(ingested: Job) -> None:
    owner(ingested)
    assert ingested.tideline("run", "--new-source").code == 0
    assert ingested.tideline("run").code == 0
    assert max(ingested.ids().values()) == 1


def test_a_completed_file_that_was_deleted_is_made_again(ingested: Job) -> None:
    completed = states_of(ingested, 2)[2]
    body = completed.read_bytes()
    completed.unlink()
    assert ingested.tideline("recover").code == 0
    assert completed.read_bytes() == body
    assert ingested.tideline("run").code == 0
    assert max(ingested.ids().values()) == 1


def test_a_decided_epoch_whose_plan_was_deleted_before_it_was_completed_keeps_its_rows(ingested: Job) -> None:
    ingested.append("decided.jsonl", range(5000, 5005))
    assert ingested.tideline("run", env={"TIDELINE_CRASH_AT": "decided"}).code != 0
    (pending,) = ingested.pending()
    (ingested.lake / f".hoodie/timeline/{pending.time}.commit.requested").unlink()
    assert ingested.tideline("recover").code == 0
    ids = ingested.ids()
    assert all(ids[number] == 1 for number in range(5000, 5005))


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("what", ["manifest", "decision"])
def test_an_epoch_whose_manifest_or_decision_is_gone_is_not_left_out_of_a_replay(
    job: Job, call: Call, what: str, is_settled: bool
) -> None:
    """A replay counts as restoring every lost epoch: rows of a skipped one would be lost for good."""
    job.write(timeline={"path": f"{job.folder}/timeline"}, spark=None)
    assert call("run", job.file).code == 0
    for number in (1, 2):
        job.append("a.jsonl", range(100 * number, 100 * number + 100))
        assert call("run", job.file).code == 0
    timeline = ActiveTimeline.load(store := open_store(f"{job.folder}/timeline"))
    commits = timeline.completed().by_action(Action.COMMIT).instants
    if is_settled:  # as after 100 epochs: a start no longer reads every instant
        move_settled(store, timeline, commits[2].time, Retry())
    hoodie = job.folder / "timeline" / ".hoodie"
    names = {"manifest": f"timeline/{states_before(commits[1])[1]}", "decision": f"decisions/{1:020d}.json"}
    gone = hoodie / names[what]
    gone.rename(job.folder / "kept")
    shutil.rmtree(job.lake)
    for options in ([], ["--dry-run"], ["--accept-loss"], ["--epochs", "0..0", "--accept-loss"]):
        refused = call("replay", job.file, *options)
        assert refused.code == 6, refused.out
        assert gone.name in " ".join((refused.out + refused.err).split())
    assert call("fsck", job.file).code == 6
    assert not job.lake.exists()
    (job.folder / "kept").rename(gone)
    assert call("replay", job.file).code == 0
    assert job.ids() == Counter(range(300))
