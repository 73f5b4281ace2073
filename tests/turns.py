"""Which tests share a worker, and in which order: servers start once a run, and both workers are busy to its end.

pytest-xdist (``--dist loadgroup``) gives tests of one group to one worker, and groups in the order in which they are
collected. A file is a group, but for these::

    s3         what needs an S3 server or a Spark cluster, first, as it takes longest
    kafka      what needs a Kafka broker
    tikv       what needs a TiKV cluster
    session    what reads through the one Spark session of the run
    (none)     single tests that take a minute each

What takes longest comes first, so that short files are left to even it out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

GROUPS = {
    "kafka": {"kafka", "s3_tls"},
    "s3": {"s3", "spark_cluster"},
    "tikv": {"tikv", "tikv_tls", "splitting"},
    "session": {"spark"},
}
"""Fixtures, by the group whose worker has them; the first that fits."""

ALONE = ("tests/explore/test_every_interleaving.py", "tests/crash/test_kill.py")
"""Files whose tests are groups of their own."""

FIRST = (
    *("s3", "tikv", "kafka", "tests/crash/test_kill", "session", "tests/explore/", "tests/cli/test_poison.py"),
    *("tests/property/test_values_exact.py", "tests/crash/", "tests/real/", "tests/cli/", "tests/property/"),
)
"""Beginnings of groups, the longest first; all others come behind them."""

_MARK = "@"
"""What pytest-xdist puts between a test's name and its group."""


def arrange(items: list[pytest.Item]) -> None:
    """Group all tests, and put them into turns."""
    groups = {item: group_of(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _turn(groups[item]))


def group_of(item: pytest.Item) -> str:
    """The group of one test."""
    fixtures = set(getattr(item, "fixturenames", ()))
    for group, needed in GROUPS.items():
        if fixtures & needed:
            return group
    file = item.nodeid.partition("::")[0]
    return item.nodeid if file in ALONE else file


def name_of(node_id: str, groups: Sequence[str] = tuple(GROUPS)) -> str:
    """A test's own name, without the group that pytest-xdist has put behind it."""
    name, mark, group = node_id.rpartition(_MARK)
    return name if mark and (group in groups or group.startswith("tests/")) else node_id


def _turn(group: str) -> int:
    return next((turn for turn, beginning in enumerate(FIRST) if group.startswith(beginning)), len(FIRST))
