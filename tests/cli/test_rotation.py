"""Source files in practice: folders that vanish, and logs that are truncated or rotated."""

from __future__ import annotations

import pytest

from tests.job import Job


@pytest.mark.parametrize("pattern", ["logs", "logs/*.jsonl"])
def test_a_folder_that_vanished_ends_the_run_with_its_path_and_its_lag_is_unknown(job: Job, pattern: str) -> None:
    job.write(source=job.source(path=f"{job.folder}/{pattern}"))
    assert job.tideline("run").code == 0
    (job.folder / "logs").rename(job.folder / "away")
    ended = job.tideline("run")
    assert ended.code == 4
    assert f"{job.folder}/logs does not exist any more" in ended.err
    offsets = job.tideline("offsets", "--json").json
    assert offsets["total"]["lag"] is None
    assert [row["lag"] for row in offsets["shards"]] == [None]
    assert "does not exist any more" in offsets["unknown"]


def test_a_truncated_log_stops_the_job_or_leaves_a_hole_that_show_tells(job: Job) -> None:
    assert job.tideline("run").code == 0
    before = set(job.ids())
    (job.folder / "logs" / "a.jsonl").write_text("")
    job.append("a.jsonl", [5001])
    stopped = job.tideline("run")
    assert stopped.code == 4
    assert "or set source.on_truncate: restart" in " ".join(stopped.err.split())
    job.write(source=job.source(on_truncate="restart"))
    assert job.tideline("run").code == 0
    assert set(job.ids()) == before | {5001}
    assert "truncated or replaced" in " ".join(job.tideline("show").out.split())
    holes = [row["holes"] for row in job.tideline("offsets", "--json").json["shards"] if row["shard"] == "a.jsonl"]
    assert "truncated or replaced" in str(holes)


def test_accept_loss_of_files_names_the_setting_that_does_it(job: Job) -> None:
    ended = job.tideline("run", "--accept-loss")
    assert ended.code == 2 and "source.on_truncate: restart" in ended.err, ended.err
