"""Probes the stores that a job writes to for exclusive creation, before anything is written there."""

from __future__ import annotations

from ingest.driver.build import TimelineHandle
from timeline.stores.opening import open_store
from timeline.stores.probe import probe_exclusive_creation


def probe_stores(opened: TimelineHandle) -> None:
    """Refuse a store that does not create objects exclusively: the timeline's, or a lake target's.

    Each bucket and each file system is probed once, by three small requests.

    Raises:
        ConfigError: a store cannot hold a timeline or the log of a table.
        StoreUnavailableError: a store gives no clear answer, or denies writes.
    """
    config = opened.config
    places = [place for options in (*config.targets, config.quarantine) if (place := options.lake_path)]
    stores = [opened.store, *(open_store(place, config.storage) for place in places)]
    for store in {store.traits.medium: store for store in reversed(stores)}.values():
        probe_exclusive_creation(store, opened.retry)
