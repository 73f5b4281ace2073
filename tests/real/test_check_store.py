"""`tideline check-store` as a user runs it: the verdict, the exit code, and nothing left behind."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import job as commands
from tests.forked import Command
from tests.job import SPARK, Finished, finish
from tests.real.fault_proxy import Fault, FaultProxy, Rule
from tests.real.raw_s3 import RawS3
from tests.real.s3_server import S3Server
from timeline.stores.opening import open_store

pytestmark = [pytest.mark.real, pytest.mark.slow]

MINE = "somebody/else's"


@pytest.fixture
def prefix(s3: S3Server) -> Iterator[str]:
    """A prefix with one object, and nothing else afterwards."""
    prefix = f"check-{uuid.uuid4().hex}"
    store = open_store(f"s3://lake/{prefix}", s3.options)
    store.put(MINE, b"mine")
    yield prefix
    assert [info.path for info in store.list("", recursive=True)] == [MINE]
    assert RawS3(s3).uploads(prefix) == []


def start(url: str, *options: str, folder: Path) -> Command:
    return commands.start([*SPARK, "check-store", url, *options], cwd=folder, env={"COLUMNS": "200"})


def check(url: str, *options: str, folder: Path) -> Finished:
    return finish(start(url, *options, folder=folder))


def credentials(server: S3Server, endpoint_url: str) -> list[str]:
    given = ("key", server.key), ("secret", server.secret), ("client_kwargs.endpoint_url", endpoint_url)
    return [f"--option={key}={value}" for key, value in (*given, ("client_kwargs.region_name", "us-east-1"))]


def verdicts(finished: Finished) -> dict[str, str]:
    """Verdict of each check, by the printed table."""
    rows = [line.split("  ", 1) for line in finished.out.splitlines()[1:-1]]
    return {name.strip(): rest.split()[0] for name, rest in rows}


def test_real_server_is_safe(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    job = {
        "name": "j",
        "source": {"type": "files", "path": "logs", "format": "json"},
        "schema": {"id": "bigint"},
        "targets": [{"type": "delta", "path": f"s3://lake/{prefix}/table"}],
        "storage": s3.options,
    }
    commands.write_job(tmp_path / "job.yaml", job)
    checked = check(f"s3://lake/{prefix}", "--quick", "--conf", "job.yaml", folder=tmp_path)
    assert checked.code == 0, checked.out + checked.err
    assert checked.out.splitlines()[-1] == "safe for Tideline"
    assert set(verdicts(checked).values()) == {"ok"}
    assert s3.secret not in checked.out + checked.err


def test_store_without_put_if_absent_is_not_safe(s3: S3Server, proxy: FaultProxy, prefix: str, tmp_path: Path) -> None:
    proxy.arm(Rule(Fault.FORGET_CONDITION))
    checked = check(f"s3://lake/{prefix}", "--quick", *credentials(s3, proxy.url), folder=tmp_path)
    assert checked.code == 6
    assert checked.out.splitlines()[-1] == "NOT safe: put-if-absent, Delta versions"
    assert verdicts(checked)["crashes are recovered"] == "skipped"


def test_server_that_stops_answering_is_not_safe_and_what_is_left_is_named(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.arm(Rule(Fault.REFUSE, "DELETE", status=403), Rule(Fault.REFUSE, "POST", r"\?delete", status=403))
    checked = check(f"s3://lake/{uuid.uuid4().hex}", "--quick", "--json", *credentials(s3, proxy.url), folder=tmp_path)
    assert checked.code == 6
    assert checked.json["safe"] is False
    assert "is left, remove it by hand" in checked.err


@pytest.mark.parametrize("busy_with", ["/race/", "partNumber=1", "/crash-"])
def test_ctrl_c_leaves_nothing(busy_with: str, s3: S3Server, proxy: FaultProxy, prefix: str, tmp_path: Path) -> None:
    proxy.arm(Rule(Fault.DELAY_REQUEST, key=busy_with))
    process = start(f"s3://lake/{prefix}", "--quick", *credentials(s3, proxy.url), folder=tmp_path)
    while proxy.fired[Fault.DELAY_REQUEST] == 0:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130
    assert stopped.out == ""
    proxy.drain()


def test_folder_is_safe_and_as_it_was(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "mine").write_text("mine")
    for url in (str(lake), "lake", f"file://{lake}", str(tmp_path / "not/there/yet")):
        checked = check(url, "--quick", folder=tmp_path)
        assert checked.code == 0, checked.out + checked.err
        assert checked.out.splitlines()[-1] == "safe for Tideline"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lake", "mine"]


def test_store_that_cannot_be_written_is_named(s3: S3Server, tmp_path: Path) -> None:
    options = credentials(s3, s3.endpoint_url)
    refused = check("s3://no-such-bucket/x", *options, folder=tmp_path)
    assert refused.code == 6
    assert "s3://no-such-bucket/x" in refused.err and "NoSuchBucket" in refused.err
    assert check("ftp://host/x", folder=tmp_path).code == 2
    assert check("s3://", folder=tmp_path).code == 2
