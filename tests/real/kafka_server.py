"""A real Kafka broker on loopback: one process in KRaft mode, from Maven artifacts in the user's cache.

``python -m tests.real.kafka_server`` fetches them ahead of the tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from tests.real.certificates import issue
from tests.real.kafka_properties import Listener, Security, broker_properties, client_options
from tests.real.kafka_topics import KafkaTopics
from tests.real.processes import HOST, ServerProcess, ServerStartError, on_free_ports
from tests.real.toolchain import Artifact, MissingToolchainError, fetch_jars, find_java

VERSION = "4.1.0"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    # Without this artifact the broker logs nothing, not even why it does not start.
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class KafkaServer(KafkaTopics):
    """A broker: its addresses, topics and process.

    Ports, data and credentials stay the same over `stop`, `kill` and `start`.
    """

    def __init__(self, ports: Mapping[Listener, int], security: Security | None, process: ServerProcess) -> None:
        """Do not start the broker yet; `launch` and `running` do.

        Args:
            ports: of the listeners.
            security: credentials for the secured listeners.
            process: the broker's process.
        """
        self._ports = ports
        self.security = security
        self.process = process
        super().__init__(self.client_options())

    @property
    def bootstrap_servers(self) -> str:
        """The address of the listener without security."""
        return f"{HOST}:{self._ports[Listener.PLAINTEXT]}"

    def client_options(self, listener: Listener = Listener.PLAINTEXT) -> dict[str, str]:
        """The librdkafka options of an authorized client, addresses included.

        Args:
            listener: a secured one exists only if the broker was started with security.
        """
        options = client_options(listener, self.security)
        return {"bootstrap.servers": f"{HOST}:{self._ports[listener]}"} | options

    def start(self) -> None:
        """Start or restart the broker; returns when every partition has a leader."""
        self.process.start(self._is_ready)

    def stop(self) -> None:
        """Stop the broker gracefully; no effect if it does not run."""
        self.process.stop()

    def kill(self) -> None:
        """Kill the broker (SIGKILL); its restart takes some seconds longer."""
        self.process.kill()

    def _is_ready(self) -> bool:
        if self._ports[Listener.PLAINTEXT] not in self.process.listening_ports:
            return False
        try:
            metadata = self.admin.list_topics(timeout=1)
        except KafkaException:
            return False
        partitions = [at for topic in metadata.topics.values() for at in topic.partitions.values()]
        return bool(metadata.brokers) and all(partition.leader >= 0 for partition in partitions)


def jars() -> Path:
    """The folder of the broker's jars, fetched into the cache if missing.

    Raises:
        MissingToolchainError: there is no Maven.
    """
    return fetch_jars(f"kafka-{VERSION}", _ARTIFACTS, with_dependencies=True)


def launch(folder: Path, ports: Sequence[int], security: Security | None = None) -> KafkaServer:
    """A started broker over `folder`, with existing data if there is any.

    Args:
        folder: takes data, settings and log.
        ports: on loopback: of the controller, of the plain listener, and with `security` of the other listeners.
        security: opens the secured listeners too.

    Raises:
        MissingToolchainError: there is no Java or no Maven.
        PortTakenError: another process listens on one of the ports.
        ServerStartError: the broker does not start.
    """
    java = [find_java("Kafka"), "-XX:+UseSerialGC", "-cp", f"{jars()}/*", "-Dorg.apache.logging.log4j.level=WARN"]
    listeners = dict(zip(Listener, ports[1:], strict=security is not None))
    folder.mkdir(parents=True, exist_ok=True)
    data, properties = folder / "data", folder / "server.properties"
    settings = broker_properties(data, ports[0], listeners, security)
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if not (data / "meta.properties").exists():
        scram = [] if security is None else ["--add-scram", security.scram]
        tool = ["-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
        command = [*java, *tool, "-c", str(properties), *scram]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise ServerStartError(f"Kafka's storage tool cannot prepare {data}: {done.stdout}")
    command = [*java, "-Xms64m", "-Xmx512m", "kafka.Kafka", str(properties)]
    server = KafkaServer(listeners, security, ServerProcess("Kafka", command, folder / "kafka.log"))
    server.start()
    return server


@contextmanager
def running(folder: Path, *, secured: bool = False) -> Iterator[KafkaServer]:
    """A broker over `folder` on free ports until the block ends; see `launch`.

    Args:
        folder: takes data, settings, log and certificates.
        secured: opens the listeners with SASL and TLS too, for a new user and with new certificates.
    """
    security = Security(issue(folder / "certificates")) if secured else None
    server = on_free_ports(1 + len(Listener) if secured else 2, lambda ports: launch(folder, ports, security))
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    try:
        print(jars())
    except MissingToolchainError as missing:
        sys.exit(str(missing))
