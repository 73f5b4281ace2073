"""A writer whose heartbeats do not reach the store, or whose store is restarted in an epoch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import Command
from tests.job import finish
from tests.real import s3_server
from tests.real.fault_proxy import Fault, FaultProxy, Rule
from tests.real.s3_job import S3Job, small_job
from tests.real.s3_server import S3Server
from tests.waiting import wait_until, wait_until_frozen

pytestmark = [pytest.mark.real, pytest.mark.slow]

HEARTBEATS = Rule(Fault.REFUSE, "PUT", r"/writers/\d+\.json$", first=2, status=503)
"""Every put of a lease except the first, which takes it."""

DATA = Rule(Fault.HANG, "PUT", r"/table/.*-0_.*\.parquet$")


@pytest.fixture
def job(proxy: FaultProxy, s3: S3Server, tmp_path: Path) -> S3Job:
    """A job of twenty rows with a short lease, and a long client timeout for puts that hang."""
    return small_job(tmp_path, s3, proxy, ttl="1s", read_timeout=300, retries={"max_attempts": 0})


@pytest.fixture
def writer(job: S3Job, proxy: FaultProxy) -> Iterator[Command]:
    """A run of the job in the middle of a data file, after two lost heartbeats."""
    proxy.arm(HEARTBEATS, DATA)
    with job.start("run") as process:
        wait_until(lambda: proxy.fired[Fault.HANG] > 0 and proxy.fired[Fault.REFUSE] > 1, "it writes, unheard")
        assert process.poll() is None
        yield process
        process.kill()


def assert_exact(job: S3Job) -> None:
    assert job.ids() == job.ids("copy") == {number: 1 for number in range(20)}
    assert not job.left_over()


def test_writer_whose_heartbeats_do_not_arrive_goes_on_while_nobody_takes_over(
    writer: Command, job: S3Job, proxy: FaultProxy
) -> None:
    proxy.disarm()
    ended = finish(writer)
    assert ended.code == 0, ended.err
    assert "heartbeat of generation 1 failed, next one follows" in ended.err
    assert_exact(job)


def test_writer_whose_heartbeats_do_not_arrive_is_taken_over_and_loses_its_decision(
    writer: Command, job: S3Job, proxy: FaultProxy, s3: S3Server
) -> None:
    job.change(storage=s3.options)
    taker = job.tideline("run")
    assert taker.code == 0, taker.err
    assert f"process {writer.pid} on " in taker.err
    proxy.disarm()
    fenced = finish(writer)
    assert fenced.code == 7, fenced.err
    assert "decided it first" in fenced.err or "was taken over" in fenced.err
    assert job.tideline("recover").code == 0
    assert_exact(job)


@pytest.mark.parametrize("point", ["begun", "manifest", "decided", "part-committing", "applied"])
def test_server_that_is_killed_in_an_epoch_and_comes_back_changes_nothing(point: str, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "job"
    (data / "lake").mkdir(parents=True)
    folder.mkdir()
    with s3_server.running(data) as server:
        job = S3Job(folder, server)
        job.put("a.jsonl", range(20), bad=1)
        with job.start("run", env={"TIDELINE_FREEZE_AT": point}) as process:
            wait_until_frozen(process)
            server.kill()
            process.send_signal(signal.SIGCONT)
            server.start()
            ended = finish(process)
        assert ended.code == 0, ended.err
        assert_exact(job)
