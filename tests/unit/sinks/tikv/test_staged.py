from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sinks.base import REJECTED_SCHEMA
from sinks.refused import as_json_lines
from sinks.sql_types import parse_type
from sinks.tikv.dedup import STANDS_FOR, KeptRow, Rule, dropped
from sinks.tikv.key_codec import MAX_KEY_BYTES, KeyCodec
from sinks.tikv.staged import MAX_ROW_BYTES, Stager, bucket
from sinks.tikv.value_codec import ValueCodec
from timeline.errors import ConfigError

ROOT = Path(__file__).parents[4]
SCHEMA = pa.schema([("note", pa.string()), ("id", pa.string()), ("at", pa.int32()), ("gone", pa.bool_())])
LAST = Rule(KeptRow.LAST, "at")
PINNED = [0, 729, 441, 533, 148]
STAGER = Stager.of(SCHEMA, prefix=b"p_", key=["id"], rule=LAST, delete_marker="gone")


def rows_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def offsets(count: int, first: int = 100) -> pa.Array:
    return pa.array(range(first, first + count), pa.int64())


def test_every_row_is_staged_rejected_or_dropped() -> None:
    rows = rows_of(
        {"id": "b", "at": 1, "note": "old"},
        {"id": None, "at": 2, "note": "ü"},
        {"id": "b", "at": 2, "note": "new"},
        {"id": "k" * MAX_KEY_BYTES, "at": 3},
        {"id": "a", "at": 4, "note": "x" * MAX_ROW_BYTES},
        {"id": "c", "at": 5, "gone": True, "note": "y" * MAX_ROW_BYTES},
        {"id": "a", "at": None, "gone": False},
    )
    found = STAGER.stage(rows, "shard-1", offsets(len(rows)))
    assert found.rows.schema == STAGER.schema
    assert found.rows.select(["order", "shard", "offset"]).to_pylist() == [
        {"order": None, "shard": "shard-1", "offset": 106},
        {"order": 2, "shard": "shard-1", "offset": 102},
        {"order": 5, "shard": "shard-1", "offset": 105},
    ]
    assert found.rows.column("value").is_null().to_pylist() == [False, False, True], "a delete is a null value"
    assert found.rows.column(STANDS_FOR).to_pylist() == [1, 2, 1]
    assert found.rejected.schema == REJECTED_SCHEMA
    reasons = {row["offset"]: row["reason"] for row in found.rejected.to_pylist()}
    assert list(reasons) == [101, 103, 104]
    assert reasons[101] == "key column `id` is null"
    assert reasons[103] == f"its key is {2 + 1 + 512 * 9 + 9} bytes; at most {MAX_KEY_BYTES} are allowed"
    assert f"bytes; at most {MAX_ROW_BYTES} are allowed" in reasons[104] and "key and value" in reasons[104]
    assert json.loads(found.rejected.to_pylist()[0]["raw"]) == {"note": "ü", "id": None, "at": 2, "gone": None}


def row_bytes_of(row: dict[str, Any]) -> int:
    """Bytes of a row's key and value."""
    staged = STAGER.stage(rows_of(row), "s", offsets(1)).rows
    return sum(len(staged.column(name)[0].as_py()) for name in ("key", "value"))


@pytest.mark.parametrize("key", ["a", "k" * 3000], ids=["short-key", "long-key"])
def test_row_of_exactly_the_limit_is_staged_and_one_byte_more_is_refused_alone(key: str) -> None:
    note = "x" * (MAX_ROW_BYTES - row_bytes_of({"id": key, "note": ""}))
    exact, larger, small = {"id": key, "note": note}, {"id": key, "note": note + "x"}, {"id": "small", "note": "n"}
    assert row_bytes_of(exact) == MAX_ROW_BYTES
    found = STAGER.stage(rows_of(small, larger, exact), "s", offsets(3))
    assert sorted(found.rows.column("offset").to_pylist()) == [100, 102]
    (refused,) = found.rejected.to_pylist()
    assert refused["offset"] == 101 and json.loads(refused["raw"])["note"] == larger["note"]
    assert refused["reason"] == (
        f"its key and value are {MAX_ROW_BYTES + 1} bytes; at most {MAX_ROW_BYTES} are allowed, because clients take "
        "answers of 4 MiB: leave large columns out of this target"
    )


def test_nested_row_is_measured_by_its_text_and_not_by_its_columns() -> None:
    """A list of 300,000 structs is 0.3 MB in Arrow and over 5 MB of text: the field's name counts in every struct."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.list_(pa.struct([("a_long_name", pa.int8())])))])
    stager = Stager.of(schema, prefix=b"p_", key=["id"], rule=Rule())
    rows = [{"id": 1, "n": [{"a_long_name": 1}] * 300_000}, {"id": 2, "n": [{"a_long_name": 1}] * 100_000}]
    found = stager.stage(pa.RecordBatch.from_pylist(rows, schema), "s", offsets(2))
    assert stager.restore(found.rows).to_pylist() == rows[1:]
    assert found.rejected.column("offset").to_pylist() == [100]


def test_keys_of_exactly_the_limit_are_staged_and_longer_ones_are_refused() -> None:
    """8 more bytes of text make a key 9 bytes longer."""
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    stager = Stager.of(schema, prefix=b"p" * 26, key=["a", "b"], rule=Rule())
    fits, longer = ("x" * 8 * 225, "y" * 8 * 225), ("x" * 8 * 225, "y" * 8 * 226)
    rows = pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in (fits, longer)], schema)
    found = stager.stage(rows, "s", offsets(2))
    assert [len(key) for key in found.rows.column("key").to_pylist()] == [MAX_KEY_BYTES]
    (refused,) = found.rejected.to_pylist()
    assert refused["reason"] == f"its key is {MAX_KEY_BYTES + 9} bytes; at most {MAX_KEY_BYTES} are allowed"


def test_an_empty_batch_is_staged_as_nothing() -> None:
    found = STAGER.stage(rows_of(), "s", offsets(0))
    assert (found.rows.num_rows, found.rejected.num_rows) == (0, 0)
    assert found.rows.schema == STAGER.schema and found.rejected.schema == REJECTED_SCHEMA
    assert len(bucket(found.rows, 7)) == 0
    assert STAGER.restore(found.rows).num_rows == 0


def test_a_large_batch_is_staged_as_a_small_one() -> None:
    rows = rows_of(*({"id": None if n % 7 == 0 else f"k{n % 40}", "at": n % 3, "note": str(n)} for n in range(100)))
    whole = STAGER.stage(rows.slice(3), "s", offsets(97))
    pieces = dataclasses.replace(STAGER, slice_bytes=rows.nbytes // 9).stage(rows.slice(3), "s", offsets(97))
    assert pieces.rows.equals(whole.rows) and pieces.rejected.equals(whole.rejected)
    assert dropped(whole.rows) == len(rows) - 3 - whole.rows.num_rows - whole.rejected.num_rows > 0


def test_restored_rows_are_the_staged_ones_and_deletes_keep_their_key() -> None:
    rows = rows_of({"id": "b", "at": 1, "note": "x", "gone": True}, {"id": "a", "at": 2, "note": "y"}, {"id": "c"})
    restored = STAGER.restore(STAGER.stage(rows, "s", offsets(3)).rows)
    assert restored.to_pylist() == [
        {"id": "a", "note": "y", "at": 2, "gone": False},
        {"id": "b", "note": None, "at": None, "gone": True},
        {"id": "c", "note": None, "at": None, "gone": False},
    ]
    restored.validate(full=True)


def test_a_table_of_nothing_but_keys_has_rows_and_deletes() -> None:
    schema = pa.schema([("id", pa.int64()), ("gone", pa.bool_())])
    stager = Stager.of(schema, prefix=b"p_", key=["id"], rule=Rule(KeptRow.ANY), delete_marker="gone")
    rows = [{"id": 1, "gone": False}, {"id": 2, "gone": True}]
    staged = stager.stage(pa.RecordBatch.from_pylist(rows, schema), "s", offsets(2)).rows
    assert "order" not in staged.column_names
    assert staged.column("value")[0].as_py(), "TiKV takes no empty values"
    assert stager.restore(staged).to_pylist() == rows


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("tinyint", pa.int64()),
        ("bigint", pa.int64()),
        ("date", pa.int64()),
        ("float", pa.float64()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
    ],
)
def test_rows_are_ordered_by_a_column_of_any_of_these_types(kind: str, order: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("by", parse_type(kind))])
    stager = Stager.of(schema, prefix=b"p_", key=["id"], rule=Rule(KeptRow.LAST, "by"))
    assert stager.schema.field("order").type == order
    rows = pa.RecordBatch.from_pylist([{"id": 1, "by": None}], schema)
    assert stager.stage(rows, "s", offsets(1)).rows.schema == stager.schema


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ["nope"]}, ["key", "`nope`", "note, id, at, gone"]),
        ({"rule": Rule(KeptRow.LAST, "nope")}, ["dedup.by", "`nope`", "note, id, at, gone"]),
        ({"delete_marker": "nope"}, ["delete_marker", "`nope`", "note, id, at, gone"]),
        ({"delete_marker": "at"}, ["delete_marker", "dedup.by"]),
        ({"delete_marker": "id"}, ["delete_marker", "key"]),
        ({"delete_marker": "note"}, ["delete_marker", "`note` is string", "boolean"]),
        ({"rule": Rule(KeptRow.FIRST, "gone"), "delete_marker": None}, ["dedup.by", "`gone` is bool", "timestamp"]),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_any_row(options: dict[str, Any], words: Sequence[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        Stager.of(SCHEMA, **{"prefix": b"p_", "key": ["id"], "rule": LAST, "delete_marker": "gone", **options})
    assert all(word in str(refused.value) for word in words)


def test_a_rule_by_a_column_that_is_not_stored_is_refused() -> None:
    keys = KeyCodec(b"p_", (pa.field("id", pa.int64()),))
    with pytest.raises(ConfigError, match=r"dedup\.by.*`at`"):
        Stager(keys, ValueCodec(pa.schema([])), None, LAST)


def test_a_stager_travels_to_other_processes() -> None:
    rows = rows_of({"id": "a", "at": 1})
    there = pickle.loads(pickle.dumps(STAGER))
    assert there == STAGER
    assert there.stage(rows, "s", offsets(1)).rows.equals(STAGER.stage(rows, "s", offsets(1)).rows)


def test_rows_are_shown_as_json_with_every_type_readable() -> None:
    kinds = {"b": "binary", "t": "timestamp", "d": "date", "x": "decimal(4,2)", "f": "double", "m": "map<string,int>"}
    schema = pa.schema([(name, parse_type(kind)) for name, kind in kinds.items()])
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([b"\xff"]),
            pa.array([0], schema.field("t").type),
            pa.array([1], pa.int32()).cast(pa.date32()),
            pa.array([Decimal(1)], schema.field("x").type),
            pa.array([float("nan")]),
            pa.array([[("k", None)]], schema.field("m").type),
        ],
        schema=schema,
    )
    assert as_json_lines(rows)[0].as_py().decode() == (
        f'{{"b":"{base64.b64encode(bytes([255])).decode()}","t":"1970-01-01T00:00:00.000000Z","d":"1970-01-02",'
        '"x":1.00,"f":"NaN","m":{"k":null}}'
    )


@pytest.mark.parametrize("key", ["bigint", "string", "composite", "far apart"])
@pytest.mark.parametrize("count", [2, 7, 64])
def test_keys_of_any_kind_spread_over_all_buckets(key: str, count: int) -> None:
    numbers = np.arange(64_000)
    match key:
        case "bigint":
            columns = [pa.array(numbers)]
        case "string":
            columns = [pa.array([f"user-{number:012d}" for number in numbers])]
        case "composite":
            columns = [pa.array([f"{number:08d}" for number in numbers]), pa.array([20240501] * len(numbers))]
        case _:
            columns = [pa.array(numbers * 2**32)]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"k{place}" for place in range(len(columns))])
    keys = KeyCodec(b"tevents_", tuple(batch.schema)).encode(batch)
    sizes = np.bincount(bucket(pa.table({"key": keys}), count), minlength=count)
    fair = len(numbers) / count
    assert abs(sizes - fair).max() < 6 * fair**0.5, "as even as chance makes it"


def test_a_bucket_is_the_same_in_every_process() -> None:
    code = (
        "import pyarrow as pa; from sinks.tikv.staged import bucket;"
        "keys = [b'', b'a', b'a\\0', b'0123456789abcdef', b'\\xff' * 40];"
        "print(bucket(pa.table({'key': pa.array(keys)}), 1000).tolist())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {str(PINNED)}, "tasks of two versions of Tideline may share an epoch: this never changes"


def test_a_batch_of_deletes_alone_is_staged_and_restored() -> None:
    rows = rows_of({"id": "a", "gone": True, "note": "x"}, {"id": "b", "gone": True})
    restored = STAGER.restore(STAGER.stage(rows, "s", offsets(2)).rows)
    assert restored.select(["id", "note", "gone"]).to_pylist() == [
        {"id": "a", "note": None, "gone": True},
        {"id": "b", "note": None, "gone": True},
    ]
