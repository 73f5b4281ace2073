"""The metrics of real runs, scraped over HTTP and read by the OpenMetrics parser."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.takeover import run_recovery
from ingest.protocol.events import Event, Phase
from tests.cli.conftest import Call
from tests.job import Job, finish
from tests.watched_run import WatchedRun, fails_at, run_watched, scrape
from timeline.errors import FencedError

LAKE = "delta:{folder}/lake"


@pytest.fixture
def watched_job(job: Job) -> Job:
    job.write(metrics={"port": 0})
    return job


def target(job: Job) -> str:
    return LAKE.format(folder=job.folder)


def test_a_run_counts_what_it_commits_and_rejects(watched_job: Job) -> None:
    with run_watched(watched_job.file) as run:
        seen = run.scraped
    lake = target(watched_job)
    assert run.summary is not None and run.summary.rows == 100
    assert seen.jobs == {"cli"}
    assert seen("rows_read_total") == 102
    assert seen("rows_committed_total") == 100
    assert seen("rows_written_total", target=lake) == 100
    assert seen("rows_written_total", target="quarantine") == 2
    assert seen("rows_dropped_total", target=lake) == 0
    assert seen.labelled("rows_rejected_total", "reason") == {"malformed JSON": 2}
    assert seen("written_files_total", target=lake) == 1
    (file,) = watched_job.lake.rglob("*-0_*.parquet")
    assert seen("written_bytes_total", target=lake) == file.stat().st_size
    assert seen.labelled("epochs_total", "outcome") == {"committed": 1, "rolled_back": 0, "pending": 0}
    assert seen("rollbacks_total") == seen("recommits_total") == seen("fencing_rejections_total") == 0
    assert seen("last_completed_epoch") == 0
    assert seen("oldest_pending_instant_age_seconds") == 0
    assert seen("offset_lag_sum", unit="bytes") == seen("shards_behind") == 0
    counts = seen.labelled("phase_seconds_count", "phase")
    assert counts == {phase.value: 1 for phase in Phase} | {"recover": 0, "plan": 2}
    assert seen.types["tideline_phase_seconds"] == "histogram"
    assert seen.types["tideline_rows_committed"] == "counter"
    assert seen.labelled("lease_state", "state") == {"none": 0, "held": 0, "lost": 0, "released": 1}
    assert seen.labelled("build_info", "version")


def test_a_scrape_within_an_epoch_shows_it_pending_and_what_is_behind(watched_job: Job) -> None:
    size = (watched_job.folder / "logs" / "a.jsonl").stat().st_size
    during = []

    def at(point: str, run: WatchedRun) -> None:
        if point == "written":
            during.append(run.scraped)

    with run_watched(watched_job.file, at) as run:
        assert run.error is None
    (seen,) = during
    age_s = seen("oldest_pending_instant_age_seconds")
    assert age_s is not None and age_s > 0
    assert seen("offset_lag_sum", unit="bytes") == size
    assert seen("offset_lag", shard="a.jsonl", unit="bytes") == size
    assert seen("lease_state", state="held") == 1


def test_what_an_epoch_leaves_is_known_by_shard_while_it_is_written(watched_job: Job) -> None:
    watched_job.write(metrics={"port": 0}, source=watched_job.source(max_bytes_per_epoch=500))
    watched_job.append("b.jsonl", range(100, 200))
    sizes = {log.name: float(log.stat().st_size) for log in (watched_job.folder / "logs").iterdir()}
    sums: list[float | None] = []

    def at(point: str, run: WatchedRun) -> None:
        if point == "written" and not sums:
            while run.scraped.labelled("offset_lag", "shard") != sizes:
                pass
            sums.append(run.scraped("offset_lag_sum", unit="bytes"))

    with run_watched(watched_job.file, at) as run:
        seen = run.scraped
    assert sums == [sum(sizes.values())]
    assert run.error is None and seen("rows_committed_total") == 200
    assert seen("offset_lag_sum", unit="bytes") == 0


def test_a_rollback_is_counted_with_the_files_that_went(watched_job: Job) -> None:
    with run_watched(watched_job.file, fails_at("written")) as run:
        seen = run.scraped
    assert isinstance(run.error, RuntimeError)
    assert seen("rollbacks_total") == seen("epochs_total", outcome="rolled_back") == 1
    assert seen("orphan_files_deleted_total", target=target(watched_job)) == 1
    assert seen("orphan_files_deleted_total", target="quarantine") == 1
    size = seen("orphan_deleted_bytes_total", target=target(watched_job))
    assert size is not None and size > 500, "a Parquet file"
    assert seen("epochs_total", outcome="committed") == seen("rows_committed_total") == 0
    assert seen("oldest_pending_instant_age_seconds") == 0
    assert seen("last_completed_epoch") is None


def test_an_epoch_that_recovery_completes_is_counted_by_who_completed_it(watched_job: Job) -> None:
    with run_watched(watched_job.file, fails_at("applied")) as crashed:
        seen = crashed.scraped
    assert seen("epochs_total", outcome="pending") == 1
    assert seen("epochs_total", outcome="committed") == seen("rows_committed_total") == 0
    age_s = seen("oldest_pending_instant_age_seconds")
    assert age_s is not None and age_s > 0
    during: list[float | None] = []

    def at(point: str, run: WatchedRun) -> None:
        if point == "applying":
            during.append(run.scraped("oldest_pending_instant_age_seconds"))

    with run_watched(watched_job.file, at) as again:
        seen = again.scraped
    (age_s,) = during
    assert age_s is not None and age_s > 0, "what another process has left is pending too"
    assert again.summary is not None and again.summary.epochs == 0
    assert seen("recommits_total") == seen("epochs_total", outcome="committed") == 1
    assert seen("rows_committed_total") == 100
    assert seen("oldest_pending_instant_age_seconds") == 0
    assert seen("last_completed_epoch") == 0
    assert seen("phase_seconds_count", phase="recover") == 1


def test_a_start_without_news_still_says_which_epoch_was_last(watched_job: Job) -> None:
    with run_watched(watched_job.file) as first:
        before = first.scraped
    with run_watched(watched_job.file) as second:
        seen = second.scraped
    assert seen("last_completed_epoch") == 0
    assert seen("last_completed_timestamp_seconds") == before("last_completed_timestamp_seconds")
    assert seen("rows_committed_total") == 0


def test_a_fenced_writer_counts_its_rejection(watched_job: Job) -> None:
    def at(point: str, run: WatchedRun) -> None:
        if point == "written":
            run_recovery(open_timeline(load_config(watched_job.file)), force=True)

    with run_watched(watched_job.file, at) as run:
        seen = run.scraped
    assert isinstance(run.error, FencedError)
    assert seen("fencing_rejections_total") == 1
    assert seen("rows_committed_total") == 0


def test_a_watcher_that_fails_is_named_once_and_changes_nothing(
    watched_job: Job, caplog: pytest.LogCaptureFixture
) -> None:

    def broken(event: Event) -> None:
        raise ValueError("watcher")

    with run_watched(watched_job.file, more=(broken,)) as run:
        seen = run.scraped
    assert run.error is None and seen("rows_committed_total") == 100
    assert sum("ingestion goes on" in record.message for record in caplog.records) == 1


def test_a_taken_port_is_refused_before_anything_is_written(job: Job, call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job.write(metrics={"port": port})
        ended = call("run", job.file)
    assert ended.code == 2
    assert f"nothing can listen at 127.0.0.1:{port}" in ended.err and "metrics.port" in ended.err
    assert not job.lake.exists()


def test_a_host_that_is_not_here_is_refused(job: Job, call: Call) -> None:
    job.write(metrics={"port": 0, "host": "192.0.2.1"})
    ended = call("run", job.file)
    assert ended.code == 2
    assert "nothing can listen at 192.0.2.1:0" in ended.err
    assert not job.lake.exists()


def test_a_free_port_is_logged_and_answers_until_the_job_ends(watched_job: Job) -> None:
    process = watched_job.start("run", "--continuous")
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", line):
            break
    else:
        raise AssertionError("it ended without saying where its metrics are")
    for line in process.stderr:
        if re.search(r"epoch 0: 100 rows", line):
            break
    seen = scrape(found[1])
    assert seen("rows_committed_total") == 100
    assert seen("lease_state", state="held") == 1
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0


def test_a_job_without_the_block_has_no_endpoint(job: Job) -> None:
    with run_watched(job.file) as run:
        assert run.url == ""


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"port": 70000}, "metrics.port"),
        ({"port": "x"}, "metrics.port"),
        ({"prt": 1}, "metrics.prt: unknown key; did you mean 'port'?"),
    ],
)
def test_a_block_that_is_wrong_is_named(job: Job, call: Call, block: dict[str, object], words: str) -> None:
    job.write(metrics=block)
    ended = call("run", job.file)
    assert ended.code == 2 and words in ended.err
    assert not Path(job.lake).exists()
