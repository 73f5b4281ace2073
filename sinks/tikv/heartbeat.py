"""Keeps an open transaction alive: its lock's TTL, and what the cluster must not collect of it."""

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
"""How long the versions that an open transaction needs are kept after its writer has died: time to recover it."""


def safe_point_service(app_id: str, prefix: bytes, start_ts: int) -> str:
    """The name under which a transaction asks PD to keep versions.

    Each has its own: a writer that wakes late and ends what it had open lets go of nothing that its successor needs.
    """
    return f"{app_id}-{prefix.hex()}-{start_ts}"


class Heartbeat:
    """Beats for one transaction in a thread, until it is stopped or the transaction is over."""

    def __init__(
        self,
        client: TikvClient,
        transaction: Transaction,
        service: str,
        began_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to beat.

        Args:
            client: the cluster.
            transaction: an open transaction.
            service: who asks PD to keep versions.
            began_s: when its start timestamp was asked for, by `monotonic`: TTLs count from there.
            monotonic: measures.
        """
        self._client = client
        self._transaction = transaction
        self._service = service
        self._monotonic = monotonic
        self._began_s = began_s
        self._stop = threading.Event()
        # Reentrant: the thread that keeps may be the one that collects a dropped target, which stops its heartbeat.
        self._keeping = threading.RLock()
        self.is_lost = False
        """Whether somebody has ended the transaction."""
        self._thread = threading.Thread(target=self._run, name="tikv-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more, and ask for no versions: whoever releases them after this has released them."""
        with self._keeping:
            self._stop.set()

    def _run(self) -> None:
        ttl_ms = self._transaction.ttl_ms
        kept_s = self._monotonic()
        while not self._stop.wait(ttl_ms / 3000):
            elapsed_ms = int((self._monotonic() - self._began_s) * 1000)
            try:
                # A beat that does not get through makes room for the next one before the TTL is over.
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
    """Keep the cluster from collecting what an open transaction needs.

    Raises:
        InvariantError: it has collected that already.
    """
    smallest = client.pd.keep_safe_point(service, transaction.start_ts, SAFE_POINT_TTL_S)
    if smallest > transaction.start_ts:
        raise InvariantError(
            f"transaction {transaction.start_ts} is older than the cluster's GC safe point {smallest}: "
            "gc life time is shorter than an epoch takes"
        )


def release_versions(client: TikvClient, service: str) -> None:
    """Take back what `keep_versions` asked for."""
    client.pd.keep_safe_point(service, 0, 0)
