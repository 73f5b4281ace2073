"""The stores that a job writes to, asked for their one promise before anything is entrusted to them."""

from __future__ import annotations

from ingest.driver.build import TimelineHandle
from timeline.stores.opening import open_store
from timeline.stores.probe import probe_exclusive_creation


def probe_stores(opened: TimelineHandle) -> None:
    """Refuse to go on where a store does not create objects exclusively: the timeline's, or a lake target's.

    Each bucket and each file system is asked once, by three small requests.

    Raises:
        ConfigError: a store that cannot hold a timeline or the log of a table.
        StoreUnavailableError: one that gives no clear answer, or may not be written to.
    """
    config = opened.config
    places = [place for options in (*config.targets, config.quarantine) if (place := options.lake_path)]
    stores = [opened.store, *(open_store(place, config.storage) for place in places)]
    for store in {store.medium: store for store in reversed(stores)}.values():
        probe_exclusive_creation(store, opened.retry)
