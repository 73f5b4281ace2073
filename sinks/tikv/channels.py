"""gRPC connections to PD and to stores: one for each address, created on first use, shared by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from timeline.errors import ConfigError

TResponse = TypeVar("TResponse", bound=Message)
TAnswer = TypeVar("TAnswer", bound=Message, covariant=True)

# Requests stay well below the stores' limit (raft entries of 8 MiB); answers to scans may be larger.
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
]

# gRPC's texts for a server that has closed a connection instead of answering.
_ENDED = ("Socket closed", "reset by peer", "Broken pipe")


@dataclass(frozen=True)
class Tls:
    """Files of a TLS connection, in PEM.

    Attributes:
        ca: certificates of the trusted authorities.
        cert: this client's certificate, where the servers ask for one.
        key: its private key.
    """

    ca: str
    cert: str | None = None
    key: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The files as gRPC's credentials.

        Raises:
            ConfigError: a file cannot be read.
        """
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))


class PendingCall(Protocol[TAnswer]):
    """An RPC in flight."""

    def result(self) -> TAnswer:
        """Wait for the answer; raises `grpc.RpcError`."""

    def cancel(self) -> bool:
        """Cancel the call."""


class AnswerStream(Protocol[TAnswer]):
    """A stream of answers, in the order of the requests."""

    def __iter__(self) -> Iterator[TAnswer]:
        """The answers; raises `grpc.RpcError` where the stream breaks."""

    def cancel(self) -> bool:
        """Cancel the stream."""


class Channels:
    """Connections of one process to one cluster."""

    def __init__(self, tls: Tls | None = None) -> None:
        """Connect nothing yet.

        Args:
            tls: TLS files; None: no TLS.
        """
        self._tls = tls
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._methods: dict[tuple[str, str], Callable[..., PendingCall[Message]]] = {}

    def start(
        self, address: str, method: str, request: bytes, answer: type[TResponse], timeout_s: float
    ) -> PendingCall[TResponse]:
        """Send a request.

        Args:
            address: ``host:port``, or a URL of it.
            method: full name, for example ``/tikvpb.Tikv/KvGet``.
            request: the message's bytes.
            answer: class of the response message.
            timeout_s: seconds until the call fails.
        """
        key = (address, method)
        with self._lock:
            if key not in self._methods:
                self._methods[key] = (
                    self._channel(address).unary_unary(method, response_deserializer=answer.FromString).future
                )
            call = self._methods[key]
        return call(request, timeout=timeout_s)  # type: ignore[return-value]

    def call(self, address: str, method: str, request: Message, answer: type[TResponse], timeout_s: float) -> TResponse:
        """Send a request and wait for the answer.

        Args:
            address: ``host:port``, or a URL of it.
            method: full name, for example ``/pdpb.PD/GetMembers``.
            request: the message.
            answer: class of the response message.
            timeout_s: seconds until the call fails.

        Raises:
            grpc.RpcError: the call failed.
        """
        return self.start(address, method, request.SerializeToString(), answer, timeout_s).result()

    def stream(
        self, address: str, method: str, requests: Iterator[Message], answer: type[TResponse]
    ) -> AnswerStream[TResponse]:
        """Open a stream of requests and answers.

        Args:
            address: ``host:port``, or a URL of it.
            method: full name, for example ``/pdpb.PD/Tso``.
            requests: the messages.
            answer: class of the response messages.
        """
        with self._lock:
            channel = self._channel(address)
        stream = channel.stream_stream(method, request_serializer=_serialized, response_deserializer=answer.FromString)
        return stream(requests)

    def advice(self, error: grpc.RpcError) -> str:
        """Advice for a server that cannot be reached; empty where the error's text is enough."""
        said = rpc_error_text(error)
        if is_untrusted(error):
            return "its certificate is of none of the authorities in tls: ca"
        if self._tls is not None and any(word in said for word in ("TSI_", *_ENDED)):
            return "check tls: cert and key of this client, and whether the server speaks tls at all"
        return "does it want tls?" if any(word in said for word in _ENDED) else ""

    def close(self) -> None:
        """Close all connections; calls in flight fail."""
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
            self._methods.clear()

    def _channel(self, address: str) -> grpc.Channel:
        if address not in self._channels:
            target = address.rpartition("//")[2].rstrip("/")
            if self._tls is None:
                self._channels[address] = grpc.insecure_channel(target, _OPTIONS)
            else:
                self._channels[address] = grpc.secure_channel(target, self._tls.credentials(), _OPTIONS)
        return self._channels[address]


def is_untrusted(error: grpc.RpcError) -> bool:
    """Whether the server's certificate is of no trusted authority; nothing was sent then."""
    return "CERTIFICATE_VERIFY_FAILED" in rpc_error_text(error)


def rpc_error_text(error: grpc.RpcError) -> str:
    """Status code and message of a failed call, in one line."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error) or type(error).__name__
    return f"{code().name}: {next(iter((details() or '').splitlines()), '')}"


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"TLS to TiKV: {path} cannot be read: {error.strerror}") from error
