"""Heartbeat of an open transaction: extends the TTL of its lock, and keeps its versions from GC."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sinks.tikv.backoff import Backoff
from sinks.tikv.client import TikvClient
from sinks.tikv.transaction import Transaction, send_heartbeat
from timeline.errors import InvariantError, StoreUnavailableError

_LOG = logging.getLogger(__name__)

SAFE_POINT_TTL_S = 24 * 3600
"""How long the versions of an open transaction are kept after its writer has died: time for recovery."""


def safe_point_service(app_id: str, prefix: bytes, start_ts: int) -> str:
    """Name of the service safe point by which PD keeps a transaction's versions.

    Each transaction has its own: a late writer that ends its transaction never releases a safe point that its
    successor depends on.

    Args:
        app_id: the job's key.
        prefix: the target's key prefix.
        start_ts: the transaction's start timestamp.
    """
    return f"{app_id}-{prefix.hex()}-{start_ts}"


class Heartbeat:
    """Sends heartbeats of one transaction from a thread, until it is stopped or the transaction is over."""

    def __init__(
        self,
        client: TikvClient,
        transaction: Transaction,
        service: str,
        began_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread.

        Args:
            client: the cluster.
            transaction: an open transaction.
            service: name of its service safe point.
            began_s: when its start timestamp was requested, by `monotonic`: TTLs count from there.
            monotonic: a clock in seconds.
        """
        self._client = client
        self._transaction = transaction
        self._service = service
        self._monotonic = monotonic
        self._began_s = began_s
        self._stop = threading.Event()
        # Reentrant: a thread that holds the lock may garbage-collect a dropped sink, which calls `stop`.
        self._keeping = threading.RLock()
        self.is_lost = False
        """Whether another process has ended the transaction."""
        self._thread = threading.Thread(target=self._run, name="tikv-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and renew the safe point no more: a release after this call is final."""
        with self._keeping:
            self._stop.set()

    def _run(self) -> None:
        ttl_ms = self._transaction.ttl_ms
        kept_s = self._monotonic()
        while not self._stop.wait(ttl_ms / 3000):
            elapsed_ms = int((self._monotonic() - self._began_s) * 1000)
            try:
                # A heartbeat that fails leaves time for the next one before the TTL is over.
                backoff = Backoff(ttl_ms / 3000)
                if not send_heartbeat(self._client, self._transaction, elapsed_ms + ttl_ms, backoff):
                    self.is_lost = not self._stop.is_set()
                    return
                if self._monotonic() - kept_s > SAFE_POINT_TTL_S / 3:
                    with self._keeping:
                        if not self._stop.is_set():
                            keep_versions(self._client, self._service, self._transaction)
                    kept_s = self._monotonic()
            except (StoreUnavailableError, InvariantError) as error:
                _LOG.warning("transaction %d: no heartbeat: %s", self._transaction.start_ts, error)


def keep_versions(client: TikvClient, service: str, transaction: Transaction) -> None:
    """Keep the versions of an open transaction from the cluster's GC.

    Args:
        client: the cluster.
        service: name of the transaction's service safe point.
        transaction: an open transaction.

    Raises:
        InvariantError: GC may have collected them already.
    """
    smallest = client.pd.keep_safe_point(service, transaction.start_ts, SAFE_POINT_TTL_S)
    if smallest > transaction.start_ts:
        raise InvariantError(
            f"transaction {transaction.start_ts} is older than the cluster's GC safe point {smallest}: "
            "gc life time is shorter than an epoch takes"
        )


def release_versions(client: TikvClient, service: str) -> None:
    """Release the safe point that `keep_versions` has set."""
    client.pd.keep_safe_point(service, 0, 0)
