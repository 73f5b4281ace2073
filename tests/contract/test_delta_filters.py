"""A filter on any column finds the rows that it is for, in each of delta-rs's readers: bounds never hide a row.

delta-rs hands the bounds of a file to Arrow as what holds for all its rows, and takes a missing bound for null, which
nothing is equal to: rows vanish where one column of a file has no bounds and others have.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from sinks.partition import PartitionField
from tests.contract.sink_contract import planned, ref, write_rows
from tests.contract.test_delta_sink import DeltaRig

UTC = datetime.UTC

Columns = dict[str, tuple[pa.DataType, Sequence[Any]]]
"""Type and values of each column of a table."""


def put(path: Path, columns: Columns, by: Sequence[str] = ()) -> DeltaTable:
    """A table with these rows twice: by the entry that creates it, and by another one."""
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
    for epoch in range(2):
        sink = DeltaRig(path, schema, tuple(PartitionField(name) for name in by)).sink()
        sink.ensure()
        sink.commit(sink.prepare(ref(epoch), [write_rows(sink.begin(planned(ref(epoch))), batch)]))
    return DeltaTable(path)


def assert_found(table: DeltaTable, name: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    """Each value is found by a filter, and everything else by its opposite, through Arrow, pandas and DataFusion."""
    whole = table.to_pyarrow_table()
    assert whole.num_rows == 2 * len(values)
    column = pc.field(name)
    wheres = [column == pa.scalar(value, kind) for value in values if value is not None]
    for where in [*wheres, *(~each for each in wheres), column.is_null(), column.is_valid(), pc.field("n") == 0]:
        wanted = whole.filter(where).sort_by("n")["n"].to_pylist()
        assert table.to_pyarrow_table(filters=where).sort_by("n")["n"].to_pylist() == wanted, str(where)
        assert len(table.to_pandas(filters=where)) == len(wanted), str(where)
    for number, value in enumerate(values):
        found = _by_data_fusion(table, name, value)
        assert number in found and len(found) == 2 * sum(_is_same(value, each) for each in values), value


def _by_data_fusion(table: DeltaTable, name: str, value: Any) -> list[int]:
    """`n` of the rows that have a value."""
    is_value = "is null" if value is None else f"= {_literal(value)}"
    query = f'select n from t where "{name}" {is_value}'
    found: list[int] = pa.table(QueryBuilder().register("t", table).execute(query).read_all())["n"].to_pylist()
    return found


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return f"X'{value.hex()}'"
        case Decimal():
            whole = f"{value:f}".lstrip("-0").replace(".", "")
            return f"arrow_cast('{value:f}', 'Decimal128(38, {-int(value.as_tuple().exponent)})')" if whole else "0"
        case float():
            return f"arrow_cast('{value}', 'Float64')"
        case datetime.datetime():
            zone = "None" if value.tzinfo is None else 'Some("UTC")'
            return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Timestamp(Microsecond, {zone})')"
        case datetime.date():
            return f"date '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return str(value)


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


PLANES = ["".join(map(chr, (0x20BB7, 0x91CE, 0x5BB6))), *(chr(plane << 16 | 0x600) for plane in range(1, 17))]
"""Texts with a character of each plane of Unicode beyond the first."""


@pytest.mark.parametrize("text", PLANES)
def test_text_with_characters_of_any_plane_is_found(tmp_path: Path, text: str) -> None:
    table = put(tmp_path, {"n": (pa.int64(), [0, 1]), "p": (pa.string(), [text, text])})
    assert_found(table, "p", pa.string(), [text, text])


@pytest.mark.parametrize("kind", [pa.string(), pa.timestamp("us")], ids=str)
def test_column_whose_name_has_characters_of_any_plane_is_found(tmp_path: Path, kind: pa.DataType) -> None:
    values = ["x", "y"] if pa.types.is_string(kind) else [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)]
    inside = pa.map_(pa.string(), pa.timestamp("us"))  # the project's own entry creates such a table, not delta-rs's
    for number, name in enumerate(PLANES[:3]):
        columns: Columns = {"n": (pa.int64(), [0, 1]), name: (kind, values)}
        if not pa.types.is_string(kind):
            columns["m"] = (inside, [None, None])
        assert_found(put(tmp_path / str(number), columns), name, kind, values)


@pytest.mark.parametrize("by", [("p",), ()])
def test_partition_and_job_with_characters_of_any_plane_are_found(tmp_path: Path, by: Sequence[str]) -> None:
    columns: Columns = {"n": (pa.int64(), range(len(PLANES))), "p": (pa.string(), PLANES)}
    table = put(tmp_path, columns, by)
    assert_found(table, "p", pa.string(), PLANES)
    table.create_checkpoint()
    assert_found(DeltaTable(tmp_path), "p", pa.string(), PLANES)
    rig = DeltaRig(tmp_path / "job", pa.schema([("n", pa.int64())]))
    for epoch in range(2):
        sink = rig.sink(PLANES[0])
        batch = pa.RecordBatch.from_pydict({"n": [epoch]})
        sink.commit(sink.prepare(ref(epoch), [write_rows(sink.begin(planned(ref(epoch))), batch)]))
    assert DeltaTable(tmp_path / "job").transaction_version(PLANES[0]) == 1
