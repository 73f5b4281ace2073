"""Missing data files of an epoch that is decided and not yet applied: it is not committed without them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Call
from tests.job import Job


@pytest.fixture
def pending(job: Job, call: Call) -> Job:
    """A job with epochs 0 and 1 in both tables; epoch 2 is decided and in neither."""
    job.write(
        spark=None,
        targets=[{"type": "delta", "path": f"{job.folder}/{table}", "name": table} for table in ("lake", "copy")],
        timeline={"path": f"{job.folder}/timeline"},
        quarantine={"path": f"{job.folder}/bad", "name": "bad"},
    )
    assert call("run", job.file).code == 0
    job.append("a.jsonl", range(100, 200))
    assert call("run", job.file).code == 0
    job.append("a.jsonl", range(200, 300), bad=1)
    job.killed_at("part-committing")
    return job


def newest_file(table: Path) -> Path:
    """The data file of the pending epoch."""
    named = {Path(uri).name for uri in DeltaTable(table).file_uris()}
    (found,) = (path for path in table.rglob("*.parquet") if path.name not in named)
    return found


def remove_the_file(table: Path) -> None:
    newest_file(table).unlink()


def cut_the_file_off(table: Path) -> None:
    path = newest_file(table)
    path.write_bytes(path.read_bytes()[:-1])


def remove_the_table(table: Path) -> None:
    shutil.rmtree(table)


def restore_and_remove_the_file(table: Path) -> None:
    remove_the_file(table)
    DeltaTable(table).restore(0)


CHANGES = (remove_the_file, cut_the_file_off, remove_the_table, restore_and_remove_the_file)


def files(job: Job) -> dict[str, bytes]:
    """Every object of tables and timeline, except the writers' records."""
    there = (path for name in ("lake", "copy", "bad", "timeline") for path in (job.folder / name).rglob("*"))
    return {str(path): path.read_bytes() for path in there if path.is_file() and "writers" not in path.parts}


def check(job: Job, call: Call, rows: int = 300) -> None:
    """Every row is in every table once, and the job goes on."""
    assert call("run", job.file).code == 0
    for table in ("lake", "copy"):
        assert job.ids(table) == Counter(range(rows)), table
    assert DeltaTable(job.folder / "bad").to_pyarrow_table().num_rows == 3
    checked = call("fsck", job.file, "--deep")
    assert checked.code == 0, checked.out
    assert call("replay", job.file).out.startswith("nothing is lost")


@pytest.mark.parametrize("table", ["lake", "copy", "bad"])
@pytest.mark.parametrize("command", ["run", "recover"])
def test_a_decided_epoch_whose_data_file_is_gone_is_refused_and_nothing_is_touched(
    pending: Job, call: Call, command: str, table: str
) -> None:
    gone = newest_file(pending.folder / table)
    kept = gone.read_bytes()
    gone.unlink()
    before = files(pending)
    said = call(command, pending.file)
    words = " ".join(said.err.split())
    assert said.code == 5, said.err
    assert f"{table}: {gone.name} is missing" in words and "epoch 2" in words and "tideline replay CONF" in words
    assert words.count("Next: ") == 1, "a run does not mend it"
    assert files(pending) == before
    looked = call("recover", pending.file, "--dry-run")
    assert f"{gone.name} is missing" in looked.out and "→ refuse: " in looked.out
    checked = call("fsck", pending.file)
    assert checked.code == 6 and gone.name in checked.out, checked.out
    gone.write_bytes(kept)
    check(pending, call)


@pytest.mark.parametrize(
    ("tables", "change"),
    [
        (tables, change)
        for tables in (("lake",), ("copy",), ("lake", "copy"), ("bad",), ("lake", "copy", "bad"))
        for change in CHANGES
        if change is not restore_and_remove_the_file or "bad" not in tables  # the quarantine has one version only
    ],
)
def test_a_replay_puts_a_pending_epoch_without_its_files_back_once(
    pending: Job, call: Call, tables: tuple[str, ...], change: Callable[[Path], None]
) -> None:
    backup = pending.folder / "backup"
    for table in tables:
        shutil.copytree(pending.folder / table, backup / table)
        change(pending.folder / table)
    assert call("run", pending.file).code == 5
    looked = call("replay", pending.file, "--dry-run")
    assert looked.code == 5 and "epoch 2" in looked.out, looked.out + looked.err
    replayed = call("replay", pending.file)
    assert replayed.code == 0, replayed.err
    check(pending, call)
    for table in tables:  # restored data files duplicate no row
        for path in (backup / table).glob("*.parquet"):
            shutil.copy(path, pending.folder / table)
    check(pending, call)


def test_a_pending_epoch_without_its_files_is_given_up_where_a_person_says_so(pending: Job, call: Call) -> None:
    remove_the_file(pending.lake)
    (pending.folder / "logs" / "a.jsonl").rename(pending.folder / "kept")
    refused = call("replay", pending.file)
    assert refused.code != 0
    assert "epoch 2" in refused.err
    accepted = call("replay", pending.file, "--accept-loss")
    assert accepted.code == 0, accepted.err
    (pending.folder / "kept").rename(pending.folder / "logs" / "a.jsonl")
    assert call("run", pending.file).code == 0
    assert pending.ids() == Counter(range(200))
    assert pending.ids("copy") == Counter(range(300))
    assert call("fsck", pending.file, "--deep").code == 0
