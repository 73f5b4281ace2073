"""Files of the ordinary world, as `tideline` meets them: places that vanish, and logs that are rotated beside a job."""

from __future__ import annotations

import pytest

from tests.cli.job import Job


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
