from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from ingest.sources.kafka.client import BrokerDeadline, shown
from ingest.sources.kafka.options import KafkaOptions
from timeline.errors import SourceError, StoreUnavailableError

SECRET = "hunter2-hunter2"
OPTIONS = KafkaOptions.model_validate(
    {
        "bootstrap_servers": "b:9092",
        "format": "json",
        "topics": ["orders"],
        "options": {"sasl.password": SECRET, "ssl.key.pem": "-----KEY", "sasl.username": "me"},
        "broker_timeout": 60,
    }
)
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "invalid credentials")
NO_CERTIFICATE = KafkaError(KafkaError._TRANSPORT, "Receive failed: tls alert bad certificate: SSL alert number 42")
DOWN = KafkaError(KafkaError._TRANSPORT, "Connection refused")
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller")


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deadline(clock: Clock) -> BrokerDeadline:
    return BrokerDeadline(OPTIONS, StoreUnavailableError, clock)


def test_silence_is_borne_up_to_the_bound_from_the_last_answer_on(deadline: BrokerDeadline, clock: Clock) -> None:
    for _ in range(3):
        clock.now_s += 59
        deadline.check()
        deadline.begin()
    deadline.record_error(DOWN)
    deadline.record_error(TIMED_OUT)
    clock.now_s += 60
    with pytest.raises(StoreUnavailableError, match="b:9092 have not answered for 60 s: Connection refused; check"):
        deadline.check()


@pytest.mark.parametrize("error", [REFUSED, NO_CERTIFICATE])
def test_refusal_is_final_within_seconds_and_keeps_its_reason(
    deadline: BrokerDeadline, clock: Clock, error: KafkaError
) -> None:
    deadline.record_error(error)
    deadline.record_error(DOWN)
    deadline.check()
    clock.now_s += 3
    with pytest.raises(SourceError, match=f"b:9092 refuse this job: {error.str()}; check source.options"):
        deadline.check()


def test_refusal_by_a_broker_that_has_just_started_is_forgotten_once_it_answers(
    deadline: BrokerDeadline, clock: Clock
) -> None:
    deadline.record_error(REFUSED)
    deadline.begin()
    clock.now_s += 30
    deadline.check()
    assert not deadline.has_error


def test_people_are_told_once_that_brokers_are_waited_for(
    deadline: BrokerDeadline, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    deadline.record_error(DOWN)
    for _ in range(10):
        clock.now_s += 1
        deadline.check()
    assert caplog.messages == ["brokers b:9092 do not answer, waiting up to 55 s more: Connection refused"]


def test_secrets_in_what_librdkafka_says_are_masked(deadline: BrokerDeadline, clock: Clock) -> None:
    assert shown(f"user me with {SECRET} and -----KEY", OPTIONS) == "user me with … and …"
    deadline.record_error(KafkaError(KafkaError._AUTHENTICATION, f"no {SECRET}"))
    clock.now_s += 60
    with pytest.raises(SourceError) as error:
        deadline.check()
    assert SECRET not in str(error.value)
