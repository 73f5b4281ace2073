"""Groups of tests that share a worker, and their order: servers start once a run, all workers are busy to its end.

Each file is a group, and a group runs on one worker. Other groups::

    streams    needs Kafka or a Spark cluster          first, as it takes longest
    tikv       needs a TiKV cluster
    session    reads through the one Spark session of the run
    (none)     tests that take a minute each are groups of their own

The longest groups come first, so that short files even out the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from xdist.scheduler import LoadScopeScheduling

FIXTURES: Mapping[str, str] = {
    **dict.fromkeys(("kafka", "s3_tls", "spark_cluster"), "streams"),
    **dict.fromkeys(("tikv", "tikv_tls", "splitting"), "tikv"),
    "spark": "session",
}
"""Fixtures that start a server or session, and the group whose worker has it."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "streams": (
        "tests/real/test_cluster.py",
        "tests/real/test_kafka_faults.py",
        "tests/real/test_kafka_job.py",
        "tests/real/test_kafka_source.py",
        "tests/real/test_leaks.py",
        "tests/real/test_look_commands.py",
        "tests/real/test_mending.py",
        "tests/real/test_servers.py",
        "tests/real/test_stream_kafka.py",
        "tests/real/test_tls.py",
        "tests/spark/test_exchange.py",
    ),
    "tikv": (
        "tests/contract/test_tikv_sink.py",
        "tests/real/test_tikv_audit.py",
        "tests/real/test_tikv_client.py",
        "tests/real/test_tikv_cluster.py",
        "tests/real/test_tikv_crashes.py",
        "tests/real/test_tikv_faults.py",
        "tests/real/test_tikv_job.py",
        "tests/real/test_tikv_kills.py",
        "tests/real/test_tikv_transactions.py",
    ),
    "session": (
        "tests/spark/test_read_back.py",
        "tests/spark/test_stream.py",
        "tests/spark/test_task_errors.py",
        "tests/spark/test_timeline_source.py",
        "tests/spark/test_transform.py",
    ),
}

SEVERAL = {"tests/real/test_tikv_kills.py", "tests/spark/test_timeline_source.py"}
"""Files with a test that needs a fixture of another group too."""

ALONE = ("tests/bench/test_scripts.py", "tests/crash/test_kill.py", "tests/cli/test_poison.py")
"""Files whose tests are groups of their own."""

FIRST = (
    *("streams", "tikv", "tests/crash/test_kill", "session", "tests/bench/", "tests/cli/test_poison.py"),
    *("tests/real/test_soak.py", "tests/property/test_values_exact.py", "tests/crash/", "tests/real/", "tests/cli/"),
    *("tests/spark/", "tests/property/", "tests/notebooks/", "tests/contract/", "tests/explore/"),
)
"""Prefixes of groups, the longest first; all others follow."""

_GROUP_OF = {file: group for group, files in GROUPS.items() for file in files}


class Turns(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker one group after the other; pytest-xdist's ``loadgroup`` does nothing with pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(node_id: str) -> str:
    """The group of a test, by its node id."""
    file = node_id.partition("::")[0]
    return node_id if file in ALONE else _GROUP_OF.get(file, file)


def turn_of(item: pytest.Item) -> int:
    """Position of a test's group in the order."""
    group = group_of(item.nodeid)
    return next((turn for turn, beginning in enumerate(FIRST) if group.startswith(beginning)), len(FIRST))


def check(item: pytest.Item) -> None:
    """Refuse a test that would start a server a second time.

    Raises:
        pytest.UsageError: its file and a fixture that it needs are in different groups.
    """
    file = item.nodeid.partition("::")[0]
    needed = {FIXTURES[name]: name for name in getattr(item, "fixturenames", ()) if name in FIXTURES}
    for group, name in needed.items():
        if group != group_of(item.nodeid) and file not in SEVERAL:
            raise pytest.UsageError(f"{item.nodeid} needs {name}: list its file in tests/turns.py under {group!r}")
