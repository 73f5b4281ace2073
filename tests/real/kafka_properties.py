"""Properties of the test broker: listeners with their security, and settings of one broker for quick tests."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from tests.real.certificates import Certificates
from tests.real.processes import HOST

_MECHANISM = "SCRAM-SHA-512"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# One replica; quick start, stop and restart. Retention and compaction run often, so that tests can wait for them; their
# effect depends on a topic's own settings (retention.ms, cleanup.policy, segment.ms …).
_SETTINGS: Mapping[str, object] = {
    "node.id": 1,
    "process.roles": "broker,controller",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # A killed broker registers again only after its old session has expired (9 s by default).
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    # Allocated at start; 128 MiB by default.
    "log.cleaner.dedupe.buffer.size": 8 << 20,
}


class Listener(enum.StrEnum):
    """The broker's listeners for clients, named by Kafka's security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"
    SSL = "SSL"


@dataclass(frozen=True)
class Security:
    """Credentials for the secured listeners: a SASL user, or a certificate of the same authority."""

    certificates: Certificates
    user: str = "tideline"
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def scram(self) -> str:
        """The user in the storage tool's format."""
        return f"{_MECHANISM}=[name={self.user},password={self.password}]"


def broker_properties(
    data: Path, controller_port: int, ports: Mapping[Listener, int], security: Security | None
) -> Mapping[str, object]:
    """The broker's settings.

    Args:
        data: folder of the topics' logs.
        controller_port: between the roles broker and controller.
        ports: of the listeners for clients; secured listeners need `security`.
        security: certificates and user.
    """
    addresses = {str(listener): f"{listener}://{HOST}:{port}" for listener, port in ports.items()}
    protocols = {"CONTROLLER": "PLAINTEXT"} | {name: name for name in addresses}
    return {
        **_SETTINGS,
        "log.dirs": data,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": ",".join([*addresses.values(), f"CONTROLLER://{HOST}:{controller_port}"]),
        "advertised.listeners": ",".join(addresses.values()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        **({} if security is None else _security_properties(security)),
    }


def client_options(listener: Listener, security: Security | None) -> dict[str, str]:
    """The librdkafka options of an authorized client, without the addresses."""
    if listener is Listener.PLAINTEXT:
        return {}
    if security is None:
        raise ValueError(f"{listener} needs security, which this broker was started without")
    protocol = {"security.protocol": str(listener)}
    sasl = {"sasl.mechanism": _MECHANISM, "sasl.username": security.user, "sasl.password": security.password}
    trust = {"ssl.ca.location": str(security.certificates.authority)}
    match listener:
        case Listener.SASL_PLAINTEXT:
            return protocol | sasl
        case Listener.SASL_SSL:
            return protocol | sasl | trust
        case Listener.SSL:
            client = str(security.certificates.client)
            return protocol | trust | {"ssl.certificate.location": client, "ssl.key.location": client}
        case _:
            assert_never(listener)


def _security_properties(security: Security) -> Mapping[str, object]:
    return {
        "sasl.enabled.mechanisms": _MECHANISM,
        f"listener.name.sasl_plaintext.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": security.certificates.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security.certificates.authority,
        "listener.name.ssl.ssl.client.auth": "required",
    }
