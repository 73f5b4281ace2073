"""librdkafka's clients as a job file configures them, and the classes of their errors.

::

    refused      wrong credentials, no permission, no trust in a certificate     final: SourceError
    silent       brokers do not answer, or have no leader for now                waited for, within a bound
    gone         no such topic or partition, or no such offset any more          the caller decides
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ingest.sources.kafka.options import KafkaOptions
from timeline.errors import ConfigError, SourceError, TidelineError
from timeline.redact import is_secret_name

log = logging.getLogger(__name__)

REFUSALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Refusals that a retry does not change."""

NO_SUCH_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    }
)
"""Errors for a topic or partition that does not exist, or not yet."""

_CONSEQUENCES = frozenset({KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
"""Errors that follow from other errors and do not name the cause."""

_TLS_ALERT = "SSL alert number"
"""Part of the error text where a broker refuses a certificate after the handshake (TLS 1.3)."""

_REFUSAL_WAIT_S = 3.0
"""A broker that starts may refuse credentials that it has not loaded yet."""

_WARN_AFTER_S = 5.0

_READER_GROUP = "tideline-reader"
"""librdkafka requires a group name; this group is never joined and never committed to."""

TClient = TypeVar("TClient", AdminClient, Consumer)

_PROPERTY = re.compile(r'configuration property:? "([^"]+)"')
_MASK = "…"


class BrokerDeadline:
    """Deadline for brokers that do not answer; records their errors, and raises when the deadline has passed.

    Args:
        options: the brokers, and their timeout.
        timeout_error: the error that is raised when the deadline has passed.
        monotonic: the clock, in seconds.
    """

    def __init__(
        self,
        options: KafkaOptions,
        timeout_error: type[TidelineError],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._timeout_error = timeout_error
        self._monotonic = monotonic
        self.begin()

    def begin(self) -> None:
        """Restart the timeout, after an answer or before a request."""
        self._since = self._monotonic()
        self._refused_since: float | None = None
        self._reason = ""
        self._has_warned = False

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._since + self._options.broker_timeout - self._monotonic()

    @property
    def has_error(self) -> bool:
        """Whether an error was recorded since the timeout started."""
        return bool(self._reason)

    def record_error(self, error: KafkaError) -> None:
        """Record an error; librdkafka reports errors as they occur."""
        is_refusal = error.code() in REFUSALS or _TLS_ALERT in error.str()
        if is_refusal and self._refused_since is None:
            self._refused_since = self._monotonic()
        # A timeout follows from an earlier error: the cause is kept.
        if is_refusal or not self._reason or (self._refused_since is None and error.code() not in _CONSEQUENCES):
            self._reason = shown(error.str() or error.name(), self._options)

    def check(self) -> None:
        """Return while waiting may help.

        Raises:
            SourceError: brokers refuse this client.
            TidelineError: of class `timeout_error`: the deadline has passed.
        """
        brokers = self._options.bootstrap_servers
        refused_s = None if self._refused_since is None else self._monotonic() - self._refused_since
        if refused_s is not None and (refused_s >= _REFUSAL_WAIT_S or self.left_s <= 0):
            raise SourceError(
                f"brokers {brokers} refuse this job: {self._reason}; check source.options (security.protocol, "
                "sasl.*, ssl.*) and what its user may do: DESCRIBE and READ on the topics"
            )
        reason = self._reason or "they say nothing"
        if not self._has_warned and self._monotonic() - self._since >= _WARN_AFTER_S:
            self._has_warned = True
            log.warning("brokers %s do not answer, waiting up to %.0f s more: %s", brokers, self.left_s, reason)
        if self.left_s <= 0:
            raise self._timeout_error(
                f"brokers {brokers} have not answered for {self._options.broker_timeout:g} s: {reason}; check "
                "source.bootstrap_servers, the network and security.protocol, or raise source.broker_timeout"
            )


def open_admin(options: KafkaOptions, deadline: BrokerDeadline) -> AdminClient:
    """A client for requests about topics; it connects with the first request.

    Raises:
        ConfigError: librdkafka refuses the options.
    """
    return _open(AdminClient, _common(options, deadline), options)


def open_consumer(options: KafkaOptions, deadline: BrokerDeadline, tuning: Mapping[str, str | int]) -> Consumer:
    """A consumer that joins no group, commits nothing and sees committed transactions only.

    Args:
        options: the job's options, which override `tuning`.
        deadline: records the consumer's errors.
        tuning: librdkafka's fetch options.

    Raises:
        ConfigError: librdkafka refuses the options.
    """
    config = {
        **tuning,
        **_common(options, deadline),
        "group.id": _READER_GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    return _open(Consumer, config, options)


def error_of(failure: KafkaException) -> KafkaError:
    """The error inside librdkafka's exception."""
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def shown(text: str, options: KafkaOptions) -> str:
    """A text of librdkafka with the values of secret options masked, in case the text repeats one."""
    for name, value in options.options.items():
        if value and _is_secret_option(name):
            text = text.replace(value, _MASK)
    return text


def _is_secret_option(name: str) -> bool:
    return is_secret_name(name) or name.endswith((".pem", "oauthbearer.config"))


def _common(options: KafkaOptions, deadline: BrokerDeadline) -> dict[str, Any]:
    return {
        "client.id": "tideline",
        # Reconnect within one second of a broker's restart, not ten.
        "reconnect.backoff.max.ms": 1000,
        **options.options,
        "bootstrap.servers": options.bootstrap_servers,
        "error_cb": deadline.record_error,
        "logger": _ClientLog(options),
    }


def _open(kind: type[TClient], config: dict[str, Any], options: KafkaOptions) -> TClient:
    try:
        return kind(config)
    except KafkaException as failure:
        error = error_of(failure)
        named = _PROPERTY.search(error.str())
        if named is None:
            raise ConfigError(f"source.options: librdkafka refuses them: {_masked(error.str(), options)}") from None
        what = "has no such option" if error.str().startswith("No such") else "does not take the value of it"
        raise ConfigError(f"source.options.{named.group(1)}: librdkafka {what}") from None
    except (TypeError, ValueError) as failure:
        raise ConfigError(f"source.options: librdkafka refuses them: {_masked(str(failure), options)}") from None


def _masked(text: str, options: KafkaOptions) -> str:
    """A message about options with the values of all options masked."""
    for value in sorted(options.options.values(), key=len, reverse=True):
        text = text.replace(value, _MASK) if value else text
    return text


class _ClientLog:
    """Receives librdkafka's log lines, logged at DEBUG; errors are reported through `BrokerDeadline`."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log one line; confluent-kafka calls this method only."""
        log.debug("librdkafka: %s", shown(message % arguments, self._options))
