"""Inconsistencies are found, named and, where a decision allows it, deleted."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Call
from tests.job import Job
from timeline.history.timeline import Timeline
from timeline.instant import Action
from timeline.stores.opening import open_store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with two completed epochs and a rolled-back one between them, and beside it a copy of its folder."""
    job = Job(tmp_path_factory.mktemp("fsck") / "job")
    job.folder.mkdir()
    job.write()
    job.append("a.jsonl", range(100), bad=2)
    assert job.tideline("run").code == 0
    job.append("a.jsonl", range(100, 150))
    assert job.tideline("run", env={"TIDELINE_CRASH_AT": "task-written"}).code < 0
    assert job.tideline("recover", "--force").code == 0
    assert job.tideline("run").code == 0
    shutil.copytree(job.folder, job.folder.with_name("copy"))
    return job


@pytest.fixture
def settled(made: Job) -> Iterator[Job]:
    """The job restored from its copy, at the same path because names of targets contain the path."""
    shutil.rmtree(made.folder)
    shutil.copytree(made.folder.with_name("copy"), made.folder)
    job = Job(made.folder)
    yield job
    job.close()


def found(job: Job, call: Call, *options: str) -> Any:
    ended = call("fsck", job.file, "--json", *options)
    report = json.loads(ended.out)
    assert ended.code == (0 if report["clean"] else 6)
    return report


def kinds(report: Any) -> Counter[str]:
    return Counter(finding["problem"] for finding in report["findings"])


def data_files(job: Job) -> list[Path]:
    return sorted(job.lake.rglob("*-0_*.parquet"), key=lambda path: path.name.rpartition("_")[2])


def rolled_back(job: Job) -> str:
    (rollback,) = Timeline(job.timeline()).by_action(Action.ROLLBACK).history().entries
    assert rollback.rollback is not None
    return rollback.rollback.instant


def copy_of(path: Path, *, instant: str) -> Path:
    """A copy of a data file under a new file id, as a task attempt of that instant writes it."""
    name = path.name.replace(path.name[:8], "0badc0de", 1)
    copy = path.with_name(f"{name.rpartition('_')[0]}_{instant}.parquet")
    shutil.copy(path, copy)
    return copy


def test_healthy_job_is_clean_however_closely_one_looks(settled: Job, call: Call) -> None:
    report = found(settled, call, "--deep")
    assert report["clean"] and report["findings"] == [] and not report["moving"]
    assert (report["epochs"], report["rows"]) == (2, 150)
    assert call("fsck", settled.file).out.splitlines()[-1] == "clean"


def test_files_of_a_rolled_back_instant_are_orphans_and_deleted_on_demand(settled: Job, call: Call) -> None:
    orphan = copy_of(data_files(settled)[0], instant=rolled_back(settled))
    report = found(settled, call)
    (finding,) = report["findings"]
    assert finding["problem"] == "orphan" and finding["is_fixable"]
    assert finding["what"] == orphan.name and finding["bytes"] == orphan.stat().st_size
    assert orphan.exists(), "looking deletes nothing"
    fixed = found(settled, call, "--fix")
    assert fixed["clean"] and [each["what"] for each in fixed["fixed"]] == [orphan.name]
    assert not orphan.exists()
    assert Counter(settled.ids()) == dict.fromkeys(range(150), 1)


def test_copies_that_no_manifest_names_are_orphans(settled: Job, call: Call) -> None:
    file = data_files(settled)[0]
    orphan = copy_of(file, instant=file.stem.rpartition("_")[2])
    assert kinds(found(settled, call)) == {"orphan": 1}
    assert found(settled, call, "--fix")["clean"]
    assert not orphan.exists() and file.exists()


def test_files_of_a_target_that_was_renamed_are_known_and_none_is_left_over(settled: Job, call: Call) -> None:
    """Files that others removed from the table stay too: readers of older versions need them."""
    files = data_files(settled)
    DeltaTable(settled.lake).delete("id < 100")
    settled.write(targets=[{"type": "delta", "path": str(settled.lake), "name": "renamed"}])
    report = found(settled, call, "--fix")
    assert report["clean"] and report["fixed"] == []
    assert all(file.exists() for file in files)


def test_data_of_an_instant_that_the_timeline_does_not_know_is_left_alone(settled: Job, call: Call) -> None:
    stranger = copy_of(data_files(settled)[0], instant="20200101000000000")
    report = found(settled, call, "--fix")
    assert kinds(report) == {"unknown": 1} and report["fixed"] == []
    assert stranger.exists()


def test_files_of_others_are_none_of_our_business(settled: Job, call: Call) -> None:
    (settled.lake / "notes.parquet").write_bytes(b"x")
    file = data_files(settled)[0]
    shutil.copy(file, file.with_name(file.name.replace(file.name[24:36], "0123456789ab")))
    assert found(settled, call)["clean"]


def test_missing_and_changed_files_are_named_and_kept(settled: Job, call: Call) -> None:
    first, second = data_files(settled)
    first.unlink()
    with second.open("ab") as out:
        out.write(b"!")
    report = found(settled, call, "--fix")
    assert {finding["problem"]: finding["what"] for finding in report["findings"]} == {
        "missing": first.name,
        "wrong size": second.name,
    }
    assert second.exists() and report["fixed"] == []
    text = call("fsck", settled.file)
    assert text.code == 6 and text.out.splitlines()[-1] == "2 problems"


def test_rows_that_readers_see_though_nothing_was_decided_are_named(settled: Job, call: Call) -> None:
    table = settled.table()
    assert table is not None
    file = data_files(settled)[0]
    copy = copy_of(file, instant=rolled_back(settled))
    log = settled.lake / "_delta_log"
    adds = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (add,) = (action for action in adds if "add" in action)
    add["add"]["path"] = copy.name
    (log / f"{table.version() + 1:020d}.json").write_text(json.dumps(add) + "\n")
    report = found(settled, call, "--fix")
    assert kinds(report) == {"undecided": 1} and report["fixed"] == []
    assert copy.exists()


def test_table_that_was_restored_to_an_older_version_lacks_an_epoch(settled: Job, call: Call) -> None:
    shutil.rmtree(settled.lake / "_delta_log")
    assert "not applied" in kinds(found(settled, call))


def test_entry_that_was_cut_off_the_tables_log_is_missed(settled: Job, call: Call) -> None:
    table = settled.table()
    assert table is not None
    (settled.lake / "_delta_log" / f"{table.version():020d}.json").unlink()
    report = found(settled, call)
    assert set(kinds(report)) == {"not applied"}
    assert any("epochs up to 0 only" in finding["detail"] for finding in report["findings"])


def test_table_that_was_compacted_and_vacuumed_is_clean(settled: Job, call: Call) -> None:
    table = DeltaTable(settled.lake)
    table.optimize.compact()
    assert found(settled, call, "--deep")["clean"], "compacted"
    # The vacuum of delta-rs deletes all files outside the log, the timeline too: delete only the replaced files.
    for path in data_files(settled):
        path.unlink()
    assert found(settled, call)["clean"], "vacuumed"


def test_rows_deleted_by_others_are_no_damage(settled: Job, call: Call) -> None:
    DeltaTable(settled.lake).delete("id < 10")
    assert found(settled, call)["clean"]


def test_decisions_plans_and_manifests_that_are_gone_break_the_chain(settled: Job, call: Call) -> None:
    hoodie = settled.lake / ".hoodie"
    decision = hoodie / "decisions" / f"{0:020d}.json"
    body = decision.read_bytes()
    decision.unlink()
    report = found(settled, call)
    assert set(kinds(report)) == {"broken chain"}
    assert [finding["what"] for finding in report["findings"]] == [f".hoodie/decisions/{decision.name}"]
    decision.write_bytes(body)
    plan = min((hoodie / "timeline").glob("*.commit.requested"))
    plan.unlink()
    report = found(settled, call)
    assert [finding["what"] for finding in report["findings"]] == [f".hoodie/timeline/{plan.name}"]
    assert "is completed, and its plan" in report["findings"][0]["detail"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"accepted": 99}, "wrong rows"),
        ({"read": 103}, "wrong rows"),
    ],
)
def test_numbers_that_do_not_add_up_are_found(settled: Job, call: Call, change: dict[str, int], problem: str) -> None:
    manifest = min((settled.lake / ".hoodie" / "timeline").glob("*.inflight"))
    content = json.loads(manifest.read_text())
    content["counts"][0] |= change
    manifest.write_text(json.dumps(content))
    assert set(kinds(found(settled, call))) == {problem}


def test_ranges_with_a_gap_between_them_are_found(settled: Job, call: Call) -> None:
    plan = max((settled.lake / ".hoodie" / "timeline").glob("*.commit.requested"))
    content = json.loads(plan.read_text())
    content["ranges"][0]["start"] += 1
    plan.write_text(json.dumps(content))
    report = found(settled, call)
    assert kinds(report) == {"broken chain": 1}
    assert "behind a gap" in report["findings"][0]["detail"]


def test_pending_instant_is_recoverys_and_keeps_its_data(settled: Job, call: Call) -> None:
    settled.append("a.jsonl", range(150, 160))
    assert settled.tideline("run", env={"TIDELINE_CRASH_AT": "task-written"}).code < 0
    before = data_files(settled)
    report = found(settled, call)
    assert kinds(report) == {"pending": 1} and report["clean"]
    refused = call("fsck", settled.file, "--fix", "--force")
    assert refused.code == 2 and "tideline recover" in refused.err
    assert data_files(settled) == before


def test_fix_waits_for_no_living_writer(settled: Job, call: Call) -> None:
    orphan = copy_of(data_files(settled)[0], instant=rolled_back(settled))
    settled.append("a.jsonl", range(150, 160))
    settled.file.write_text(settled.file.read_text().replace("lease_ttl: 3s", "lease_ttl: 12s"))
    process = settled.start("run", "--continuous")
    store = open_store(str(settled.lake))
    while len(Timeline.load(store).completed()) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    refused = call("fsck", settled.file, "--fix")
    assert refused.code == 3, refused.err
    assert orphan.exists()


def test_partition_values_of_every_kind_are_found_where_the_log_names_them(job: Job, call: Call) -> None:
    (job.folder / "logs" / "a.jsonl").unlink()
    job.write(schema={"id": "bigint", "host": "string"}, partition_by=["host"])
    hosts = ["a b", "ü", "50%", "x=y", "a/b", "a:b", "", None, "#?&+"]
    with (job.folder / "logs" / "b.jsonl").open("w") as out:
        out.writelines(json.dumps({"id": number, "host": host}) + "\n" for number, host in enumerate(hosts))
    assert job.tideline("run").code == 0
    report = found(job, call, "--deep")
    assert report["clean"], report["findings"]


def test_job_that_never_ran_has_nothing_to_compare(job: Job, call: Call) -> None:
    ended = call("fsck", job.file)
    assert (ended.code, ended.out) == (0, "nothing was ingested yet\n")


def test_four_changed_bytes_of_a_file_are_damage_for_the_deep_look(settled: Job, call: Call) -> None:
    path = data_files(settled)[0]
    body = bytearray(path.read_bytes())
    footer = pq.read_metadata(path)
    chunk = footer.row_group(0).column(0)
    middle = chunk.data_page_offset + chunk.total_compressed_size - 20
    body[middle : middle + 4] = bytes(byte ^ 0xFF for byte in body[middle : middle + 4])
    path.write_bytes(body)
    assert found(settled, call)["clean"], "as many bytes as before"
    report = found(settled, call, "--deep")
    assert kinds(report) == {"damaged": 1}
    (finding,) = report["findings"]
    assert finding["what"] == path.name and finding["detail"].startswith("its bytes add up to ")
