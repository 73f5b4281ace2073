"""Jobs over TLS: S3 behind a certificate of a private authority, and Kafka with SASL, or with certificates only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sinks.delta.location import trusting
from tests.job import SPARK, Finished, Job, environment
from tests.real.certificates import issue
from tests.real.kafka_properties import Listener
from tests.real.kafka_server import KafkaServer
from tests.real.s3_job import S3Job
from tests.real.s3_server import S3Server
from tests.real.test_kafka_job import assert_every_record_once, produce, source_of

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _nothing_is_trusted_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables of the environment that may name a proxy's authority."""
    for name in environment():
        if name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.delenv(name)


@pytest.fixture
def on_s3(tmp_path: Path, s3_tls: S3Server) -> S3Job:
    """A job whose source, timeline and tables are all behind TLS."""
    job = S3Job(tmp_path, s3_tls)
    job.put("a.jsonl", range(100), bad=1)
    job.put("b.jsonl.gz", range(100, 150))
    return job


def with_verify(job: S3Job, verify: object) -> None:
    """Set the job's option `verify`; None removes the option."""
    change_storage(job, lambda client: client.pop("verify") if verify is None else client.update(verify=verify))


def change_storage(job: S3Job, change: Callable[[dict[str, Any]], object]) -> None:
    storage = job.written()["storage"]
    change(storage["client_kwargs"])
    job.change(storage=storage)


@pytest.mark.spark
def test_one_key_makes_driver_executors_and_delta_trust_a_private_authority(on_s3: S3Job) -> None:
    killed = on_s3.tideline("run", program=SPARK, env={"TIDELINE_CRASH_AT": "part-committed"})
    assert killed.code < 0, killed.err
    recovered = on_s3.tideline("recover")
    assert recovered.code == 0, recovered.err
    on_s3.put("c.jsonl", range(150, 180), bad=1)
    ended = on_s3.tideline("run", program=SPARK)
    assert ended.code == 0, ended.err
    assert ids(on_s3, "table") == ids(on_s3, "copy") == Counter(range(180))
    checked = on_s3.tideline("fsck")
    assert checked.code == 0, checked.err
    replayed = on_s3.tideline("replay-quarantine")
    assert replayed.code == 0 and "rejected would be accepted now" in replayed.out, replayed.err


def test_trust_by_the_variable_that_s3fs_knows_holds_for_delta_too(on_s3: S3Job, s3_tls: S3Server) -> None:
    with_verify(on_s3, None)
    ended = on_s3.tideline("run", env={"AWS_CA_BUNDLE": str(s3_tls.authority)})
    assert ended.code == 0, ended.err


def test_verification_that_is_turned_off_is_off_for_delta_too(on_s3: S3Job) -> None:
    with_verify(on_s3, False)
    ended = on_s3.tideline("run")
    assert ended.code == 0, ended.err


def test_server_that_is_not_trusted_is_refused_with_the_option_to_set(on_s3: S3Job, tmp_path: Path) -> None:
    for verify, command in ((None, "run"), (str(issue(tmp_path / "other").authority), "recover")):
        with_verify(on_s3, verify)
        ended = on_s3.tideline(command)
        assert ended.code == 2
        assert "storage: {client_kwargs: {verify: /path/ca.pem}}" in last_line(ended)


def test_source_that_is_not_trusted_is_refused_with_the_option_to_set(on_s3: S3Job) -> None:
    on_s3.change(targets=[{"type": "delta", "path": "table"}], quarantine=None, timeline=None)
    with_verify(on_s3, None)
    ended = on_s3.tideline("run")
    assert ended.code == 4
    assert "client_kwargs: {verify:" in last_line(ended)


def test_file_of_authorities_that_cannot_be_read_is_named(on_s3: S3Job) -> None:
    for verify in ("/no/such/ca.pem", str(on_s3.file)):
        with_verify(on_s3, verify)
        ended = on_s3.tideline("run")
        assert ended.code == 2
        assert f"storage.client_kwargs.verify: {verify!r} cannot be read" in last_line(ended)


@pytest.mark.spark
@pytest.mark.parametrize("listener", [Listener.SASL_SSL, Listener.SSL])
def test_topic_is_read_over_tls(kafka: KafkaServer, listener: Listener, tmp_path: Path) -> None:
    topic = f"secured-{listener.lower()}"
    kafka.create_topic(topic, 2)
    produce(kafka, topic, range(1000))
    job = Job(tmp_path)
    job.write(source=secured_source(kafka, topic, listener), lineage=True)
    ended = job.tideline("run", program=SPARK)
    assert ended.code == 0, ended.err
    assert_every_record_once(job, range(1000))


@pytest.mark.parametrize(
    ("listener", "changes"),
    [
        pytest.param(Listener.SASL_SSL, {"sasl.password": "not-the-password"}, id="wrong password"),
        pytest.param(Listener.SASL_SSL, {"sasl.username": "nobody"}, id="unknown user"),
        pytest.param(Listener.SASL_SSL, {"ssl.ca.location": "other"}, id="broker that is not trusted"),
        pytest.param(Listener.SSL, {"ssl.certificate.location": "", "ssl.key.location": ""}, id="no certificate"),
    ],
)
def test_refused_client_ends_the_job_with_the_options_to_check(
    kafka: KafkaServer, listener: Listener, changes: Mapping[str, str], tmp_path: Path
) -> None:
    job = Job(tmp_path)
    other = {name: str(issue(tmp_path / value).authority) for name, value in changes.items() if value == "other"}
    job.write(source=secured_source(kafka, "any", listener, {**changes, **other}))
    ended = job.tideline("run")
    assert ended.code == 4, ended.err
    assert "refuse this job" in last_line(ended)
    assert "check source.options" in last_line(ended)
    assert "not-the-password" not in ended.err


def secured_source(
    kafka: KafkaServer, topic: str, listener: Listener, changes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A source block for a secured listener.

    Args:
        kafka: the broker.
        topic: its name.
        listener: one with security.
        changes: librdkafka options to replace; an empty value removes the option.
    """
    options = {**kafka.client_options(listener), **(changes or {})}
    address = options.pop("bootstrap.servers")
    given = {name: value for name, value in options.items() if value}
    return source_of(kafka, topic, bootstrap_servers=address, options=given)


def ids(job: S3Job, name: str) -> Counter[int]:
    with trusting(str(job.server.authority)):
        return job.ids(name)


def last_line(ended: Finished) -> str:
    return ended.err.splitlines()[-1]
