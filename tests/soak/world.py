"""Environment of a soak: a real broker, a real S3 server behind a proxy, a producer, and one job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from sinks.delta.location import delta_storage_options
from tests.job import ROOT, write_job
from tests.real import kafka_server, s3_server
from tests.real.fault_proxy import FaultProxy
from tests.real.kafka_server import KafkaServer
from tests.real.processes import ServerProcess
from tests.real.raw_s3 import BUCKET
from tests.real.s3_server import S3Server
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store

TOPIC = "events"
PARTITIONS = 4
TABLES = ("events", "copy")
QUARANTINE = "events_quarantine"
LEASE_TTL_S = 4.0
_RECORDS_AN_EPOCH = 4_000


@dataclass(frozen=True)
class World:
    """Servers and stores of a soak; its own requests to S3 do not go through the proxy.

    Attributes:
        kafka: the broker.
        s3: the S3 server.
        proxy: S3 endpoint of the job.
        producer: fills the topic.
        job: the job file.
        bucket: all objects that the job has written.
        timeline: the folder of its timeline.
    """

    kafka: KafkaServer
    s3: S3Server
    proxy: FaultProxy
    producer: ServerProcess
    job: Path
    bucket: ObjectStore
    timeline: ObjectStore

    def table(self, name: str) -> DeltaTable | None:
        """The newest version of a table; None where there is no table."""
        options = delta_storage_options(_url(name), self.s3.options)
        return (
            DeltaTable(_url(name), storage_options=options) if DeltaTable.is_deltatable(_url(name), options) else None
        )


@contextmanager
def opened(folder: Path, seed: int) -> Iterator[World]:
    """A world below a folder until the block ends; the topic exists, the producer runs.

    Args:
        folder: takes the data and logs of all servers.
        seed: of the proxy's probabilities and of the records.
    """
    (folder / "s3" / "data" / BUCKET).mkdir(parents=True)
    with ExitStack() as stack:
        kafka = stack.enter_context(kafka_server.running(folder / "kafka"))
        s3 = stack.enter_context(s3_server.running(folder / "s3" / "data"))
        proxy = stack.enter_context(FaultProxy(s3.endpoint_url, secret=s3.secret, seed=seed))
        kafka.create_topic(TOPIC, PARTITIONS)
        producer = _producer(folder, kafka, seed)
        producer.start(lambda: True)
        stack.callback(producer.stop)
        job = write_job(folder / "job.yaml", _settings(kafka, s3, proxy))
        bucket, timeline = (open_store(_url(name), s3.options) for name in ("", TABLES[0]))
        yield World(kafka, s3, proxy, producer, job, bucket, timeline)


def _producer(folder: Path, kafka: KafkaServer, seed: int) -> ServerProcess:
    command = [sys.executable, "-m", "tests.soak.producer", kafka.bootstrap_servers, TOPIC, str(seed)]
    return ServerProcess("the producer", command, folder / "producer.log", os.environ | {"PYTHONPATH": str(ROOT)})


def _settings(kafka: KafkaServer, s3: S3Server, proxy: FaultProxy) -> dict[str, Any]:
    client = s3.options["client_kwargs"] | {"endpoint_url": proxy.url}
    return {
        "name": "soak",
        "source": {
            "type": "kafka",
            "bootstrap_servers": kafka.bootstrap_servers,
            "topics": [TOPIC],
            "format": "json",
            "max_records_per_epoch": _RECORDS_AN_EPOCH,
        },
        "schema": {"id": "bigint", "text": "string"},
        "lineage": True,
        "targets": [{"type": "delta", "name": name, "path": _url(name)} for name in TABLES],
        "epoch": {"interval": "0s"},
        "writer": {"lease_ttl": f"{LEASE_TTL_S}s"},
        # Short timeouts, so that retries take seconds instead of minutes.
        "storage": s3.options | {"client_kwargs": client, "config_kwargs": {"read_timeout": 2, "connect_timeout": 2}},
        "spark": {"master": "local[2,4]", "small_epochs": "executors", "conf": {"spark.driver.memory": "512m"}},
    }


def _url(name: str) -> str:
    return f"s3://{BUCKET}/{name}".rstrip("/")
