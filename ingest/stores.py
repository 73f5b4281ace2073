"""The stores that a job writes to, asked for their one promise before anything is entrusted to them."""

from __future__ import annotations

import os.path

from ingest.build import Opened
from ingest.config_models import place_of
from timeline.fsspec_store import open_store
from timeline.local_store import LocalStore
from timeline.probe import probe_exclusive_creation
from timeline.store import ObjectStore


def probe_stores(opened: Opened) -> None:
    """Refuse to go on where a store does not create objects exclusively: the timeline's, or a lake target's.

    Each bucket and each file system is asked once, by three small requests.

    Raises:
        ConfigError: a store that cannot hold a timeline or the log of a table.
        StoreUnavailableError: one that gives no clear answer, or may not be written to.
    """
    config = opened.config
    places = [place for options in (*config.targets, config.quarantine) if (place := place_of(options))]
    stores = [opened.store, *(open_store(place, config.storage) for place in places)]
    for store in {_medium(store): store for store in reversed(stores)}.values():
        probe_exclusive_creation(store, opened.retry)


def _medium(store: ObjectStore) -> str:
    """What keeps the promise or not: the bucket that a store is in, or the file system."""
    if isinstance(store, LocalStore):
        folder = store.root
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        return f"device {os.stat(folder).st_dev}"
    return "/".join(store.url.split("/")[:3])
