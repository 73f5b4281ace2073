"""The observed number of a query's rows: Spark reports it, fails, or never answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation

from ingest.transform.query import observed
from timeline.errors import SparkJobError


class Told:
    """A fake of `pyspark.sql.Observation`."""

    def __init__(self, ask: Callable[[], Mapping[str, int]]) -> None:
        self._ask = ask

    @property
    def get(self) -> Mapping[str, int]:
        return self._ask()


def observation(ask: Callable[[], Mapping[str, int]]) -> Observation:
    return cast(Observation, Told(ask))


def test_spark_tells_the_rows() -> None:
    assert observed(observation(lambda: {"kept": 7})) == {"kept": 7}


def test_events_that_spark_has_dropped_are_not_waited_for_forever() -> None:
    never = threading.Event()

    def ask() -> Mapping[str, int]:
        never.wait()
        return {"kept": 7}

    try:
        with pytest.raises(SparkJobError, match=r"not told within 0 s .*eventqueue\.capacity"):
            observed(observation(ask), wait_s=0.01)
    finally:
        never.set()


def test_what_spark_fails_with_is_raised() -> None:
    def ask() -> Mapping[str, int]:
        raise PySparkException("the session is gone")

    with pytest.raises(PySparkException, match="gone"):
        observed(observation(ask))
