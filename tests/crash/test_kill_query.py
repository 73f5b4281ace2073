"""`kill -9` of a job with a query: each record's row exists once, and no file of an aborted write remains."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.crash.test_kill import DemoJob, killed_and_recovered
from tests.job import SPARK
from tests.sampling import KILLS_OF_QUERIES
from timeline.active import ActiveTimeline
from timeline.stores.opening import open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def job(tmp_path: Path) -> DemoJob:
    job = DemoJob(tmp_path)
    job.write(transform="SELECT id, ts, upper(path) AS path, _shard, _offset FROM source WHERE bytes % 3 <> 0")
    return job


def test_kills_of_a_job_with_a_query_lose_nothing_and_double_nothing(job: DemoJob) -> None:
    killed_and_recovered(job, KILLS_OF_QUERIES)
    checked = job.tideline("fsck", "--deep", "--json", program=SPARK)
    assert checked.code == 0, checked.out
    check_row_by_row(job.folder)


def check_row_by_row(folder: Path) -> None:
    read: dict[tuple[str, int], bytes] = {}
    for path in (folder / "logs").iterdir():
        start = 0
        for line in path.read_bytes().splitlines(keepends=True):
            read[path.name, start] = line.rstrip(b"\n")
            start += len(line)
    rejected = DeltaTable(folder / "quarantine").to_pyarrow_table().to_pylist()
    assert {(row["shard"], row["offset"]): row["raw"] for row in rejected}.items() <= read.items()
    bad = Counter((row["shard"], row["offset"]) for row in rejected)
    good = {place: json.loads(line) for place, line in read.items() if place not in bad}
    rows = DeltaTable(folder / "lake").to_pyarrow_table().to_pylist()
    places = Counter((row["_shard"], row["_offset"]) for row in rows)
    assert places == Counter(place for place, line in good.items() if (line["bytes"] or 0) % 3)
    assert set(bad.values()) == {1}
    for row in rows:
        line = good[row["_shard"], row["_offset"]]
        assert (row["id"], row["path"]) == (line["id"], line["path"].upper())
    lake = folder / "lake"
    visible = {Path(uri).name for uri in DeltaTable(lake).file_uris()}
    there = {path.name for path in lake.rglob("*") if path.is_file() and path.name.startswith("part-")}
    assert there == visible, "orphans"
    assert not list(lake.rglob("_temporary")) and not ActiveTimeline.load(open_store(str(lake))).pending().instants
