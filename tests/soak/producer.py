"""Fills a topic with transactions of unique JSON records; some are aborted, one record in a hundred is malformed.

``python -m tests.soak.producer BOOTSTRAP_SERVERS TOPIC SEED`` goes on until SIGTERM, through broker failures: the next
producer with the same transactional id aborts a failed transaction.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from collections.abc import Iterator

from confluent_kafka import KafkaException, Producer

_RECORDS_A_TRANSACTION = 100
_TRANSACTIONS_A_SECOND = 4
_ABORTED = 0.1
_MALFORMED = 0.01
_REQUEST_S = 10.0


def records(draw: random.Random) -> Iterator[bytes]:
    """Values of records, each with a unique id, without end."""
    number = 0
    while True:
        value = json.dumps({"id": number, "text": draw.randbytes(draw.randrange(20, 120)).hex()}).encode()
        yield value[:-2] if draw.random() < _MALFORMED else value
        number += 1


def produce(bootstrap_servers: str, topic: str, seed: int, stop: threading.Event) -> None:
    """Produce until `stop` is set.

    Args:
        bootstrap_servers: the broker.
        topic: an existing topic.
        seed: of the records.
        stop: ends the producer.
    """
    draw = random.Random(f"{seed} records")
    values = records(draw)
    while not stop.is_set():
        try:
            _produce_until_failure(bootstrap_servers, topic, draw, values, stop)
        except KafkaException as error:
            print(f"once more: {error}", file=sys.stderr, flush=True)
            stop.wait(0.5)


def _produce_until_failure(
    bootstrap_servers: str, topic: str, draw: random.Random, values: Iterator[bytes], stop: threading.Event
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "soak",
            "transaction.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    producer.init_transactions(_REQUEST_S)
    while not stop.is_set():
        producer.begin_transaction()
        for _ in range(_RECORDS_A_TRANSACTION):
            producer.produce(topic, next(values))
        if draw.random() < _ABORTED:
            producer.flush(_REQUEST_S)  # so that the records are in the log, and have to be skipped
            producer.abort_transaction(_REQUEST_S)
        else:
            producer.commit_transaction(_REQUEST_S)
        stop.wait(1 / _TRANSACTIONS_A_SECOND)


def main(bootstrap_servers: str, topic: str, seed: str) -> None:
    """Produce until SIGTERM; the open transaction is ended first."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    produce(bootstrap_servers, topic, int(seed), stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
