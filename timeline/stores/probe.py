"""Whether a store keeps the one promise that everything rests on, asked before anything is entrusted to it.

::

    create the probe, if it is not there ─► create it again ─► refused, and the first body is there  ✓
                                                  └──────────► let through, or the body changed      ✗ ConfigError

A store that does not know ``If-None-Match`` does not fail: it answers yes to both, and two writers
would both have decided. Only the explicit refusal counts; a call without an answer is made again.

The probe stays for every later start. Whoever removed its own could be killed before that, and a
job that is restarted for years would leave one each time.
"""

from __future__ import annotations

import contextlib

from timeline.errors import AlreadyExistsError, ConfigError, StoreUnavailableError
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

PROBE = ".hoodie/probe"
"""The object that is created, and then refused to be created again."""

_FIRST = b"created once\n"
_SECOND = b"created twice: this store keeps no promise\n"


def probe_exclusive_creation(store: ObjectStore, retry: Retry) -> None:
    """Refuse a store that lets an existing object be created again; nothing is left where it does.

    One probe sees a store that ignores the condition, not one that keeps it most of the time:
    ``tideline check-store`` races many creators.

    Raises:
        ConfigError: this store cannot hold a timeline or a lake target.
        StoreUnavailableError: it gave no clear answer, or may not be written to.
    """
    create_or_read(store, PROBE, _FIRST, retry)
    is_refused = retry.call(lambda: _is_refused(store, PROBE, _SECOND))
    held = read_or_none(store, PROBE, retry)
    if not is_refused or held != _FIRST:
        with contextlib.suppress(StoreUnavailableError):
            store.delete(PROBE)
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
