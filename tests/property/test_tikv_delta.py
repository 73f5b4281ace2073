"""Rows of any nested types are read back unchanged from TiKV and from Delta."""

from __future__ import annotations

import json
import tempfile
from random import Random

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.base import SinkContext
from sinks.delta.sink import DeltaOptions, DeltaSink
from sinks.refused import as_json_lines
from sinks.sql_types import parse_type
from sinks.tikv.dedup import Rule
from sinks.tikv.staged import Stager
from tests.contract.sink_contract import planned, ref, write_rows
from tests.random_rows import plain, random_array, random_type


def random_rows(random: Random) -> pa.RecordBatch:
    """A few rows of a few columns, numbered by ``id``; sometimes a slice of a larger batch."""
    kinds = [parse_type(random_type(random)) for _ in range(random.randint(1, 4))]
    rows = random.choice([1, 5, 30])
    columns = [pa.array(range(rows), pa.int64()), *(random_array(random, kind, rows) for kind in kinds)]
    batch = pa.RecordBatch.from_arrays(columns, names=["id", *(f"c{place}" for place in range(len(kinds)))])
    batch.validate(full=True)
    return batch.slice(random.choice([0, 0, 1]))


def through_tikv(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Stage rows for TiKV, and decode them as `tideline read` does."""
    stager = Stager.of(rows.schema, prefix=b"p_", key=["id"], rule=Rule())
    staged = stager.stage(rows, "shard", pa.array(range(rows.num_rows), pa.int64()))
    assert not staged.rejected.num_rows
    restored = stager.restore(staged.rows)
    restored.validate(full=True)
    return restored.select(rows.schema.names)


def through_delta(rows: pa.RecordBatch, folder: str) -> pa.Table:
    """Commit rows to a Delta table, and read them with delta-rs."""
    sink = DeltaSink.open(DeltaOptions(type="delta", path=f"{folder}/t"), SinkContext("a" * 32, rows.schema))
    sink.ensure()
    epoch = ref(0)
    sink.commit(sink.prepare(epoch, [write_rows(sink.begin(planned(epoch)), rows)]))
    table = DeltaTable(f"{folder}/t").to_pyarrow_table().sort_by("id")
    return table.select(rows.schema.names)


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1))
def test_random_nested_rows_are_read_back_from_tikv_as_they_were(seed: int) -> None:
    rows = random_rows(Random(seed))
    read = through_tikv(rows)
    for name in rows.schema.names:
        assert plain(read.column(name)) == plain(rows.column(name)), rows.schema.field(name)
    shown = [json.loads(line, parse_constant=refuse) for line in as_json_lines(rows).to_pylist()]
    assert [row["id"] for row in shown] == rows.column("id").to_pylist()


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_random_nested_rows_are_the_same_in_tikv_and_in_delta(seed: int) -> None:
    rows = random_rows(Random(seed))
    if not rows.num_rows:
        return
    with tempfile.TemporaryDirectory() as folder:
        table = through_delta(rows, folder)
    read = through_tikv(rows)
    for name in rows.schema.names:
        assert plain(table.column(name)) == plain(read.column(name)), rows.schema.field(name)
