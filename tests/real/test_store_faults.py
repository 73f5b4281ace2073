"""A store that answers late, twice, wrongly or not at all: the outcome is exact, or nothing is decided.

The real client, the real protocol and a real server, with `FaultProxy` in between.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import s3fs

from ingest.check_store.lakes import DeltaLake
from ingest.check_store.numbers import NumberSource
from ingest.check_store.processes import faults, run_process
from tests.real import s3_server
from tests.real.fault_proxy import Fault, FaultProxy, Rule
from tests.real.raw_s3 import RawS3
from tests.real.s3_job import S3Job, small_job, through
from tests.real.s3_server import S3Server
from timeline.errors import ConfigError, StoreUnavailableError, TidelineError
from timeline.lease import LeaseObserver, LeaseState
from timeline.stores.base import Retry
from timeline.stores.opening import open_store
from timeline.stores.probe import PROBE, probe_exclusive_creation

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOURCE = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)

READ_TIMEOUT_S = 0.4
LATE_S = 1.2
"""Longer than the client's timeout."""

PUTS = {
    "plan": r"\.commit\.requested$",
    "inflight": r"/timeline/\d+\.inflight$",
    "marker": r"\.marker\.CREATE$",
    "data file": r"-0_.*\.parquet$",
    "decision": r"/decisions/\d+\.json$",
    "Delta log entry": r"/_delta_log/\d+\.json$",
    "completed commit": r"/timeline/\d+_\d+\.commit$",
    "lease": r"/writers/\d+\.json$",
}
"""Kinds of objects that the protocol puts, and patterns of their keys."""

FAULTS = {
    "answered late": Rule(Fault.DELAY_ANSWER, seconds=LATE_S),
    "delivered late": Rule(Fault.DELAY_REQUEST, seconds=LATE_S),
    "lost": Rule(Fault.DROP_REQUEST),
    "answer lost": Rule(Fault.DROP_ANSWER),
    "delivered twice": Rule(Fault.DUPLICATE, seconds=LATE_S),
    "500": Rule(Fault.REFUSE, status=500),
    "503": Rule(Fault.REFUSE, status=503),
    "429": Rule(Fault.REFUSE, status=429),
    "500 and done": Rule(Fault.SPOIL_ANSWER, status=500),
}


@pytest.fixture
def impatient(s3: S3Server, proxy: FaultProxy) -> dict[str, Any]:
    """Options of a client behind the proxy with a short timeout; it leaves retries to the protocol."""
    return through(proxy, s3, read_timeout=READ_TIMEOUT_S, retries={"max_attempts": 0})


def on_each(fault: Rule) -> list[Rule]:
    """The fault, once for the first put of each kind, and for the manifest: the second put of an inflight file."""
    places = [(key, 1) for key in PUTS.values()] + [(PUTS["inflight"], 2)]
    return [
        Rule(fault.fault, "PUT", key, first=first, times=1, seconds=fault.seconds, status=fault.status)
        for key, first in places
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_every_put_of_the_protocol_may_fail_and_the_outcome_is_exact(
    name: str, proxy: FaultProxy, impatient: dict[str, Any], s3: S3Server
) -> None:
    url = f"s3://lake/{uuid.uuid4().hex}"
    lake = DeltaLake(url, impatient)
    rules = on_each(FAULTS[name])
    proxy.arm(*rules)
    for number in range(20):
        try:
            if run_process(lake, SOURCE, number):
                break
        except TidelineError:
            continue
    assert proxy.fired[FAULTS[name].fault] == len(rules)
    proxy.drain()
    # A late request may have restored a deleted object after the end: the next start deletes it again.
    patient = DeltaLake(url, s3.options)
    assert run_process(patient, SOURCE, 99)
    assert faults(patient, SOURCE) == []


@pytest.mark.parametrize("name", FAULTS)
def test_every_request_of_a_multipart_upload_may_fail_once(
    name: str, proxy: FaultProxy, impatient: dict[str, Any], s3: S3Server
) -> None:
    prefix = uuid.uuid4().hex
    store, fault = open_store(f"s3://lake/{prefix}", impatient), FAULTS[name]
    requests = (("POST", r"\?uploads"), ("PUT", "partNumber=1"), ("PUT", "partNumber=2"), ("POST", "uploadId="))
    proxy.arm(
        *(
            Rule(fault.fault, method, key, times=1, seconds=fault.seconds, status=fault.status)
            for method, key in requests
        )
    )
    body = os.urandom(1 << 20)
    writer = store.open_write("data/part")
    for _ in range(20):
        writer.sink.write(body)
    assert writer.close() == 20 << 20
    proxy.drain()
    assert proxy.fired[fault.fault] == len(requests)
    assert Retry().call(lambda: store.get("data/part")) == body * 20
    # An upload whose id was lost with the answer stays open: to abandon the object ends that upload too.
    Retry().call(lambda: store.abandon(["data/part"]))
    assert RawS3(s3).uploads(prefix) == []


def test_completed_upload_is_found_where_the_server_no_longer_knows_it(
    proxy: FaultProxy, impatient: dict[str, Any], s3: S3Server
) -> None:
    # After a lost answer, a server may answer NoSuchUpload to the retry of a completion that it has executed.
    url = f"s3://lake/{uuid.uuid4().hex}"
    store = open_store(url, impatient)
    proxy.arm(
        Rule(Fault.DROP_ANSWER, "POST", "uploadId=", times=1),
        Rule(Fault.REFUSE, "POST", "uploadId=", first=2, status=404),
    )
    writer = store.open_write("data/part")
    writer.sink.write(bytes(20 << 20))
    assert writer.close() == 20 << 20
    # Another object of the same name is not taken for the result of the upload.
    open_store(url, s3.options).put("data/other", bytes(20 << 20))
    writer = store.open_write("data/other")
    writer.sink.write(bytes(20 << 20))
    with pytest.raises(StoreUnavailableError, match="NoSuchUpload"):
        writer.close()


@pytest.mark.parametrize("status", [500, 503])
def test_upload_that_the_store_refuses_leaves_nothing(
    status: int, proxy: FaultProxy, impatient: dict[str, Any], s3: S3Server
) -> None:
    prefix = uuid.uuid4().hex
    store = open_store(f"s3://lake/{prefix}", impatient)
    for key in (r"\?uploads", "partNumber=2", "uploadId="):
        proxy.arm(Rule(Fault.REFUSE, key=key, status=status))
        writer = store.open_write("data/part")
        with pytest.raises(StoreUnavailableError):
            for _ in range(40):
                writer.sink.write(bytes(1 << 20))
            writer.close()
        proxy.disarm()
        writer.discard()
        assert Retry().call(lambda: store.list("", recursive=True)) == []
        assert RawS3(s3).uploads(prefix) == []


def test_store_without_put_if_absent_is_refused_by_the_probe(
    proxy: FaultProxy, impatient: dict[str, Any], s3: S3Server
) -> None:
    store = open_store(f"s3://lake/{uuid.uuid4().hex}", impatient)
    probe_exclusive_creation(store, Retry())
    proxy.arm(Rule(Fault.FORGET_CONDITION))
    with pytest.raises(ConfigError, match="was told that it had won"):
        probe_exclusive_creation(store, Retry())
    for fault in FAULTS.values():
        proxy.arm(Rule(Fault.FORGET_CONDITION), Rule(fault.fault, "PUT", times=2, seconds=LATE_S, status=fault.status))
        with pytest.raises(ConfigError):
            probe_exclusive_creation(store, Retry())
        proxy.drain()
        for info in Retry().call(lambda: store.list("", recursive=True)):
            assert fault.fault in (Fault.DELAY_REQUEST, Fault.DUPLICATE), "only what came late may be there"
            Retry().call(partial(store.delete, [info.path]))


@pytest.mark.parametrize("command", ["run", "recover"])
def test_job_does_not_start_on_a_store_without_put_if_absent(
    command: str, proxy: FaultProxy, s3: S3Server, tmp_path: Path
) -> None:
    job = small_job(tmp_path, s3, proxy)
    if command == "recover":
        job.killed_at("task-written")
    before = contents(job)
    proxy.arm(Rule(Fault.FORGET_CONDITION))
    refused = job.tideline(command)
    assert refused.code == 2
    assert "cannot create an object exclusively" in refused.err
    assert contents(job) == before


@pytest.mark.parametrize(
    ("point", "silent", "words"),
    [
        ("decided", r"/decisions/\d+", "the decision cannot be read"),
        ("manifest", r"/timeline/\d+\.inflight", "the prepared state cannot be checked"),
    ],
)
def test_recovery_that_cannot_read_halts_touches_nothing_and_goes_on_later(
    point: str, silent: str, words: str, proxy: FaultProxy, s3: S3Server, tmp_path: Path
) -> None:
    job = small_job(tmp_path, s3, proxy, read_timeout=READ_TIMEOUT_S, retries={"max_attempts": 0})
    job.killed_at(point)
    before = contents(job)
    proxy.arm(Rule(Fault.HANG, "GET", silent))
    halted = job.tideline("recover")
    proxy.disarm()
    assert halted.code == 6
    assert words in halted.err and "Nothing was touched" in halted.err and "tideline recover again" in halted.err
    assert contents(job) == before
    recovered = job.tideline("recover")
    assert recovered.code == 0, recovered.err
    assert job.tideline("run").code == 0
    assert job.ids() == {number: 1 for number in range(20)}
    assert not job.left_over()


def test_writer_on_a_slow_store_keeps_its_lease(proxy: FaultProxy, s3: S3Server, tmp_path: Path) -> None:
    job = small_job(tmp_path, s3, proxy, ttl="9s")
    proxy.arm(Rule(Fault.DELAY_REQUEST, seconds=0.2), Rule(Fault.THROTTLE, bytes_per_s=100_000))
    new_observer = partial(LeaseObserver, job.store("timeline"), Retry(), process_is_gone=lambda process: False)
    ended, states, beats = threading.Event(), set[LeaseState](), set[int]()

    def watch() -> None:
        observer, looked_s = new_observer(), time.monotonic()
        while not ended.wait(0.05):
            if time.monotonic() - looked_s > 1.0:
                # The machine stalled: the lease was not observed meanwhile, so a missing heartbeat proves nothing.
                observer = new_observer()
            looked_s = time.monotonic()
            state = observer.look()
            if observer.writer is not None and not observer.writer.released:
                states.add(state)
                beats.add(observer.writer.beat)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        finished = job.tideline("run")
    finally:
        ended.set()
        watcher.join()
    assert finished.code == 0, finished.err
    assert states == {LeaseState.LIVE}
    assert len(beats) > 3, "it took more than a TTL"
    assert job.ids() == {number: 1 for number in range(20)}
    assert not job.left_over()


def test_upload_of_a_killed_job_is_gone_with_its_recovery(tmp_path: Path, s3: S3Server) -> None:
    data, folder = tmp_path / "data", tmp_path / "job"
    (data / "lake").mkdir(parents=True)
    folder.mkdir()
    with s3_server.running(data) as server, FaultProxy(server.endpoint_url) as proxy:
        job = small_job(folder, server, proxy)
        # More than one part (16 MiB), even compressed.
        lines = (b'{"id": %d, "host": "%s"}' % (id, os.urandom(20_000).hex().encode()) for id in range(20, 1_020))
        job.fs.pipe_file(f"{job.prefix}/logs/large.jsonl", b"".join(line + b"\n" for line in lines))
        proxy.arm(Rule(Fault.HANG, "PUT", "partNumber=2"))
        with job.start("run") as process:
            while proxy.fired[Fault.HANG] == 0:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
        raw, prefix = RawS3(server), job.prefix.partition("/")[2]
        assert raw.uploads(prefix)
        recovered = job.tideline("recover")
        assert recovered.code == 0, recovered.err
        assert raw.uploads(prefix) == []
        proxy.disarm()
        proxy.drain()  # the held request arrives now
        assert raw.uploads(prefix) == []
        assert not [path for path in (data / "lake/.sgwtmp").rglob("*") if path.is_file()], "parts on the server's disk"
        assert job.tideline("run").code == 0
        assert job.ids() == {number: 1 for number in range(1_020)}
        assert not job.left_over()


def contents(job: S3Job) -> dict[str, bytes]:
    """Every object of a job except the leases and the probe."""
    fs: s3fs.S3FileSystem = job.fs
    left_out = ("/writers/", PROBE)
    return {path: fs.cat_file(path) for path in fs.find(job.prefix) if not any(part in path for part in left_out)}
