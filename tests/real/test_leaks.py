"""A job's secrets are only in its environment, however the job ends: a search through all its output finds none.

The job reads Kafka by SASL and TLS with an encrypted key and writes to S3 over TLS, with Spark's UI and event log on.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import s3fs
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.job import LOCAL, SPARK, Finished, environment, write_job
from tests.real.kafka_properties import Listener
from tests.real.kafka_server import KafkaServer
from tests.real.leak_hunt import Seen, add_spark_ui, command_lines
from tests.real.processes import HOST, on_free_ports
from tests.real.s3_server import S3Server
from tests.waiting import wait_for, wait_until_frozen
from timeline.active import ActiveTimeline
from timeline.stores.opening import open_store

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark]

TIMEOUT_S = 180
TOPIC = "leaks"


def new_secret() -> str:
    """A secret with characters that are escaped in JSON, URLs and regular expressions."""
    return f'{secrets.token_hex(8)}+/"%={secrets.token_hex(8)}'


@dataclass
class SecretJob:
    """A job in a folder, each of its secrets by reference to a variable; `seen` has the output of its runs."""

    folder: Path
    kafka: KafkaServer
    s3: S3Server
    seen: Seen = field(default_factory=Seen)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.kafka.security is not None
        self.secrets = {
            "S3_KEY": self.s3.key,
            "S3_SECRET": self.s3.secret,
            "CONFIG_SECRET": secrets.token_hex(16),
            "SASL_PASSWORD": self.kafka.security.password,
            "KEY_PASSWORD": new_secret(),
            "SPARK_SECRET": new_secret(),
            "SPARK_ACCOUNT_KEY": new_secret(),
            "WRONG": new_secret(),
        }
        (self.folder / "tmp").mkdir()
        (self.folder / "events").mkdir()
        self.ui_port = on_free_ports(1, lambda ports: ports[0])
        self.timeline = f"s3://lake/{self.folder.name}/timeline"
        self._lock_key()
        self.file = self.write("job.yaml")

    def write(self, name: str, **source_options: str) -> Path:
        """Write a job file; `source_options` replace librdkafka options."""
        options = self.kafka.client_options(Listener.SASL_SSL)
        address = options.pop("bootstrap.servers")
        key = self.folder / "client.pem"
        options |= {
            "sasl.password": "${SASL_PASSWORD}",
            "ssl.certificate.location": str(key),
            "ssl.key.location": str(key),
            "ssl.key.password": "${KEY_PASSWORD}",
        }
        job: dict[str, Any] = {
            "name": "leaks",
            "source": {
                "type": "kafka",
                "bootstrap_servers": address,
                "topics": [TOPIC],
                "format": "json",
                "options": options | source_options,
                "broker_timeout": "60s",
            },
            "schema": {"id": "bigint"},
            "targets": [{"type": "delta", "path": f"s3://lake/{self.folder.name}/table"}],
            "timeline": {"path": self.timeline},
            "epoch": {"interval": "100ms"},
            "writer": {"lease_ttl": "3s"},
            "storage": self.s3.options
            | {
                "key": "${S3_KEY}",
                "secret": "${S3_SECRET}",
                "config_kwargs": self.s3.options["config_kwargs"] | {"user_agent_extra": "tests/${CONFIG_SECRET}"},
            },
            "spark": {
                "master": "local[2,4]",
                "small_epochs": "executors",
                "conf": {
                    "spark.ui.enabled": "true",
                    "spark.ui.port": str(self.ui_port),
                    "spark.eventLog.enabled": "true",
                    "spark.eventLog.compress": "false",
                    "spark.eventLog.dir": f"file://{self.folder}/events",
                    "spark.local.dir": f"{self.folder}/tmp",
                    "spark.hadoop.fs.s3a.secret.key": "${SPARK_SECRET}",
                    "spark.hadoop.fs.azure.account.key.tests.example": "${SPARK_ACCOUNT_KEY}",
                },
            },
        }
        return write_job(self.folder / name, job)

    def start(self, program: Sequence[str], *command: str | Path, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*program, *map(str, command)],
            cwd=self.folder,
            env=environment() | self.secrets | {"TMPDIR": str(self.folder / "tmp")} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> Finished:
        out, err = process.communicate(timeout=TIMEOUT_S)
        self.seen.add(f"stdout of {process.args!r}", out)
        self.seen.add(f"stderr of {process.args!r}", err)
        return Finished(process.returncode, out, err)

    def run(self, program: Sequence[str], *command: str | Path, **env: str) -> Finished:
        return self.finish(self.start(program, *command, **env))

    def commits(self) -> int:
        return len(ActiveTimeline.load(open_store(self.timeline, self.s3.options)).completed().instants)

    def _lock_key(self) -> None:
        """Write the client's certificate with its key encrypted."""
        assert self.kafka.security is not None
        pem = self.kafka.security.certificates.client.read_bytes()
        key = load_pem_private_key(pem, None)
        encryption = BestAvailableEncryption(self.secrets["KEY_PASSWORD"].encode())
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        (self.folder / "client.pem").write_bytes(locked + pem[pem.index(b"-----BEGIN CERTIFICATE") :])


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaServer, s3_tls: S3Server) -> Iterator[SecretJob]:
    kafka.create_topic(TOPIC, 2)
    job = SecretJob(tmp_path_factory.mktemp("leaks"), kafka, s3_tls)
    with command_lines(job.seen):
        yield job
        for process in job.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def produce(job: SecretJob, ids: range) -> None:
    job.kafka.produce(TOPIC, [*(json.dumps({"id": number}) for number in ids), "{malformed"])


def assert_nothing_leaked(job: SecretJob) -> None:
    """Search the output so far, the job's folder, and its folder in the bucket."""
    job.seen.add_folder(job.folder)
    bucket = s3fs.S3FileSystem(**job.s3.options, use_listings_cache=False)
    for path in bucket.find(f"lake/{job.folder.name}"):
        job.seen.add_file(path, bucket.cat_file(path))
    assert job.seen.leaks(job.secrets) == []


def test_job_at_work_shows_no_secret_in_its_files_command_lines_and_spark_ui(job: SecretJob) -> None:
    produce(job, range(100))
    process = job.start(SPARK, "run", job.file, "--continuous", "--log-json", "--verbose")
    wait_for(lambda: job.commits() >= 1, process)
    assert add_spark_ui(job.seen, f"http://{HOST}:{job.ui_port}") > 20
    job.seen.add_folder(job.folder)
    produce(job, range(100, 200))
    wait_for(lambda: job.commits() >= 2, process)
    process.send_signal(signal.SIGTERM)
    assert job.finish(process).code == 0
    assert [*(job.folder / "events").iterdir()], "there is an event log"
    assert any("SparkSubmit" in text.decode() for place, text in job.seen.places.items() if "command" in place)
    assert_nothing_leaked(job)


def test_crash_and_recovery_show_no_secret(job: SecretJob) -> None:
    produce(job, range(10))
    assert job.run(SPARK, "run", job.file, "--verbose", TIDELINE_CRASH_AT="decided").code == -signal.SIGKILL
    assert job.run(LOCAL, "recover", job.file, "--verbose", "--json").code == 0
    assert job.run(LOCAL, "show", job.file, "--json").code == 0
    assert_nothing_leaked(job)


def test_failures_show_no_secret(job: SecretJob) -> None:
    produce(job, range(10))
    no_store, no_broker = job.write("no-store.yaml"), job.write("no-broker.yaml")
    no_store.write_text(no_store.read_text().replace(job.s3.endpoint_url, "https://127.0.0.1:1"))
    address = job.kafka.client_options(Listener.SASL_SSL)["bootstrap.servers"]
    unanswered = no_broker.read_text().replace(address, "127.0.0.1:1")
    no_broker.write_text(unanswered.replace("broker_timeout: 60s", "broker_timeout: 3s"))
    wrong = job.secrets["WRONG"]
    without_store = {
        "wrong secret": job.start(LOCAL, "run", job.file, "--verbose", S3_SECRET=wrong),
        "key and secret mixed up": job.start(LOCAL, "recover", job.file, "--verbose", S3_KEY=wrong),
        "S3 is down": job.start(LOCAL, "show", no_store),
    }
    writing: Mapping[str, tuple[int, Path, Mapping[str, str]]] = {
        "wrong password": (4, job.file, {"SASL_PASSWORD": wrong}),
        "wrong password of the key": (2, job.file, {"KEY_PASSWORD": wrong}),
        "brokers are down": (4, no_broker, {}),
        "unforeseen": (1, job.file, {"TIDELINE_FAIL_AT": "manifest"}),
    }
    for name, (code, file, env) in writing.items():
        ended = job.run(LOCAL, "run", file, "--verbose", **env)
        assert ended.code == code, f"{name}: {ended.err}"
    for name, process in without_store.items():
        ended = job.finish(process)
        assert ended.code == (6 if name == "S3 is down" else 2), f"{name}: {ended.err}"
    assert_nothing_leaked(job)


def test_tasks_that_fail_on_spark_show_no_secret(job: SecretJob) -> None:
    produce(job, range(10))
    assert job.kafka.security is not None
    authority = job.folder / "authority.pem"
    authority.write_bytes(job.kafka.security.certificates.authority.read_bytes())
    without = job.write("without.yaml", **{"ssl.ca.location": str(authority)})
    process = job.start(LOCAL, "run", without, "--verbose", TIDELINE_ON_SPARK="1", TIDELINE_FREEZE_AT="begun")
    wait_until_frozen(process)
    authority.unlink()
    process.send_signal(signal.SIGCONT)
    ended = job.finish(process)
    assert ended.code == 2, ended.err
    assert_nothing_leaked(job)


def test_search_finds_what_leaks(job: SecretJob, tmp_path: Path) -> None:
    for name, secret in job.secrets.items():
        for number, shown in enumerate((secret, json.dumps({"it": secret}), f"a={secret}&b")):
            (tmp_path / f"{name}-{number}").write_text(shown)
    seen = Seen()
    seen.add_folder(tmp_path)
    assert len(seen.leaks(job.secrets)) == 3 * len(job.secrets)
