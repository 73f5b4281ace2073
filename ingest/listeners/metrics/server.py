"""The endpoint that Prometheus scrapes, on daemon threads of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from timeline.errors import ConfigError

log = logging.getLogger(__name__)

_POLL_S = 0.1
"""Longest wait of the job's end for the endpoint's shutdown."""


@contextmanager
def serve(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Answer scrapes while the context lasts; yields the URL.

    Any path below the port gives the metrics, as OpenMetrics text where the request accepts that.

    Args:
        registry: the metrics.
        host: the address to listen at.
        port: the port; 0 for a free one, which is logged.

    Raises:
        ConfigError: the address or port cannot be bound.
    """
    try:
        server = _listening(registry, host, port)
    except OSError as error:
        raise ConfigError(
            f"metrics: nothing can listen at {host}:{port}: {error.strerror or error}; nothing was started. Is this "
            "job running already? Else give each job of this machine a metrics.port of its own (0 takes a free "
            "one), or correct metrics.host"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="tideline-metrics", daemon=True)
    thread.start()
    url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    log.info("metrics at %s", url)
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listening(registry: CollectorRegistry, host: str, port: int) -> WSGIServer:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]

    class Server(ThreadingWSGIServer):
        address_family = family

    return make_server(host, port, make_wsgi_app(registry), Server, _Unlogged)


class _Unlogged(WSGIRequestHandler):
    """Logs no request: scrapes come every few seconds."""

    def log_message(self, format: str, *arguments: object) -> None:
        """See BaseHTTPRequestHandler."""
