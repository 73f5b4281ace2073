"""Reasons are counted without the values of single rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingest.reasons import Reasons
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.values import mismatch

_TIMES = TimeFormat("%A, %d %B %Y %H:%M:%S.%f", timezone="America/Argentina/ComodRivadavia")


@pytest.mark.parametrize(
    "expected", ["an int", "a struct<" + "a:int," * 20 + "b:int>", _TIMES.expected(pa.timestamp("us", tz="UTC"))]
)
def test_reasons_that_differ_in_the_value_alone_are_one_however_long_the_type_is_called(expected: str) -> None:
    counted = Reasons()
    counted.add(pa.array([mismatch("c", f"value {number}", pa.int32(), expected) for number in range(50)]))
    assert counted.counts == {f"c: not {expected}": 50}
