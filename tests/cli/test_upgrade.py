"""Timelines of an older version: the next run continues them without a manual step."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.job import Job
from timeline.lease import WRITERS_FOLDER
from timeline.owner import OWNER_PATH

LOOKS = (
    "show",
    "inspect latest",
    "offsets",
    "fsck",
    "fsck --deep",
    "recover --dry-run",
    "replay --dry-run",
    "watch --once",
)


@pytest.fixture
def old(job: Job) -> Job:
    """A job with two epochs of a version before ``owner.json``, and new records."""
    job.write(spark=None)
    for number in range(2):
        assert job.tideline("run").code == 0
        job.append("a.jsonl", range(1000 * number + 1000, 1000 * number + 1005), bad=1)
    make_older(job)
    return job


def make_older(job: Job) -> None:
    """Remove the object and fields unknown before ``owner.json``."""
    (job.lake / OWNER_PATH).unlink()
    without(job.lake / WRITERS_FOLDER, "ended_by")
    without(job.lake / ".hoodie" / "decisions", "is_crash")


def without(folder: Path, field: str) -> None:
    """Remove a field from the JSON bodies of a folder."""
    for path in folder.iterdir():
        fields = json.loads(path.read_text())
        fields.pop(field, None)
        path.write_text(json.dumps(fields))


def objects(job: Job) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in job.lake.rglob("*") if path.is_file()}


def test_an_older_timeline_is_whole_and_the_next_run_becomes_its_owner(old: Job, call: Call) -> None:
    before = objects(old)
    for command in LOOKS:
        name, *options = command.split()
        found = call(name, old.file, *options)
        assert (command, found.code) == (command, 0), found.out + found.err
        assert "owner.json" not in found.out + found.err
    assert objects(old) == before
    assert call("run", old.file).code == 0
    assert old.ids() == Counter([*range(100), *range(1000, 1005), *range(2000, 2005)])
    owner = json.loads((old.lake / OWNER_PATH).read_text())
    assert (owner["name"], owner["source"]) == ("cli", f"file://{old.folder}/logs/*.jsonl")
    old.write(name="other")
    assert call("run", old.file).code == 2


@pytest.mark.parametrize("point", ["inflight", "manifest", "decided", "part-committing"])
def test_an_epoch_that_an_older_version_left_open_is_settled_and_its_timeline_owned(
    old: Job, call: Call, point: str
) -> None:
    assert old.tideline("run", env={"TIDELINE_CRASH_AT": point}).code != 0
    make_older(old)
    assert call("recover", old.file).code == 0
    assert (old.lake / OWNER_PATH).exists()
    assert call("run", old.file).code == 0
    assert old.ids() == Counter([*range(100), *range(1000, 1005), *range(2000, 2005)])


def test_a_first_run_that_is_killed_between_its_lease_and_owner_json_is_followed_by_another(
    old: Job, call: Call
) -> None:
    assert old.tideline("run", env={"TIDELINE_CRASH_AT": "lease-taken"}).code != 0
    (old.lake / OWNER_PATH).unlink()  # as if killed right before writing it
    assert call("run", old.file).code == 0
    assert (old.lake / OWNER_PATH).exists()


def test_an_owner_that_is_deleted_after_an_upgrade_is_told(old: Job, call: Call) -> None:
    assert call("run", old.file).code == 0
    for _ in range(10):  # until the record of the epoch's writer is pruned
        assert call("run", old.file).code == 0
    (old.lake / OWNER_PATH).unlink()
    for command in ("run", "recover", "show", "fsck", "replay"):
        found = call(command, old.file)
        assert (command, found.code) == (command, 6)
        assert "it has epochs, and .hoodie/owner.json, which holds" in " ".join((found.out + found.err).split())
