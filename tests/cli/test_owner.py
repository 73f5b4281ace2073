"""A timeline belongs to one job as long as it exists."""

from __future__ import annotations

import shutil
import time

from tests.cli.conftest import Call
from tests.job import Job


def words(text: str) -> str:
    return " ".join(text.split())


def test_another_job_file_on_the_timeline_is_refused_with_both_shown_until_it_is_meant(job: Job, call: Call) -> None:
    assert job.tideline("run").code == 0
    job.append("a.jsonl", range(5000, 5001))
    assert job.tideline("run", env={"TIDELINE_CRASH_AT": "inflight"}).code != 0
    elsewhere = job.folder / "other"
    elsewhere.mkdir()
    (elsewhere / "x.jsonl").write_text('{"id":7000,"host":"x"}\n')
    mine, other = f"job 'cli', which reads file://{job.folder}/logs/*.jsonl", f"reads file://{elsewhere}/*.jsonl"
    job.write(source=job.source(path=f"{elsewhere}/*.jsonl"))
    for command in (["run"], ["recover"], ["recover", "--dry-run"]):
        found = call(*command, job.file)
        assert found.code == 2, found.err
        assert mine in words(found.err) and other in words(found.err)
    assert job.tideline("run", "--new-source").code == 0
    assert job.tideline("run").code == 0
    assert job.ids()[7000] == 1 and 5000 not in job.ids()


def test_a_job_of_another_name_is_refused(job: Job, call: Call) -> None:
    assert job.tideline("run").code == 0
    job.write(name="other")
    found = call("run", job.file)
    assert found.code == 2 and "job 'cli'" in words(found.err) and "job 'other'" in words(found.err)


def test_a_column_that_is_left_out_later_is_refused_and_named(job: Job, call: Call) -> None:
    assert job.tideline("run").code == 0
    job.write(schema={"id": "bigint"})
    job.append("a.jsonl", range(5000, 5001))
    found = call("run", job.file)
    assert found.code == 2
    assert "host: the timeline was created with string, the job file has no such column" in words(found.err)


def test_a_writer_whose_timeline_is_deleted_under_it_stops_and_doubles_nothing(job: Job) -> None:
    process = job.start("run", "--continuous")
    while not job.ids():
        time.sleep(0.05)
    while (job.lake / ".hoodie").exists():  # the writer may add files meanwhile
        shutil.rmtree(job.lake / ".hoodie", ignore_errors=True)
    job.append("b.jsonl", range(5000, 5005))
    while process.poll() is None and job.ids()[5000] == 0:
        time.sleep(0.05)
    job.append("c.jsonl", range(6000, 6005))
    _, said = process.communicate(timeout=60)
    assert process.returncode in (6, 7), said
    assert "the timeline that this process writes is gone" in words(said) or "is gone from" in words(said)
    assert max(job.ids().values()) == 1


def test_a_new_timeline_beside_rows_of_a_deleted_one_is_refused_until_it_is_meant(job: Job, call: Call) -> None:
    assert job.tideline("run").code == 0
    shutil.rmtree(job.lake / ".hoodie")
    for command, code in {"run": 5, "recover": 5, "show": 5, "fsck": 6}.items():
        refused = call(command, job.file)
        assert (command, refused.code) == (command, code)
        assert "has rows of job 'cli' from another timeline" in words(refused.out + refused.err)
    assert max(job.ids().values()) == 1
    assert job.tideline("run", "--new-timeline").code == 0
    assert set(job.ids().values()) == {2}
    assert job.tideline("run").code == 0


def test_another_job_may_begin_a_timeline_of_its_own_on_the_same_table(job: Job) -> None:
    assert job.tideline("run").code == 0
    job.write(name="second", timeline={"path": f"{job.folder}/timeline"})
    assert job.tideline("run").code == 0
    assert set(job.ids().values()) == {2}


def test_a_path_that_was_wrong_at_the_first_start_binds_nobody(job: Job) -> None:
    job.write(source=job.source(path=f"{job.folder}/lgos/*.jsonl"))
    assert job.tideline("run").code == 4
    job.write()
    assert job.tideline("run").code == 0
    assert len(job.ids()) == 100


def test_a_link_that_points_elsewhere_later_leaves_the_job_its_timeline(job: Job) -> None:
    link = job.folder / "link"
    link.symlink_to(job.folder / "logs")
    job.write(source=job.source(path=f"{link}/*.jsonl"))
    assert job.tideline("run").code == 0
    before = job.ids()
    (job.folder / "logs").rename(job.folder / "moved")
    link.unlink()
    link.symlink_to(job.folder / "moved")
    (job.folder / "moved" / "new.jsonl").write_text('{"id":7000,"host":"x"}\n')
    ran = job.tideline("run")
    assert ran.code == 0, ran.err
    assert job.ids() - before == {7000: 1}
    job.write(source=job.source(path=f"{job.folder}/moved/*.jsonl"))
    assert job.tideline("run").code == 0, "the same place, by its own name"
