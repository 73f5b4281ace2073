"""Tables that were deleted, recreated, overwritten or restored, and timelines that are older than their tables."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Call
from tests.job import Job
from tests.waiting import wait_until_frozen

FOREIGN = pa.table({"id": pa.array([-1], pa.int64()), "host": ["foreign"]})


@pytest.fixture
def lake(job: Job, call: Call) -> Job:
    """A job with three epochs of 100 rows; the first rejected 2 records; the timeline lies outside the tables."""
    job.write(
        targets=[{"type": "delta", "path": f"{job.folder}/lake", "name": "events"}],
        timeline={"path": f"{job.folder}/timeline"},
        quarantine={"path": f"{job.folder}/bad", "name": "bad"},
        spark=None,
    )
    assert call("run", job.file).code == 0
    for number in (1, 2):
        job.append("a.jsonl", range(100 * number, 100 * number + 100))
        assert call("run", job.file).code == 0
    return job


def delete(lake: Path) -> None:
    shutil.rmtree(lake)


def delete_the_log(lake: Path) -> None:
    shutil.rmtree(lake / "_delta_log")


def make_anew(lake: Path) -> None:
    schema = DeltaTable(lake).schema()
    shutil.rmtree(lake)
    DeltaTable.create(str(lake), schema)
    write_deltalake(lake, FOREIGN, mode="append")


def overwrite(lake: Path) -> None:
    write_deltalake(lake, FOREIGN, mode="overwrite")


def restore(lake: Path) -> None:
    DeltaTable(lake).restore(0)


def restore_and_append(lake: Path) -> None:
    restore(lake)
    for _ in range(3):
        write_deltalake(lake, FOREIGN, mode="append")


def restore_from_a_copy(lake: Path) -> None:
    for version in (1, 2):
        (lake / "_delta_log" / f"{version:020d}.json").unlink()


def overwrite_and_restore_in_between(lake: Path) -> None:
    overwrite(lake)
    DeltaTable(lake).restore(1)


def compact_and_restore_behind(lake: Path) -> None:
    DeltaTable(lake).optimize.compact()
    DeltaTable(lake).restore(0)


LOSSES: list[tuple[Callable[[Path], None], str, str]] = [
    (delete, "was deleted", "epochs 0-2 (300 rows)"),
    (delete_the_log, "was deleted", "epochs 0-2 (300 rows)"),
    (make_anew, "was made anew", "epochs 0-2 (300 rows)"),
    (overwrite, "was overwritten (WRITE) by version 3", "epochs 0-2 (300 rows)"),
    (restore, "was restored to version 0 by version 3", "epochs 1-2 (200 rows)"),
    (restore_and_append, "was restored to version 0 by version 3", "epochs 1-2 (200 rows)"),
    (restore_from_a_copy, "has epochs up to 0 only", "epochs 1-2 (200 rows)"),
    (overwrite_and_restore_in_between, "was restored to version 1 by version 4", "epoch 2 (100 rows)"),
    (compact_and_restore_behind, "was restored to version 0 by version 4", "epochs 1-2 (200 rows)"),
]


@pytest.mark.parametrize(("change", "how", "gone"), LOSSES)
def test_a_table_that_lost_epochs_stops_the_start_and_names_them(
    lake: Job, call: Call, change: Callable[[Path], None], how: str, gone: str
) -> None:
    change(lake.lake)
    lake.append("a.jsonl", range(300, 400))
    before = lake.ids()
    ended = call("run", lake.file)
    said = " ".join(ended.err.split())
    assert ended.code == 5, said
    assert f"events {how}" in said and f"{gone} {'are' if '-' in gone else 'is'} gone from it" in said
    assert "tideline replay CONF" in said
    assert lake.ids() == before


def delete_rows(lake: Path) -> None:
    DeltaTable(lake).delete("id < 50")


def update_rows(lake: Path) -> None:
    DeltaTable(lake).update(updates={"host": "'x'"}, predicate="id < 50")


def compact(lake: Path) -> None:
    DeltaTable(lake).optimize.compact()


def replace_some(lake: Path) -> None:
    write_deltalake(lake, FOREIGN, mode="overwrite", predicate="id = -1")


def restore_to_what_has_all(lake: Path) -> None:
    overwrite(lake)
    DeltaTable(lake).restore(2)


def checkpoint(lake: Path) -> None:
    write_deltalake(lake, FOREIGN, mode="append")
    DeltaTable(lake).create_checkpoint()


def clean_the_log(lake: Path) -> None:
    checkpoint(lake)
    for entry in sorted((lake / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()


@pytest.mark.parametrize(
    "change",
    [delete_rows, update_rows, compact, replace_some, restore_to_what_has_all, checkpoint, clean_the_log],
)
def test_what_people_do_with_their_table_stops_nothing(lake: Job, call: Call, change: Callable[[Path], None]) -> None:
    change(lake.lake)
    lake.append("a.jsonl", range(300, 400))
    ended = call("run", lake.file)
    assert ended.code == 0, ended.err
    ids = Counter(DeltaTable(lake.lake).to_pyarrow_table(columns=["id"])["id"].to_pylist())
    assert all(ids[number] == 1 for number in range(300, 400))


def test_a_table_that_is_changed_while_an_epoch_is_written_refuses_its_commit(lake: Job) -> None:
    """The check at the start passes; the commit checks the table again, after the change."""
    lake.append("a.jsonl", range(300, 400))
    process = lake.start("run", env={"TIDELINE_FREEZE_AT": "manifest"})
    wait_until_frozen(process)
    restore(lake.lake)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    said = " ".join(err.split())
    assert process.returncode == 5, said
    assert "was restored to version 0 by version 3: epochs 1-2 are gone from it" in said
    assert Counter(lake.ids()) == dict.fromkeys(range(100), 1)


def test_a_quarantine_that_lost_epochs_stops_the_start_too(lake: Job, call: Call) -> None:
    shutil.rmtree(lake.folder / "bad")
    ended = call("run", lake.file)
    assert ended.code == 5
    assert "bad was deleted: epoch 0 (2 rows) is gone" in " ".join(ended.err.split())


def test_a_target_that_never_had_a_row_need_not_be_there(job: Job, call: Call) -> None:
    (job.folder / "logs" / "a.jsonl").write_text('{"id": 1}\n')
    job.write(spark=None)
    assert call("run", job.file).code == 0
    job.append("a.jsonl", [2])
    assert call("run", job.file).code == 0


def test_a_timeline_that_is_older_than_its_table_stops_the_start_before_anything_is_touched(
    lake: Job, call: Call
) -> None:
    """The timeline lacks its newest epoch: a new epoch would reuse the number and count as applied."""
    hoodie = lake.folder / "timeline" / ".hoodie"
    newest = max(path.name[:17] for path in (hoodie / "timeline").glob("*.commit.requested"))
    for path in (hoodie / "timeline").glob(f"{newest}*"):
        path.unlink()
    (hoodie / "decisions" / f"{2:020d}.json").unlink()
    lake.append("a.jsonl", range(300, 400))
    before = sorted(path.name for path in lake.lake.rglob("*"))
    for command in ("run", "recover"):
        ended = call(command, lake.file)
        said = " ".join(ended.err.split())
        assert ended.code == 5, said
        assert "events has epoch 2, which" in said and "has not decided" in said
        assert "older than this target" in said
    assert sorted(path.name for path in lake.lake.rglob("*")) == before
    checked = call("fsck", lake.file)
    assert checked.code == 6
    assert "events has epoch 2" in checked.out and "clean" not in checked.out.splitlines()[-1]
    assert checked.out.splitlines()[3].startswith("ahead: 2, "), "the restored backup comes first"
    assert "undecided" not in checked.out and "take these files out" not in checked.out, "rows of the lost epoch"


@pytest.mark.parametrize(("change", "how", "gone"), LOSSES)
def test_fsck_recover_and_report_tell_it_and_do_not_say_clean(
    lake: Job, call: Call, change: Callable[[Path], None], how: str, gone: str
) -> None:
    change(lake.lake)
    checked = call("fsck", lake.file)
    assert checked.code == 6, checked.out
    assert f"events {how}" in checked.out and gone in checked.out
    recovered = call("recover", lake.file)
    assert recovered.code == 5, recovered.out
    assert f"events {how}" in recovered.out and gone in recovered.out
    page = lake.folder / "page.html"
    call("report", lake.file, "--output", str(page))
    assert f"events {how}" in page.read_text() and gone in page.read_text()
    assert "; not every target has all up to it." in page.read_text()
    assert "that every target has" not in page.read_text()


def vacuum(lake: Path) -> None:
    """Delete the data files that no reader sees."""
    if not (lake / "_delta_log").exists():
        return
    seen = {Path(uri).name for uri in DeltaTable(lake).file_uris()}
    for path in lake.rglob("*.parquet"):
        if path.name not in seen and "_delta_log" not in path.parts:
            path.unlink()


@pytest.mark.parametrize("are_files_gone", [False, True])
@pytest.mark.parametrize("change", [change for change, _, _ in LOSSES])
def test_replay_puts_every_lost_row_back_once_and_the_job_goes_on(
    lake: Job, call: Call, change: Callable[[Path], None], are_files_gone: bool
) -> None:
    change(lake.lake)
    if are_files_gone:
        vacuum(lake.lake)
    for _ in range(2):
        dry = call("replay", lake.file, "--dry-run")
        assert dry.code == 5 and "would be put back" in dry.out
    done = call("replay", lake.file)
    assert done.code == 0, done.err
    assert "rows put back" in done.out
    again = call("replay", lake.file)
    assert again.code == 0 and again.out.startswith("nothing is lost")
    lake.append("a.jsonl", range(300, 400))
    assert call("run", lake.file).code == 0
    ids = lake.ids()
    del ids[-1]
    assert ids == Counter(range(400))
    checked = call("fsck", lake.file, "--deep")
    assert checked.code == 0, checked.out
    assert call("fsck", lake.file, "--fix").code == 0
    assert call("recover", lake.file).code == 0
    ids = lake.ids()
    del ids[-1]
    assert ids == Counter(range(400))


def test_a_dry_run_touches_nothing_and_says_how_each_epoch_comes_back(lake: Job, call: Call) -> None:
    overwrite(lake.lake)
    (gone,) = [path for path in lake.lake.glob("*-0_*.parquet") if path.stat().st_size == min_size(lake.lake)][:1]
    gone.unlink()
    before = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*")}
    said = call("replay", lake.file, "--dry-run", "--json")
    assert said.code == 5
    assert sorted(each["way"] for each in said.json["back"]) == ["files", "files", "source"]
    (read_again,) = [each for each in said.json["back"] if each["way"] == "source"]
    assert gone.name in read_again["why"]
    assert said.json["losses"] == [
        {
            "target": "events",
            "how": "was overwritten (WRITE) by version 3",
            "epochs": [[0, 2]],
            "rows": 300,
            "doubt": None,
        }
    ]
    assert {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*")} == before


def min_size(lake: Path) -> int:
    return min(path.stat().st_size for path in lake.glob("*-0_*.parquet"))


def test_a_loss_that_is_accepted_is_a_hole_on_the_timeline_and_the_job_goes_on(lake: Job, call: Call) -> None:
    restore(lake.lake)
    done = call("replay", lake.file, "--accept-loss")
    assert done.code == 0, done.err
    assert "events: epochs 1-2 (200 rows) given up" in done.out
    assert done.out.splitlines()[-1] == "epoch 3: 200 rows given up"
    for options in ([], ["--dry-run"]):
        again = call("replay", lake.file, *options)
        assert (again.code, again.out) == (0, "nothing more is lost; epochs 1-2 (200 rows) of events were given up\n")
    assert call("replay", lake.file, "--json").json["given_up_before"] == [
        {"target": "events", "epochs": [[1, 2]], "rows": 200}
    ]
    page = lake.folder / "page.html"
    assert call("report", lake.file, "--output", str(page)).code == 0
    assert "Epochs 1-2 were given up for events, by epoch 3." in page.read_text()
    lake.append("a.jsonl", range(300, 400))
    assert call("run", lake.file).code == 0
    assert lake.ids() == Counter([*range(100), *range(300, 400)])
    assert "epochs given up for events" in " ".join(call("show", lake.file).out.split())
    assert call("fsck", lake.file).code == 0
    assert call("recover", lake.file).code == 0


@pytest.mark.parametrize("change", [delete, make_anew, overwrite])
def test_a_table_that_is_given_up_as_a_whole_begins_anew(lake: Job, call: Call, change: Callable[[Path], None]) -> None:
    change(lake.lake)
    assert call("replay", lake.file, "--accept-loss").code == 0
    assert call("fsck", lake.file).code == 0
    for number in (3, 4):
        lake.append("a.jsonl", range(100 * number, 100 * number + 100))
        assert call("run", lake.file).code == 0
    ids = lake.ids()
    del ids[-1]
    assert ids == Counter(range(300, 500))
    assert call("fsck", lake.file).code == 0


def test_some_epochs_are_put_back_and_the_others_given_up_in_one_step_or_not_at_all(lake: Job, call: Call) -> None:
    overwrite(lake.lake)
    refused = call("replay", lake.file, "--epochs", "1..2")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert "leaves events: epoch 0 behind" in said
    assert "tideline replay CONF --epochs 1..2 --accept-loss gives them up" in said, "and no epoch more"
    assert lake.ids() == Counter([-1])
    done = call("replay", lake.file, "--epochs", "1..2", "--accept-loss")
    assert done.out.splitlines()[-1] == "epoch 3: 200 rows put back, 100 rows given up"
    assert lake.ids() == Counter([-1, *range(100, 300)])
    assert call("run", lake.file).code == 0
    assert call("fsck", lake.file).code == 0


@pytest.mark.parametrize("given", ["x", "3..", "7..3", "-1"])
def test_epochs_that_are_no_range_are_refused(lake: Job, call: Call, given: str) -> None:
    refused = call("replay", lake.file, f"--epochs={given}")
    assert refused.code == 2 and "such as 3..7" in refused.err


def test_records_that_are_gone_from_table_and_source_are_named_and_nothing_is_written(lake: Job, call: Call) -> None:
    overwrite(lake.lake)
    vacuum(lake.lake)
    log = lake.folder / "logs" / "a.jsonl"
    log.write_bytes(log.read_bytes()[:-500])
    ended = call("replay", lake.file)
    assert ended.code == 4, ended.err
    assert "a.jsonl" in ended.err
    assert lake.ids() == Counter([-1])
    assert lake.stray_files() == set()
    assert call("run", lake.file).code == 5


def test_a_source_that_does_not_give_the_same_rows_any_more_puts_nothing_back(lake: Job, call: Call) -> None:
    overwrite(lake.lake)
    vacuum(lake.lake)
    log = lake.folder / "logs" / "a.jsonl"
    log.write_text(log.read_text().replace('{"id": 7, ', '{"id":"7"x'))
    ended = call("replay", lake.file)
    assert ended.code in (4, 6), ended.err
    assert lake.ids() == Counter([-1])


@pytest.mark.parametrize("are_files_gone", [False, True])
def test_a_quarantine_is_put_back_like_any_table(lake: Job, call: Call, are_files_gone: bool) -> None:
    bad = lake.folder / "bad"
    before = DeltaTable(bad).to_pyarrow_table().to_pylist()
    assert len(before) == 2
    shutil.rmtree(bad if are_files_gone else bad / "_delta_log")
    done = call("replay", lake.file)
    assert done.code == 0, done.err
    assert DeltaTable(bad).to_pyarrow_table().to_pylist() == before
    assert call("run", lake.file).code == 0
    assert call("fsck", lake.file).code == 0
    assert lake.ids() == Counter(range(300))


def test_rows_that_come_back_from_the_source_bear_the_epoch_that_read_them_first(job: Job, call: Call) -> None:
    job.write(spark=None, lineage=True, timeline={"path": f"{job.folder}/timeline"})
    assert call("run", job.file).code == 0
    job.append("a.jsonl", range(100, 200))
    assert call("run", job.file).code == 0

    def rows() -> list[tuple[int, int, int]]:
        table = DeltaTable(job.lake).to_pyarrow_table()
        return sorted(zip(*(table[name].to_pylist() for name in ("id", "_offset", "_epoch")), strict=True))

    before = rows()
    delete(job.lake)
    assert call("replay", job.file).code == 0
    assert rows() == before


def test_a_change_whose_extent_nobody_knows_is_not_guessed_and_goes_on_where_a_person_says_so(
    lake: Job, call: Call
) -> None:
    entry = lake.lake / "_delta_log" / f"{3:020d}.json"
    path = DeltaTable(lake.lake).file_uris()[0].rpartition("/")[2]
    removed = {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}}
    entry.write_text(json.dumps({"commitInfo": {"operation": "FSCK"}}) + "\n" + json.dumps(removed))
    lake.append("a.jsonl", range(300, 400))
    ended = call("run", lake.file)
    assert ended.code == 5 and "it cannot be told which epochs it has lost" in " ".join(ended.err.split())
    refused = call("replay", lake.file)
    assert refused.code == 2, refused.err
    assert call("replay", lake.file, "--accept-loss").code == 0
    assert call("run", lake.file).code == 0
    assert len(lake.ids()) == 300


def test_what_was_put_back_and_is_lost_again_is_put_back_again(lake: Job, call: Call) -> None:
    for turn in range(3):
        overwrite(lake.lake) if turn % 2 else restore(lake.lake)
        assert call("run", lake.file).code == 5
        done = call("replay", lake.file)
        assert done.code == 0, done.err
        ids = lake.ids()
        del ids[-1]
        assert ids == Counter(range(300))
        assert call("fsck", lake.file).code == 0


@pytest.mark.parametrize("losses", [1, 2])
def test_what_a_replay_had_put_back_comes_back_again_though_its_files_are_gone(
    lake: Job, call: Call, losses: int
) -> None:
    """A replay has no offsets of its own: the epochs that it carries have."""
    restore(lake.lake)
    assert call("replay", lake.file).code == 0
    for number in range(losses):
        newest = max(lake.lake.glob("*.parquet"), key=lambda file: (file.stat().st_mtime_ns, file.name))
        newest.unlink()
        shutil.rmtree(lake.lake / "_delta_log")
        planned = call("replay", lake.file, "--dry-run")
        assert planned.code == 5, planned.out + planned.err
        assert "would be put back from the source" in planned.out, number
        replayed = call("replay", lake.file)
        assert replayed.code == 0, replayed.out + replayed.err
        assert lake.ids() == Counter(range(300))
    assert call("run", lake.file).code == 0
    assert call("fsck", lake.file).code == 0
    assert lake.ids() == Counter(range(300))


def test_a_timeline_of_before_tables_were_known_by_their_ids_is_checked_all_the_same(lake: Job, call: Call) -> None:
    """The manifests do not record the `Base` of their parts."""
    for path in (lake.folder / "timeline" / ".hoodie" / "timeline").glob("*.inflight"):
        content = json.loads(path.read_text())
        for part in content["parts"]:
            assert part["detail"].pop("base")
        path.write_text(json.dumps(content))
    assert call("run", lake.file).code == 0
    shutil.rmtree(lake.folder / "bad")
    restore(lake.lake)
    said = " ".join(call("run", lake.file).err.split())
    assert "events was restored to version 0 by version 3: epochs 1-2 (200 rows)" in said
    assert "bad was deleted: epoch 0 (2 rows)" in said
    assert call("replay", lake.file).code == 0
    assert lake.ids() == Counter(range(300))


def make_anew_as_long(lake: Path) -> None:
    """Recreate the table with the same next version."""
    make_anew(lake)
    write_deltalake(lake, FOREIGN, mode="append")


@pytest.mark.parametrize(
    ("change", "how", "left"),
    [
        (delete, "was deleted", 0),
        (make_anew, "was made anew", 1),
        (make_anew_as_long, "was made anew", 2),
    ],
)
def test_a_table_that_is_replaced_between_the_look_and_the_put_of_a_commit_keeps_no_entry_of_it(
    lake: Job, call: Call, change: Callable[[Path], None], how: str, left: int
) -> None:
    lake.append("a.jsonl", range(300, 400))
    process = lake.start("run", env={"TIDELINE_FREEZE_AT": "part-committing"})
    wait_until_frozen(process)
    change(lake.lake)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    said = " ".join(err.split())
    assert process.returncode == 5, said
    assert f"{lake.lake} {how}" in said and "tideline replay CONF" in said
    assert lake.ids() == Counter({-1: left} if left else {})
    for command in ("run", "recover"):
        ended = call(command, lake.file)
        assert ended.code == 5 and how in " ".join((ended.out + ended.err).split())
    assert call("fsck", lake.file).code == 6
    shutil.rmtree(lake.lake)
    done = call("replay", lake.file)
    assert done.code == 0, done.err
    assert call("run", lake.file).code == 0


def without_entries(*versions: int) -> Callable[[Path], None]:
    def change(lake: Path) -> None:
        for version in versions:
            (lake / "_delta_log" / f"{version:020d}.json").unlink()

    return change


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (without_entries(1), "entry 1 of its log is gone"),
        (without_entries(0), "entry 0 of its log is gone"),
        (without_entries(0, 1), "entries 0-1 of its log are gone"),
    ],
)
def test_a_table_whose_log_cannot_be_opened_is_told_alike_and_comes_back_once_its_log_is_removed(
    lake: Job, call: Call, change: Callable[[Path], None], gone: str
) -> None:
    change(lake.lake)
    lake.append("a.jsonl", range(300, 400))
    before = sorted(lake.lake.rglob("*"))
    for command in ("run", "recover", "recover --dry-run", "replay", "replay --dry-run", "replay --accept-loss"):
        name, *options = command.split()
        ended = call(name, lake.file, *options)
        said = " ".join(ended.err.split())
        assert (command, ended.code) == (command, 5), said
        assert f"events: the Delta table at {lake.lake} cannot be opened: {gone}" in said, said
        assert "remove" in said and "tideline replay CONF" in said
    checked = call("fsck", lake.file)
    assert checked.code == 6, checked.err
    assert gone in " ".join(checked.out.split())
    page = lake.folder / "page.html"
    call("report", lake.file, "--output", str(page))
    assert gone in page.read_text()
    assert "; whether every target has it is not known." in page.read_text()
    assert "that every target has" not in page.read_text()
    assert sorted(lake.lake.rglob("*")) == before
    shutil.rmtree(lake.lake / "_delta_log")
    assert call("replay", lake.file).code == 0
    assert call("run", lake.file).code == 0
    assert lake.ids() == Counter(range(400))
    checked = call("fsck", lake.file, "--deep")
    assert checked.code == 0, checked.out


def test_fsck_tells_a_deleted_table_once(lake: Job, call: Call) -> None:
    shutil.rmtree(lake.lake)
    found = call("fsck", lake.file, "--json").json["findings"]
    assert [(each["where"], each["what"]) for each in found] == [("events", "epochs 0-2")]
    assert "events was deleted: epochs 0-2 (300 rows) are gone from it" in found[0]["detail"]


def test_one_epoch_is_gone_and_a_question_ends_its_sentence(lake: Job, call: Call) -> None:
    DeltaTable(lake.lake).restore(1)
    said = " ".join(call("run", lake.file).err.split())
    assert "epoch 2 (100 rows) is gone from it. Nothing" in said
    assert call("replay", lake.file).code == 0
    hoodie = lake.folder / "timeline" / ".hoodie"
    newest = max(path.name[:17] for path in (hoodie / "timeline").glob("*.commit.requested"))
    for path in (hoodie / "timeline").glob(f"{newest}*"):
        path.unlink()
    (hoodie / "decisions" / f"{3:020d}.json").unlink()
    for options in ([], ["--dry-run"]):
        ended = call("recover", lake.file, *options)
        said = " ".join((ended.out + ended.err).split())
        assert ended.code == 5 and "deleted from it? Nothing was written. Restore the newest" in said
        assert "tideline replay" not in said


def test_a_replay_says_what_happened_also_where_an_epoch_was_pending(lake: Job, call: Call) -> None:
    lake.append("a.jsonl", range(300, 400))
    process = lake.start("run", env={"TIDELINE_FREEZE_AT": "manifest"})
    wait_until_frozen(process)
    overwrite(lake.lake)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    done = call("replay", lake.file)
    assert done.code == 0, done.err
    assert "events was overwritten (WRITE) by version 3" in " ".join(done.out.split())
    assert "did not end" not in done.out


def test_a_replay_of_the_quarantine_says_that_the_quarantine_is_gone(lake: Job, call: Call) -> None:
    shutil.rmtree(lake.folder / "bad")
    for options in ([], ["--dry-run"]):
        ended = call("replay-quarantine", lake.file, *options)
        said = " ".join((ended.out + ended.err).split())
        assert ended.code == 5, said
        assert "bad was deleted: epoch 0 (2 rows) is gone from it" in said and "tideline replay CONF" in said


def test_a_data_file_that_is_gone_is_named_by_replay_and_comes_back_once_the_log_is_removed(
    lake: Job, call: Call
) -> None:
    gone = Path(DeltaTable(lake.lake).file_uris()[1])
    gone.unlink()
    for options in ([], ["--dry-run"]):
        ended = call("replay", lake.file, *options)
        said = " ".join(ended.err.split())
        assert ended.code == 5, ended.out
        assert f"names a data file that is gone: {gone.name}" in said and "remove the table's _delta_log" in said
    shutil.rmtree(lake.lake / "_delta_log")
    assert call("replay", lake.file).code == 0
    assert lake.ids() == Counter(range(300))
    checked = call("fsck", lake.file, "--deep")
    assert checked.code == 0, checked.out
    assert call("replay", lake.file).out.startswith("nothing is lost")


def rows(job: Job) -> list[dict[str, object]]:
    table = job.table()
    assert table is not None
    found: list[dict[str, object]] = table.to_pyarrow_table().to_pylist()
    return found


def test_an_epoch_is_not_read_again_by_a_job_file_that_gives_other_values(job: Job) -> None:
    dated = {"schema": {"id": "bigint", "at": "timestamp"}, "timeline": {"path": f"{job.folder}/timeline"}}
    how = {"timestamp_format": "%d %b %H:%M", "timezone": "Europe/Berlin"}
    job.write(source=job.source(year=2025, **how), **dated)
    (job.folder / "logs" / "a.jsonl").write_text('{"id": 1, "at": "01 Jul 10:00"}\n')
    assert job.tideline("run").code == 0
    first = rows(job)
    shutil.rmtree(job.lake)
    job.write(source=job.source(year=2024, **how), **dated)
    refused = job.tideline("replay")
    assert refused.code == 2
    assert "source.year was '2025', now it is '2024'" in " ".join(refused.err.split())
    job.write(source=job.source(year=2025, **how), **dated)
    assert job.tideline("replay").code == 0
    assert rows(job) == first
