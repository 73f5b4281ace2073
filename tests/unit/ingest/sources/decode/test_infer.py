"""A schema that is inferred holds every value of the sample."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.sources.files.source import FilesSource
from sinks.sql_types import type_name
from tests.unit.ingest.sources.rows import outcome, source_of
from timeline.errors import SourceError


def _inferred(source: FilesSource) -> dict[str, str]:
    return {field.name: type_name(field.type) for field in source.infer_schema(source.plan({}))}


def test_json_types_widen_and_disagreement_is_text(tmp_path: Path) -> None:
    rows = [
        {"i": 1, "n": 1, "m": 1, "s": "x", "t": "2020-01-01T00:00:00Z", "d": "2020-01-01", "b": True, "o": {"a": 1}},
        {"i": 2, "n": 1.5, "m": "x", "s": None, "t": "2020-01-01 10:00", "l": [1], "z": None, "o": {"b": [{}]}},
        {"big": 2**63, "l": [2.5], "e": []},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    assert _inferred(source_of(tmp_path)) == {
        "i": "bigint", "n": "double", "m": "string", "s": "string", "t": "timestamp", "d": "string", "b": "boolean",
        "o": "struct<a:bigint,b:array<string>>", "l": "array<double>", "z": "string", "big": "string",
        "e": "array<string>",
    }  # fmt: skip


def test_csv_types_go_by_all_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "i,f,b,d,t,s,zip,none\n1,1,true,2020-01-01,2020-01-01T10:00,x,01234,\n-2,1.5,false,2020-02-01,2020-01-01T10:00Z,1,99999,\n"
    )
    assert _inferred(source_of(tmp_path, format="csv")) == {
        "i": "bigint", "f": "double", "b": "boolean", "d": "date", "t": "timestamp", "s": "string", "zip": "string",
        "none": "string",
    }  # fmt: skip
    assert list(_inferred(source_of(tmp_path, format="csv", csv={"header": False}))) == [f"_c{n}" for n in range(8)]


def test_numbers_that_no_type_keeps_are_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,phone,name,whole,digits,some\n12345678901234567890,+4915112345678901,nan,9007199254740993,0.12345678901234567890,1\n"
        "12345678901234567891,+4915112345678902,inf,1.5,1,nan\n"
    )
    assert set(_inferred(source_of(tmp_path, format="csv")).values()) == {"string"}
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.jsonl").write_text(
        '{"mixed":9007199254740993,"id":9007199254740993,"no":1}\n{"mixed":1.5,"no":NaN}\n'
    )
    assert _inferred(source_of(tmp_path)) == {"mixed": "string", "id": "bigint", "no": "bigint"}


def test_groups_of_a_pattern_are_strings(tmp_path: Path) -> None:
    assert _inferred(source_of(tmp_path, format="text", pattern=r"(?P<b>\d+) (?P<a>.*)")) == {
        "b": "string",
        "a": "string",
    }


def test_parquet_types_are_those_of_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {"u": pa.array([1], pa.uint32()), "t": pa.array([1], pa.timestamp("ns", tz="Europe/Berlin")),
         "d": pa.array(["x"]).dictionary_encode(), "l": pa.array([[1]], pa.large_list(pa.int8()))}
    )  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    assert _inferred(source_of(tmp_path, format="parquet")) == {
        "u": "bigint", "t": "timestamp", "d": "string", "l": "array<tinyint>",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([b"\xff"], pa.binary_view()), "binary"),
        (pa.array(["ä"], pa.string_view()), "string"),
        (pa.array([[1, None]], pa.list_view(pa.uint8())), "array<smallint>"),
        (pa.array([[1]], pa.large_list_view(pa.int32())), "array<int>"),
        (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), "decimal(5,2)"),
        (pa.array([Decimal("1.50")], pa.decimal64(15, 2)), "decimal(15,2)"),
        (pa.array([Decimal("1.50")], pa.decimal256(38, 2)), "decimal(38,2)"),
        (pa.array([b"0" * 16], pa.uuid()), "binary"),
        (pa.array(['{"a": 1}'], pa.json_()), "string"),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)"),
        (pa.array([0.1], pa.float16()), "float"),
    ],
)
def test_types_of_parquet_that_no_table_has_become_types_that_keep_their_values(
    tmp_path: Path, values: pa.Array, kind: str
) -> None:
    pq.write_table(pa.table({"c": values}), tmp_path / "a.parquet")
    source = source_of(tmp_path, format="parquet")
    assert _inferred(source) == {"c": kind}
    plan = source.plan({})
    decoder = source.decoder(source.infer_schema(plan), lineage=True)
    (block,) = source.reader().read(plan.ranges[0])
    stored = values.storage if isinstance(values, pa.ExtensionArray) else values
    assert outcome(decoder.decode(block)) == ([(0, {"c": stored[0].as_py()})], [])


def test_a_sample_without_any_object_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("garbage\n")
    with pytest.raises(SourceError, match="write schema in the job file"):
        _inferred(source_of(tmp_path))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a,b\r1,2\r", "not with CR alone"),
        ("größe,b\n1,2\n".encode("latin1"), "not UTF-8: byte 0xf6 at 2"),
        ("a,b\n1,2\n".encode("utf-16"), "the file is UTF-16"),
    ],
)
def test_nothing_is_inferred_of_a_header_that_cannot_be_read(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    source = source_of(tmp_path, format="csv")
    with pytest.raises(SourceError, match=f"^no schema can be inferred: a.csv: .*{reason}.*"):
        _inferred(source)
    (tmp_path / "b.csv").write_bytes(b"a,b\n1,x\n")
    assert _inferred(source) == {"a": "bigint", "b": "string"}


def test_columns_without_a_header_are_counted_by_the_first_line_that_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'1\r2\n"x\n1,y\n2\n')
    assert _inferred(source_of(tmp_path, format="csv", csv={"header": False})) == {"_c0": "bigint", "_c1": "string"}


def test_names_that_differ_in_case_only_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"Host":1,"host":2}\n')
    with pytest.raises(SourceError, match="letters' case"):
        _inferred(source_of(tmp_path))


def test_the_sample_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":1}\n' * 1_000_000 + '{"b":1}\n')
    assert _inferred(source_of(tmp_path)) == {"a": "bigint"}


def test_a_column_with_a_timestamp_format_is_a_timestamp(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t":1600000000000,"n":1}\n')
    source = source_of(tmp_path, timestamp_format={"t": "epoch_ms"})
    assert _inferred(source) == {"t": "timestamp", "n": "bigint"}
