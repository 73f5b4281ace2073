"""Origin of an unforeseen error: a sink or store of another package."""

from __future__ import annotations

import traceback

from ingest.config.registry import installed_sinks
from timeline.stores.opening import installed_stores

_OWN = frozenset({"ingest", "sinks", "timeline", "tideline"})


def plugin_of(error: BaseException) -> str | None:
    """The package of an installed sink or store whose code is in an error's traceback; None for any other error."""
    entries = (*installed_sinks(), *installed_stores())
    packages = {entry.module.partition(".")[0] for entry in entries} - _OWN
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((name for module in modules if (name := module.partition(".")[0]) in packages), None)
