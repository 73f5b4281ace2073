"""Output of `tideline read` for values that Python cannot represent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingest.cli.read import column_texts
from sinks.sql_types import parse_type

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "numbers", "texts"),
    [
        ("date", [0, None, 19_844], ["1970-01-01", "", "2024-05-01"]),
        ("date", [2**31 - 1, None, 0], ["5881580-07-11", "", "1970-01-01"]),
        ("timestamp", [DAY_US, None], ["1970-01-02 00:00:00+00:00", ""]),
        ("timestamp", [2**63 - 1, None, 0], ["294247-01-10T04:00:54.775807Z", "", "1970-01-01T00:00:00.000000Z"]),
        ("timestamp_ntz", [-(2**63)], ["-290308-12-21T19:59:05.224192"]),
        ("bigint", [1, None], ["1", ""]),
    ],
)
def test_values_of_every_year_are_shown(kind: str, numbers: list[int | None], texts: list[str]) -> None:
    of = parse_type(kind)
    stored = pa.int32() if pa.types.is_date32(of) else pa.int64()
    column = pa.chunked_array([pa.array(numbers[:1], stored).cast(of), pa.array(numbers[1:], stored).cast(of)])
    assert column_texts(column) == texts


def test_years_beyond_pythons_inside_of_other_values_are_shown_as_json() -> None:
    far = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    column = pa.chunked_array([pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), far)])
    assert column_texts(column) == ['["5881580-07-11"]']
