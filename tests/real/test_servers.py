"""The test servers keep their data over restarts, and refuse unauthorized clients."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest
import s3fs
import yaml
from botocore.exceptions import SSLError
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ingest.config.load import load_config
from tests.conftest import or_absent
from tests.real import s3_server, services
from tests.real.kafka_properties import Listener
from tests.real.kafka_server import KafkaServer
from tests.real.kafka_topics import KafkaRecord
from tests.real.processes import (
    HOST,
    PortTakenError,
    ServerProcess,
    ServerStartError,
    is_free,
    kill_tree,
    on_free_ports,
)
from tests.real.s3_server import S3Server
from tests.real.services import Service
from tests.real.spark_cluster import SparkCluster, executor_python
from tests.real.toolchain import MissingToolchainError, find_tool, kept
from tests.waiting import wait_until

pytestmark = pytest.mark.real

CLIENT_CERTIFICATE = {"ssl.certificate.location", "ssl.key.location"}
SECURED = [Listener.SASL_PLAINTEXT, Listener.SASL_SSL, Listener.SSL]


def consume(options: dict[str, str], topic: str, until: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of the committed records of partition 0, at least up to offset `until`."""
    consumer = Consumer({**options, "group.id": "never committed", "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, f"nothing more after {found}"
            if (ended := message.error()) is not None:
                assert ended.code() == KafkaError._PARTITION_EOF, ended
                if consumer.position([TopicPartition(topic, 0)])[0].offset >= until:
                    return found
            else:
                found.append((message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()


def wait_for_refusal(options: dict[str, str], words: str) -> None:
    """Wait until a client gets a refusal with this text."""
    told: list[str] = []
    tell = {"log_level": 0, "error_cb": lambda error: told.append(f"{error.name()} {error.str()}")}
    consumer = Consumer({**options, **tell, "group.id": "refused"})
    try:
        wait_until(
            lambda: consumer.poll(0.1) is None and any(words in text for text in told), f"{words!r} is said to a client"
        )
    finally:
        consumer.close()


def test_killed_broker_comes_back_with_what_it_acknowledged(kafka: KafkaServer) -> None:
    kafka.create_topic("kept")
    kafka.produce("kept", [KafkaRecord(b"1", b"k"), KafkaRecord(None, b"k")])
    kafka.produce_in_transaction("kept", ["aborted"], commit=False)
    kafka.produce_in_transaction("kept", ["committed"], commit=True)
    kafka.kill()
    kafka.start()
    # A coordinator that was killed before it recorded the written markers writes them again, some time after the broker
    # answers: until then the transaction is not readable, and afterwards it may have two markers.
    wait_until(lambda: kafka.offsets("kept")[0][1] >= 6, "the transaction's end is there")
    assert kafka.offsets("kept")[0][0] == 0
    assert consume(kafka.client_options(), "kept", 6) == [
        (0, b"k", b"1"),
        (1, b"k", None),
        (4, None, b"committed"),
    ]


@pytest.mark.parametrize("listener", SECURED)
def test_secured_broker_takes_and_gives_records(kafka: KafkaServer, listener: Listener) -> None:
    topic = f"through-{listener}"
    kafka.create_topic(topic)
    kafka.produce(topic, ["value"])
    assert consume(kafka.client_options(listener), topic, 1) == [(0, None, b"value")]


@pytest.mark.parametrize("listener", [Listener.SASL_PLAINTEXT, Listener.SASL_SSL])
def test_secured_broker_refuses_a_wrong_password(kafka: KafkaServer, listener: Listener) -> None:
    wait_for_refusal(kafka.client_options(listener) | {"sasl.password": "guessed"}, "_AUTHENTICATION")


def test_broker_refuses_a_client_without_a_certificate(kafka: KafkaServer) -> None:
    options = kafka.client_options(Listener.SSL)
    stranger = {key: value for key, value in options.items() if key not in CLIENT_CERTIFICATE}
    wait_for_refusal(stranger, "alert bad certificate")


def test_client_without_the_authority_does_not_trust_the_broker(kafka: KafkaServer) -> None:
    options = kafka.client_options(Listener.SASL_SSL)
    del options["ssl.ca.location"]
    wait_for_refusal(options, "certificate verify failed")


def test_killed_s3_server_comes_back_with_its_objects_over_tls(s3_tls: S3Server) -> None:
    s3fs.S3FileSystem(**s3_tls.options, skip_instance_cache=True).pipe_file("lake/a", b"kept")
    s3_tls.kill()
    s3_tls.start()
    assert s3fs.S3FileSystem(**s3_tls.options, skip_instance_cache=True).cat_file("lake/a") == b"kept"


def test_client_without_the_authority_does_not_trust_the_s3_server(s3_tls: S3Server) -> None:
    client = {key: value for key, value in s3_tls.options["client_kwargs"].items() if key != "verify"}
    once = {"retries": {"max_attempts": 0}}
    stranger = s3fs.S3FileSystem(
        **(s3_tls.options | {"client_kwargs": client, "config_kwargs": once}), skip_instance_cache=True
    )
    with pytest.raises(SSLError):
        stranger.cat_file("lake/a")


def test_two_clusters_fit_on_a_machine(spark_cluster: SparkCluster) -> None:
    assert spark_cluster.master.listening_ports == {spark_cluster.port, spark_cluster.web_port}


# Prints which workers ran its tasks. A task waits for the file `go`, and fails if it can import this project.
DRIVER = """
import json, pathlib, sys, time
from pyspark.sql import SparkSession

conf, folder = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])

def task(_):
    try:
        import ingest
    except ImportError:
        import confluent_kafka, deltalake, pyarrow, s3fs
        worker = pathlib.Path.cwd().parents[1].name
        (folder / f"started-{worker}").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        return [worker]
    raise RuntimeError(f"executors see {ingest.__file__}")

builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print(json.dumps(spark.sparkContext.parallelize(range(4), 4).mapPartitions(task).collect()))
spark.stop()
"""


def test_spark_master_that_still_starts_has_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[int, str]] = [
        (404, "no page yet"),
        (200, "<!DOCTYPE html><html>the page for people</html>"),
        (200, '{"workers": [{"port": 1, "state": "ALIVE"}, {"port": 2, "state": "DEAD"}]}'),
    ]

    def answer(url: str, timeout: float) -> io.BytesIO:
        code, text = answers.pop(0)
        body = io.BytesIO(text.encode())
        if code != 200:
            raise HTTPError(url, code, "", Message(), body)
        return body

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    master = ServerProcess("master", [], Path("master.log"))
    cluster = SparkCluster(1, 2, master, [])
    assert [cluster.registered_ports() for _ in range(3)] == [[], [], [1]]


@pytest.mark.spark
@pytest.mark.slow
def test_job_outlives_one_of_its_workers(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    conf = json.dumps(spark_cluster.conf | {"spark.ui.enabled": "false"})
    environment = os.environ | {"PYSPARK_PYTHON": str(executor_python(tmp_path / "python"))}
    command = [sys.executable, "-c", DRIVER, conf, str(tmp_path)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        started = [tmp_path / f"started-worker-{number}" for number in range(2)]
        wait_until(
            lambda: driver.poll() is not None or all(path.exists() for path in started),
            "a task of the job runs on each worker",
        )
        lost = [executor for executor in spark_cluster.executors(0) for executor in (executor, *executor.children())]
        spark_cluster.kill_worker(0)
        (tmp_path / "go").touch()
        out, err = driver.communicate()
    spark_cluster.start_worker(0)
    assert driver.returncode == 0, err
    assert json.loads(out) == ["worker-1"] * 4
    assert len(lost) == 2, "an executor and its Python"
    assert not any(is_alive(process) for process in lost)


@pytest.mark.parametrize("service", services.SERVICES.values(), ids=lambda service: service.name)
def test_server_says_that_a_port_is_taken(service: Service, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        ports = [*on_free_ports(len(service.ports) - 1, list), other.getsockname()[1]]
        with or_absent(), pytest.raises(PortTakenError):
            service.launch(tmp_path / "data", ports)


def test_other_ports_are_tried_where_one_is_taken() -> None:
    tried: list[Sequence[int]] = []

    def start(ports: Sequence[int]) -> Sequence[int]:
        tried.append(ports)
        if len(tried) < 3:
            raise PortTakenError("taken")
        return ports

    assert on_free_ports(2, start) == tried[2]
    assert len({tuple(ports) for ports in tried}) == 3
    assert all(is_free(port) for port in tried[2])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of services; they end with the test."""
    yield tmp_path / "services"
    services.stop(tmp_path / "services")


def services_say(word: str, folder: Path) -> str:
    """Output of a command of `services` on the smallest service."""
    names = ["s3"] if word == "start" else []
    command = [sys.executable, "-m", "tests.real.services", word, *names, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def processes_of(folder: Path) -> list[psutil.Process]:
    record = json.loads((folder / "s3.pid").read_text())
    return [psutil.Process(int(pid)) for pid in record["commands"]]


def settings_in(text: str) -> str:
    return text.partition("A job file:")[2]


def test_services_are_started_once_and_end_when_told(folder: Path) -> None:
    with or_absent():
        s3_server.build()
    first = services_say("start", folder)
    assert yaml.safe_load(settings_in(first))["storage"].keys() == {"endpoint_url", "key", "secret"}
    assert services_say("start", folder) == services_say("status", folder) == first
    assert [oct(path.stat().st_mode & 0o777) for path in folder.glob("s3.*")] == ["0o600"] * 2
    processes = processes_of(folder)
    assert services_say("stop", folder) == "ended: s3\n"
    assert not any(is_alive(process) for process in processes)
    assert services_say("stop", folder) == "ended: nothing ran\n"
    assert (folder / "s3" / "data" / services.BUCKET).is_dir(), "data stays"


def test_the_job_file_that_services_print_works_as_it_is(folder: Path, tmp_path: Path) -> None:
    with or_absent():
        s3_server.build()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "job.yaml").write_text(settings_in(services_say("start", folder)))
    command = [sys.executable, "-m", "ingest", "run", "job.yaml"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "services: done: 1 epoch, 2 rows committed" in done.stdout


@pytest.mark.parametrize("names", [["kafka"], ["kafka", "s3"], ["spark", "s3"], ["kafka", "s3", "tikv"]])
def test_the_job_file_of_any_services_is_a_whole_one(names: Sequence[str], tmp_path: Path) -> None:
    told: Mapping[str, Mapping[str, services.Keys | Sequence[services.Keys]]] = {
        "kafka": {"source": {"type": "kafka", "bootstrap_servers": "127.0.0.1:9092"}},
        "s3": {"storage": {"endpoint_url": "http://127.0.0.1:7070", "key": "k", "secret": "s"}},
        "spark": {"spark": {"master": "spark://127.0.0.1:7077"}},
        "tikv": {"targets": [{"type": "tikv", "pd": ["127.0.0.1:2379"]}]},
    }
    settings = [told[name] for name in names]
    if "spark" in names:
        settings.append(told["kafka"])  # a cluster reads no file of this machine
    file = tmp_path / "job.yaml"
    file.write_text("\n".join(services.job_file(settings)))
    assert load_config(file, {}).name == "services"


def test_services_that_died_are_started_again_with_the_same_credentials(folder: Path) -> None:
    with or_absent():
        s3_server.build()
    first = services_say("start", folder)
    for process in processes_of(folder):
        kill_tree(process)
    wait_until(lambda: "gone" in services.status(folder), "the server is missed")
    again = yaml.safe_load(settings_in(services_say("start", folder)))["storage"]
    assert again["secret"] == yaml.safe_load(settings_in(first))["storage"]["secret"]
    assert all(is_alive(process) for process in processes_of(folder))


def test_services_leave_a_process_alone_that_got_an_id_of_theirs(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        record = {"commands": {stranger.pid: ["versitygw"]}, "settings": {}}
        (tmp_path / "s3.pid").write_text(json.dumps(record))
        assert services.stop(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()
    assert not list(tmp_path.iterdir())


def test_a_killed_server_takes_along_what_it_started(tmp_path: Path) -> None:
    server = ServerProcess("two sleepers", ["bash", "-c", "bash -c 'sleep 600 & wait' & wait"], tmp_path / "log")
    server.start(lambda: len(descendants(server)) == 2)
    sleepers = descendants(server)
    server.kill()
    wait_until(lambda: not any(is_alive(sleeper) for sleeper in sleepers), "they have ended")


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    server = ServerProcess("the broken server", ["bash", "-c", "echo no disk; exit 3"], tmp_path / "log")
    with pytest.raises(ServerStartError, match=r"the broken server ended with code 3; it said: no disk"):
        server.start(lambda: False)


def test_of_two_that_make_the_same_one_result_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both = threading.Barrier(2)

    def make(folder: Path) -> None:
        (folder / "made").write_text(folder.name)
        both.wait(60)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: kept("thing", "recipe", make), range(2))
    assert first == second
    assert [path.name for path in (tmp_path / "tideline" / "servers").iterdir()] == [first.name]


def test_what_failed_halfway_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        kept("thing", "recipe", fail)
    assert not list((tmp_path / "tideline" / "servers").iterdir())


def test_a_missing_tool_is_named_with_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolchainError, match=r"Kafka needs mvn: apt-get install maven"):
        find_tool("mvn", "Kafka", "apt-get install maven")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(server: ServerProcess) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)
