"""`tideline recover` and `tideline show`: their output, the objects they change, and no need of a JVM."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.job import SPARK, Job, finish
from tests.waiting import read_until, wait_until_frozen

RECOVERY_KEYS = ["dry_run", "waiting", "writer", "found", "settled", "replays", "leftovers", "losses"]
FOUND_KEYS = ["instant", "epoch", "decision", "lease", "manifest", "step", "reason"]


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder with its modification time and content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


def test_recover_before_the_timeline_is_created_finds_nothing_and_creates_nothing(call: Call, job: Job) -> None:
    before = tree(job.folder)
    for options in ([], ["--dry-run"], ["--force"]):
        ended = call("recover", job.file, *options)
        assert (ended.code, ended.out) == (0, "nothing is pending\n")
    assert call("show", job.file).out == f"file://{job.lake}: no instants yet\n"
    assert call("show", job.file, "--json").json == []
    assert tree(job.folder) == before


@pytest.mark.parametrize(
    ("point", "step", "rows"),
    [
        ("begun", "claim rollback", 0),
        ("manifest", "claim commit", 100),
        ("decided", "recommit", 100),
        ("part-committed", "recommit", 100),
    ],
)
def test_dry_run_tells_what_recover_then_does_and_touches_nothing(
    call: Call, job: Job, point: str, step: str, rows: int
) -> None:
    job.killed_at(point)
    before = tree(job.folder)
    text, said = call("recover", job.file, "--dry-run"), call("recover", job.file, "--dry-run", "--json").json
    assert tree(job.folder) == before
    assert list(said) == RECOVERY_KEYS
    assert (said["dry_run"], said["waiting"], said["settled"]) == (True, False, [])
    assert list(said["writer"]) == ["generation", "process", "released"]
    (found,) = said["found"]
    assert list(found) == FOUND_KEYS
    assert (found["epoch"], found["lease"], found["step"]) == (0, "expired", step)
    assert f"instant {found['instant']} (epoch 0)\n  decision  {found['decision']}\n" in text.out
    assert f"  manifest  {found['manifest']}\n  → {step}: {found['reason']}\n    would: " in text.out

    ended = call("recover", job.file, "--json")
    assert ended.code == 0
    assert [each["instant"] for each in ended.json["settled"]] == [found["instant"]]
    assert list(ended.json["settled"][0]) == ["instant", "step", "reason"]
    assert ended.json["settled"][0]["step"] == ("recommit" if rows else "rollback")
    assert job.is_settled()
    assert job.ids().total() == rows
    assert "nothing is pending\n" in call("recover", job.file).out
    assert job.tideline("run").code == 0
    assert job.ids() == Counter(range(100))


def test_recover_waits_for_a_writer_that_lives_and_says_so(call: Call, job: Job) -> None:
    works = job.start("run", env={"TIDELINE_FREEZE_AT": "begun"})
    wait_until_frozen(works)
    before = tree(job.folder)
    looked = call("recover", job.file, "--dry-run")
    assert looked.code == 3
    assert "wait: its writer may be alive" in looked.out
    assert "waiting for a writer that may be alive: run again later, or use --force" in looked.out
    assert tree(job.folder) == before


def test_forced_recovery_does_not_wait_and_fences_the_writer(call: Call, job: Job) -> None:
    job.write(writer={"lease_ttl": "1h"})
    works = job.start("run", env={"TIDELINE_FREEZE_AT": "written"})
    wait_until_frozen(works)
    ended = call("recover", job.file, "--force", "--json")
    assert ended.code == 0
    assert ended.json["settled"][0]["step"] == "rollback"
    works.send_signal(signal.SIGCONT)
    assert finish(works).code == 7
    assert job.is_settled()


def test_recover_takes_over_from_a_frozen_writer_when_its_lease_ends(call: Call, job: Job) -> None:
    job.write(writer={"lease_ttl": "1s"})
    works = job.start("run", env={"TIDELINE_FREEZE_AT": "manifest"})
    wait_until_frozen(works)
    ended = call("recover", job.file)
    assert ended.code == 0, ended.err
    assert f"process {works.pid} on " in ended.err and "--force takes over at once" in ended.err
    assert job.ids() == Counter(range(100))


def test_recover_and_show_work_without_java(job: Job) -> None:
    job.killed_at("manifest")
    for command in ("show", "recover", "show"):
        assert job.tideline(command, program=SPARK, env={"JAVA_HOME": "/nowhere"}).code == 0
    assert job.ids() == Counter(range(100))


def test_recover_loads_nothing_that_reads_or_writes_rows(job: Job) -> None:
    job.killed_at("manifest")
    ended = job.tideline("recover", program=(sys.executable, "-X", "importtime", "-m", "ingest"))
    assert ended.code == 0 and job.ids() == Counter(range(100))
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines() if line.startswith("import time:")}
    assert "sinks.delta.log" in loaded, "of what an entry point names, -X importtime shows what it imports"
    # Importing them took a fifth of the command's time.
    assert not {"pyarrow.compute", "pyarrow.parquet", "pyarrow.fs", "fsspec", "asyncio", "pyspark"} & loaded


@pytest.mark.parametrize("command", [[], ["run"], ["recover"], ["show"], ["inspect"], ["offsets"], ["watch"], ["demo"]])
def test_help_fits_80_columns(call: Call, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = call(*command, "--help")
    assert ended.code == 0
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    if not command:
        assert all(f"{code} " in ended.out for code in range(9)), "each exit code is named"


def test_interrupted_wait_of_recover_leaves_everything_as_it_was(job: Job) -> None:
    job.write(writer={"lease_ttl": "1h"})
    wait_until_frozen(job.start("run", env={"TIDELINE_FREEZE_AT": "manifest"}))
    before = without_scratch(tree(job.folder))
    waiting = job.start("recover")
    read_until(waiting, "--force takes over at once")
    waiting.send_signal(signal.SIGINT)
    assert finish(waiting).code == 130
    assert without_scratch(tree(job.folder)) == before


def without_scratch(tree: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """A tree without unfinished puts, which the store's probe creates and the next start removes."""
    return {path: entry for path, entry in tree.items() if "/.tideline-tmp" not in path}
