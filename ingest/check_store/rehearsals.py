"""Checks beyond single store calls: commits to a Delta table, and the whole protocol killed and recovered."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ingest.check_store.checks import CheckContext, CheckOutcome, failed, ok, skipped
from ingest.check_store.lakes import DeltaLake, ObjectLake
from ingest.check_store.numbers import NUMBER_SCHEMA, NumberSource
from ingest.check_store.processes import CrashAt, Lake, faults, run_process
from sinks.delta.entry import DeltaLogEntry
from sinks.delta.location import delta_location, delta_storage_options, is_delta_place, trusted_authorities
from sinks.delta.log import DeltaLog
from timeline.errors import StoreUnavailableError
from timeline.failpoints import CRASH_POINTS
from timeline.stores.opening import open_store
from timeline.units import count

QUICK_POINTS = ("requested", "written", "manifest", "decided", "part-committed", "part-aborted")
"""Crash points of a quick matrix: one in each phase of an epoch and of a rollback."""

_OF_A_ROLLBACK = tuple(point for point in CRASH_POINTS if point.startswith("rollback") or point == "part-aborted")


def one_table_version_wins(context: CheckContext) -> CheckOutcome:
    """Of two commits of the same version exactly one lands."""
    if not is_delta_place(context.url):
        return skipped("delta-rs does not write here")
    url, barrier = f"{context.url}/versions", threading.Barrier(2)
    _log(url, context.storage, "first").create(NUMBER_SCHEMA, [], _entry(0))

    def lands(log: DeltaLog, epoch: int) -> bool:
        table = log.load()
        assert table is not None
        barrier.wait()
        try:
            log.append(table, _entry(epoch))
        except StoreUnavailableError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        logs = [_log(url, context.storage, f"writer {racer}") for racer in range(2)]
        for number in context.each_round():
            answers = list(pool.map(lands, logs, [number + 1] * 2))
            table = _log(url, context.storage, "reader").load()
            assert table is not None
            if all(answers):
                return failed(f"two writers were both told that they had committed version {number + 1}")
            if table.version != number + 1:
                return failed(
                    f"the table is at version {table.version} after {count(number + 1, 'commit')} of two writers"
                )
    return ok(f"{count(context.rounds, 'version')}, two writers each: one winner")


def every_crash_is_recovered(context: CheckContext, points: Sequence[str]) -> CheckOutcome:
    """A job killed at each of the given crash points is recovered and finished: every row exists once."""
    source = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)
    for point in points:
        context.raise_if_stopped()
        lake = _lake(context, point)
        # Only an epoch that was not prepared at the crash is rolled back.
        crashes = [CrashAt("written"), CrashAt(point)] if point in _OF_A_ROLLBACK else [CrashAt(point)]
        for number, crash in enumerate(crashes):
            if run_process(lake, source, number, crash):
                return failed(f"a job did not get to {crash.point!r}")
        if not run_process(lake, source, len(crashes)):
            return failed(f"killed at {point!r}: the next job did not end")
        if found := faults(lake, source):
            return failed(f"killed at {point!r}: {'; '.join(found)}")
    killed = f"killed at {count(len(points), 'point')} of the protocol and recovered"
    return ok(f"{killed}: every row there once, nothing left over")


def _lake(context: CheckContext, name: str) -> Lake:
    url = f"{context.url}/crash-{name}"
    if is_delta_place(url):
        return DeltaLake(url, context.storage)
    return ObjectLake(*(open_store(f"{url}/{table}", context.storage) for table in ("table", "quarantine")))


def _log(url: str, storage: Mapping[str, Any], app_id: str) -> DeltaLog:
    location = delta_location(url)
    options = delta_storage_options(location, storage)
    return DeltaLog(location, open_store(url, storage), app_id, options, trusted_authorities(location, storage))


def _entry(epoch: int) -> DeltaLogEntry:
    return DeltaLogEntry(epoch=epoch, files=(), metadata={}, written_ms=0)
