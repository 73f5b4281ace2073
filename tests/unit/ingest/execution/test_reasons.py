"""Reasons are counted without the values of single rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ingest.execution.reasons import Reasons
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.values import Rejection, mismatch, to_value
from tests.unit.ingest.sources.rows import source_of

_TIMES = TimeFormat("%A, %d %B %Y %H:%M:%S.%f", timezone="America/Argentina/ComodRivadavia")


@pytest.mark.parametrize(
    "expected", ["an int", "a struct<" + "a:int," * 20 + "b:int>", _TIMES.expected(pa.timestamp("us", tz="UTC"))]
)
def test_reasons_that_differ_in_the_value_alone_are_one_however_long_the_type_is_called(expected: str) -> None:
    counted = Reasons()
    counted.add(pa.array([mismatch("c", f"value {number}", pa.int32(), expected) for number in range(50)]))
    assert counted.counts == {f"c: not {expected}": 50}


def test_two_names_of_one_key_are_counted_without_the_names() -> None:
    counted = Reasons()
    for number in range(30):
        with pytest.raises(Rejection) as raised:
            to_value({f"{number}": None, f"0{number}": None}, "c", pa.map_(pa.int32(), pa.string()), None)
        counted.add(pa.array([str(raised.value)]))
    assert counted.counts == {"c: not another key of the map": 30}


@pytest.mark.parametrize("line", [b"secret\n", b"secret\xff\n"])
def test_a_line_that_is_no_header_is_counted_without_what_is_in_it(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(line)
    source, schema = source_of(tmp_path, format="csv"), pa.schema([("a", pa.string())])
    (block,) = source.reader(schema).read(source.plan({}).ranges[0])
    counted = Reasons()
    counted.add(source.decoder(schema, lineage=False).decode(block).rejected.column("reason"))
    assert list(counted.counts.values()) == [1]
    ((reason, _),) = counted.counts.items()
    assert reason in ("the file's header has none of the schema's columns", "the file's header is not UTF-8")
