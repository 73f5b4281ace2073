"""Probe of exclusive creation, the store guarantee that the whole protocol rests on, before a store is used.

::

    create the probe, if it is not there ─► create it again ─► refused, and the first body is there  ✓
                                                  └──────────► let through, or the body changed      ✗ ConfigError

A store that ignores ``If-None-Match`` does not fail: it accepts both puts, so two writers would both
decide an epoch. Only an explicit refusal counts; a call without an answer is retried.

The probe object stays for later starts. A process that deletes its own probe can be killed before,
so a job that is restarted for years would leave one for each such start.
"""

from __future__ import annotations

import contextlib

from timeline.errors import AlreadyExistsError, ConfigError, StoreUnavailableError
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

PROBE = ".hoodie/probe"
"""Path of the probe object, whose second creation must be refused."""

_FIRST = b"created once\n"
_SECOND = b"created twice: this store keeps no promise\n"


def probe_exclusive_creation(store: ObjectStore, retry: Retry) -> None:
    """Refuse a store that creates an existing object again, and delete the probe object there.

    One probe detects a store that ignores the condition, not one that honours it most of the time:
    ``tideline check-store`` races many creators.

    Raises:
        ConfigError: this store cannot hold a timeline or a lake target.
        StoreUnavailableError: the store gave no clear answer, or denies writes.
    """
    create_or_read(store, PROBE, _FIRST, retry)
    is_refused = retry.call(lambda: _is_refused(store, PROBE, _SECOND))
    held = read_or_none(store, PROBE, retry)
    if not is_refused or held != _FIRST:
        with contextlib.suppress(StoreUnavailableError):
            store.delete([PROBE])
        found = "was told that it had won" if not is_refused else f"lost, and the object holds {held!r}"
        raise ConfigError(
            f"{store.url} cannot create an object exclusively: the second of two creators {found}. Two writers would "
            "both decide an epoch, so nothing was started. Allowed is a store that honours If-None-Match: * on PUT, "
            "reached by no gateway that drops it; tideline check-store shows what a store keeps"
        )


def _is_refused(store: ObjectStore, path: str, body: bytes) -> bool:
    try:
        store.put_if_absent(path, body)
    except AlreadyExistsError:
        return True
    return False
