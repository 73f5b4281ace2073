"""Long lines, byte order marks and broken files, as a reader reads them."""

from __future__ import annotations

import datetime
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from ingest.sources.base import Block
from ingest.sources.decode.lines import TextBlock, split_lines
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.timestamps import iso_micros
from ingest.sources.files.parquet import ParquetReader
from ingest.sources.files.parquet_restore import quarantined_rows
from ingest.sources.files.read import LineReader
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.rows import Reading, outcome, plain_lines, read_lines, schema_of, source_of
from timeline.errors import DataError, StoreUnavailableError


def _blocks(source: FilesSource, split: int = 1 << 40) -> Iterator[Block]:
    for offsets in source.plan({}).ranges:
        for piece in source.split(offsets, split):
            yield from source.reader().read(piece)


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def test_a_line_of_50_mb_is_one_row(tmp_path: Path) -> None:
    long = b'{"s":"' + b"x" * 50_000_000 + b'"}'
    (tmp_path / "a.jsonl").write_bytes(b'{"s":"a"}\n' + long + b'\n{"s":"b"}\n')
    source = source_of(tmp_path)
    decoder = source.decoder(schema_of({"s": "string"}), lineage=False)
    lengths = [
        len(row["s"]) for block in _blocks(source, 10_000_000) for row in decoder.decode(block).accepted.to_pylist()
    ]
    assert lengths == [1, 50_000_000, 1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\r",
        b"\r\n",
        b"a",
        b"a\r",
        b"a\n\n\r\nb\r\n\r",
        b"\n\na",
        b"a\rb\n",
        b"\0\n",
        b"\r\r\n",
        b"12345678\n\n",
        b"1234567\n" * 3,
        b"123456789\n" * 5,
    ],
)
def test_rows_are_counted_as_they_are_split(data: bytes) -> None:
    text = TextBlock.of(data)
    lines = split_lines(text, 7)
    assert list(zip(lines.offsets.to_pylist(), lines.texts.to_pylist(), strict=True)) == plain_lines(data, 7)
    assert text.bounds.rows == len(plain_lines(data))


def test_a_mark_of_byte_order_belongs_to_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbfone\n")
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf")
    source = source_of(tmp_path)
    assert read_lines(source, source.plan({}).ranges) == [(3, b"one")]


@pytest.mark.parametrize("split", [1, 1 << 40])
@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_a_mark_of_byte_order_behind_a_files_beginning_is_data(tmp_path: Path, form: str, split: int) -> None:
    mark = "\ufeff".encode()
    head, line = {"csv": (b"s\n", b"x\n"), "text": (b"", b"x\n"), "json": (b"", b'{"s":"x"}\n')}[form]
    (tmp_path / "a.log").write_bytes(mark + head + line + mark + line + mark + mark + line)
    source = source_of(tmp_path, format=form, pattern="(?P<s>.*)" if form == "text" else None)
    decoder = source.decoder(schema_of({"s": "string"}), lineage=True)
    results = [outcome(decoder.decode(block)) for block in _blocks(source, split)]
    accepted = [row["s"] for result in results for _, row in result[0]]
    rejected = [raw for result in results for _, _, raw in result[1]]
    if form == "json":  # RFC 8259, section 8.1
        assert (accepted, rejected) == (["x"], [mark + line[:-1], mark + mark + line[:-1]])
    else:
        assert (accepted, rejected) == (["x", "\ufeffx", "\ufeff\ufeffx"], [])


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_offsets_of_a_compressed_file_are_those_of_its_text(tmp_path: Path, ending: str) -> None:
    pack = gzip.compress if ending == "gz" else _zstd
    (tmp_path / f"a.log.{ending}").write_bytes(pack(b"one\n\nt") + pack(b"wo\nthree"))
    source = source_of(tmp_path)
    assert read_lines(source, source.plan({}).ranges) == [(0, b"one"), (5, b"two"), (9, b"three")]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_truncated_file_gives_the_rows_before_the_break_and_one_rejected_row(tmp_path: Path, ending: str) -> None:
    text = b"".join(b'{"n":%d,"random":"%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(20_000))
    packed = (gzip.compress if ending == "gz" else _zstd)(text)
    (tmp_path / f"a.jsonl.{ending}").write_bytes(packed[: len(packed) // 2])
    source = source_of(tmp_path)
    decoder = source.decoder(schema_of({"n": "int"}), lineage=True)
    results = [outcome(decoder.decode(block)) for block in _blocks(source)]
    accepted = [row["n"] for result in results for _, row in result[0]]
    (rejected,) = [row for result in results for row in result[1]]
    assert accepted == list(range(len(accepted)))
    assert rejected[0] == text.index(b'{"n":%d,' % len(accepted))
    assert "nothing can be read from here on" in rejected[1]
    if ending == "gz":
        # Every byte that can be decompressed was.
        possible = zlib.decompressobj(31).decompress(packed[: len(packed) // 2]).count(b"\n")
        assert len(accepted) == possible


def test_garbage_that_is_named_gz_is_one_rejected_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"not compressed at all\n" * 10)
    source = source_of(tmp_path)
    (block,) = _blocks(source)
    decoded = source.decoder(schema_of({"n": "int"}), lineage=True).decode(block)
    assert (decoded.accepted.num_rows, decoded.rejected.num_rows) == (0, 1)


class _AwayFile(io.BytesIO):
    """A file whose reads fail, as the store does not answer."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(5, "the store is away")


class _AwayFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Finds files and reads their tails, but fails to read their content."""

    cachable = False

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return _AwayFile(Path(path).read_bytes()) if "cache_type" in options else super().open(path, mode, **options)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_store_that_fails_is_not_taken_for_a_broken_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"n": [1]}), path)
    else:
        path.write_bytes(gzip.compress(b"{}\n") if name.endswith("gz") else b"{}\n")
    source = source_of(tmp_path, format="parquet" if name.endswith("parquet") else "json")
    (offsets,) = source.plan({}).ranges
    reader = replace(cast(LineReader | ParquetReader, source.reader()), fs=_AwayFileSystem())
    with pytest.raises(StoreUnavailableError, match="the store is away"):
        list(reader.read(offsets))


def _write_parquet(path: Path, rows: int = 1000, group: int = 100) -> pa.Table:
    table = pa.table({"n": pa.array(range(rows), pa.int64()), "s": [f"row {n}" for n in range(rows)]})
    pq.write_table(table, path, row_group_size=group, compression="none")
    return table


@pytest.mark.parametrize("split", [1, 700, 1 << 40])
def test_each_row_group_is_read_by_one_piece(tmp_path: Path, split: int) -> None:
    _write_parquet(tmp_path / "a.parquet")
    source = source_of(tmp_path, format="parquet")
    decoder = source.decoder(schema_of({"n": "int"}), lineage=True)
    rows = [row for block in _blocks(source, split) for row in outcome(decoder.decode(block))[0]]
    assert rows == [(n, {"n": n}) for n in range(1000)]


def test_a_damaged_row_group_rejects_its_rest_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    _write_parquet(path)
    start = pq.ParquetFile(path).metadata.row_group(5).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    source = source_of(tmp_path, format="parquet")
    decoder = source.decoder(schema_of({"n": "bigint"}), lineage=True)
    results = [outcome(decoder.decode(block)) for block in _blocks(source, 500)]
    assert [row["n"] for result in results for _, row in result[0]] == [n for n in range(1000) if n // 100 != 5]
    ((offset, reason, _),) = [row for result in results for row in result[1]]
    assert offset == 500
    assert "row group 5" in reason


def test_what_is_no_parquet_is_one_rejected_row_however_it_is_split(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is not one" * 100)
    source = source_of(tmp_path, format="parquet")
    blocks = list(_blocks(source, 100))
    assert [(block.start, block.rows, block.data) for block in blocks] == [(0, 1, None)]


def test_parquet_columns_are_cast_and_misfits_rejected_alone(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"n": pa.array([1, 3_000_000_000, None], pa.int64()), "t": pa.array([1, 2, 3], pa.timestamp("ns"))}),
        tmp_path / "a.parquet",
    )
    source = source_of(tmp_path, format="parquet")
    (block,) = _blocks(source)
    schema = schema_of({"n": "int", "t": "timestamp", "missing": "string"})
    accepted, rejected = outcome(source.decoder(schema, lineage=True).decode(block))
    assert [(offset, row["n"], row["missing"]) for offset, row in accepted] == [(0, 1, None), (2, None, None)]
    assert rejected[0][0] == 1
    assert rejected[0][1] == "n: '3000000000' is not an int"
    strict = source_of(tmp_path, format="parquet", on_unknown_field=UnknownField.FAIL)
    with pytest.raises(DataError, match=r"a\.parquet, offset 0.*'t'"):
        strict.decoder(schema_of({"n": "bigint"}), lineage=True).decode(block)


_CR = (
    "the file's header cannot be read: a carriage return outside quotes; lines have to end with LF or CR LF, "
    "not with CR alone or CR CR LF"
)
_FAULTY_HEADERS = {
    "CR": (b"a,b\r1,2\r3,4\r", _CR),
    "CR, quoted": (b'"a","b"\r"1","2"\r', _CR),
    "CR, then LF": (b"a,b\r1,2\n3,4\n", _CR),
    "CR CR LF": (b"a,b\r\r\n1,2\r\r\n3,4\r\n", _CR),
    "Latin-1": ("größe,b\n1,2\n".encode("latin1"), "the file's header is not UTF-8: byte 0xf6 at 2"),
    "Latin-1, alone": ("größe,b\n".encode("latin1"), "the file's header is not UTF-8: byte 0xf6 at 2"),
    "UTF-16": (b"\xff\xfe" + "a,b\n1,2\n".encode("utf-16-le"), "the file is UTF-16: only UTF-8 is read"),
    "UTF-16, big end first": (b"\xfe\xff" + "a,b\n".encode("utf-16-be"), "the file is UTF-16: only UTF-8 is read"),
    "UTF-16 without a mark": (
        "a,b\n1,2\n".encode("utf-16-le"),
        "the file's header has a NUL byte: is the file UTF-16? Only UTF-8 is read",
    ),
    "an open quote": (b'a,"b\n1,2\n', "the file's header cannot be read: unexpected end of data"),
    "behind a mark": (b"\xef\xbb\xbf\r\n" + b"a\rb\n1,2\n", _CR),
}


@pytest.mark.parametrize("split", [1, 1 << 40])
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("which", _FAULTY_HEADERS)
def test_a_header_that_cannot_be_read_is_rejected_with_all_lines_of_its_file(
    tmp_path: Path, which: str, ending: str, split: int
) -> None:
    data, reason = _FAULTY_HEADERS[which]
    (tmp_path / f"a.csv{ending}").write_bytes(gzip.compress(data) if ending else data)
    source = source_of(tmp_path, format="csv")
    decoder = source.decoder(schema_of({"größe": "int", "b": "int"}), lineage=True)
    results = [decoder.decode(block) for block in _blocks(source, split)]
    mark = 3 if data.startswith(b"\xef") else 0
    assert [row for result in results for row in outcome(result)[1]] == [
        (offset, reason, raw) for offset, raw in plain_lines(data[mark:], mark)
    ]
    assert not any(result.accepted.num_rows for result in results)
    for result in results:
        for again in source.quarantine_decoder()("a.csv", result.rejected.select(["offset", "raw", "context"])):
            assert decoder.decode(again).rejected.column("reason").to_pylist() == [reason] * again.rows


def test_lines_that_follow_a_header_that_cannot_be_read_are_rejected_in_later_epochs_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    reading = Reading(source_of(tmp_path, format="csv", close_after=0))
    for data in (b"a,b\r1,2\r", b"3,4\r", b"5,6\n7,8\n"):
        with path.open("ab") as file:
            file.write(data)
        reading.epoch(split=2)
    assert reading.lines["a.csv"] == [(0, b"a,b\r1,2"), (8, b"3,4"), (12, b"5,6"), (16, b"7,8")]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("split", [1, 1 << 40])
def test_a_header_alone_that_has_none_of_the_columns_is_a_rejected_row(tmp_path: Path, split: int, ending: str) -> None:
    pack = gzip.compress if ending else bytes
    for name, data in (("bad", b"Not Found\n\r\n"), ("good", b"b\n"), ("rows", b"z\n\n1\n"), ("blank", b"\n\n")):
        (tmp_path / f"{name}.csv{ending}").write_bytes(pack(data))
    source, schema = source_of(tmp_path, format="csv"), schema_of({"a": "int", "b": "int"})
    decoder, reader = source.decoder(schema, lineage=True), source.reader(schema)
    found = [
        (block.shard.partition(".")[0], *outcome(decoder.decode(block)))
        for offsets in source.plan({}).ranges
        for piece in source.split(offsets, split)
        for block in reader.read(piece)
    ]
    none = "the file's header has none of the schema's columns: "
    assert sorted(found) == [
        ("bad", [], [(0, f"{none}Not Found", b"Not Found")]),
        ("rows", [], [(3, f"{none}z", b"1")]),
    ]


def test_rows_behind_a_header_that_was_rejected_alone_are_read_as_any_other(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", schema_of({"a": "int"})
    reading = Reading(source_of(tmp_path, format="csv"))
    rejected = []
    for data in (b"z\n", b"\n1\n", b"2\n"):
        with path.open("ab") as file:
            file.write(data)
        (offsets,) = reading.source.plan(reading.after).ranges
        for block in reading.source.reader(schema).read(offsets):
            rejected += outcome(reading.source.decoder(schema, lineage=True).decode(block))[1]
        reading.after[offsets.shard] = offsets.end
    assert [(offset, raw) for offset, _, raw in rejected] == [(0, b"z"), (3, b"1"), (5, b"2")]
    assert len({reason for _, reason, _ in rejected}) == 1


def test_a_header_may_have_a_carriage_return_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"a\rb",c\r\n1,2\r\n')
    source = source_of(tmp_path, format="csv")
    (block,) = _blocks(source)
    decoder = source.decoder(schema_of({"a\rb": "int", "c": "int"}), lineage=True)
    assert outcome(decoder.decode(block)) == ([(9, {"a\rb": 1, "c": 2})], [])


@pytest.mark.parametrize(
    ("form", "reason"), [("json", "malformed JSON: Extra data"), ("csv", "a carriage return or line")]
)
def test_a_file_without_a_header_whose_lines_end_with_cr_alone_is_one_rejected_record(
    tmp_path: Path, form: str, reason: str
) -> None:
    data = {"json": b'{"a":1}\r{"a":2}\r', "csv": b"1\r2\r"}[form]
    (tmp_path / "a.log").write_bytes(data)
    options: dict[str, Any] = {"csv": {"header": False}} if form == "csv" else {}
    source = source_of(tmp_path, format=form, **options)
    (block,) = _blocks(source)
    accepted, ((offset, found, raw),) = outcome(source.decoder(schema_of({"a": "int"}), lineage=True).decode(block))
    assert (accepted, offset, raw) == ([], 0, data[:-1])
    assert found.startswith(reason)


def test_lines_that_may_all_take_a_long_header_along_are_in_small_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.sources.files.read._HEADERS_BYTES", 5000)
    header = "id," + "n" * 997
    lines = [f"{number}\n" if number % 5 else "\r\n" for number in range(123)]
    (tmp_path / "a.csv").write_text(f"{header}\n{''.join(lines)}", newline="")
    source = source_of(tmp_path, format="csv")
    blocks = list(_blocks(source))
    assert len(blocks) == 25 and max(block.rows for block in blocks) <= 5
    assert {block.detail["header"] for block in blocks} == {header}
    content, first = (tmp_path / "a.csv").read_bytes(), len(header) + 1
    assert read_lines(source, source.plan({}).ranges) == plain_lines(content[first:], first)


def test_a_parquet_list_with_one_misfit_is_rejected_alone(tmp_path: Path) -> None:
    lists = [["1"], ["2", "3"], ["x"], ["4"], None, []]
    maps = [[(str(at), each)] for at, each in enumerate(lists)]
    columns = {"l": pa.array(lists), "m": pa.array(maps, pa.map_(pa.string(), pa.list_(pa.string())))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = source_of(tmp_path, format="parquet")
    (block,) = _blocks(source)
    for name, kind in (("l", "array<bigint>"), ("m", "map<string,array<bigint>>")):
        accepted, rejected = outcome(source.decoder(schema_of({name: kind}), lineage=True).decode(block))
        assert [offset for offset, *_ in rejected] == [2]
        assert [offset for offset, _ in accepted] == [0, 1, 3, 4, 5]
        numbers = [None if each is None else [int(one) for one in each] for each in lists if each != ["x"]]
        assert [row[name] for _, row in accepted] == [
            each if name == "l" else [(str(offset), each)] for (offset, _), each in zip(accepted, numbers, strict=True)
        ]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_what_is_appended_to_a_compressed_file_after_its_plan_is_not_read(tmp_path: Path, ending: str) -> None:
    pack = gzip.compress if ending == "gz" else _zstd
    path = tmp_path / f"a.log.{ending}"
    path.write_bytes(pack(b"one\ntwo\n"))
    source = source_of(tmp_path)
    ranges = source.plan({}).ranges
    with path.open("ab") as file:
        file.write(pack(b"three\n"))
    assert read_lines(source, ranges) == [(0, b"one"), (4, b"two")]


def test_values_of_parquet_that_no_column_holds_are_rejected(tmp_path: Path) -> None:
    late = 300_000_000_000_000_000  # in the year 11476
    columns = {
        "f": pa.array([1.5, 1e300, None, 2.0, 2.5], pa.float64()),
        "t": pa.array([0, 0, None, late, 0], pa.timestamp("us", "UTC")),
        "d": pa.array([0, 0, None, 0, 4_000_000], pa.int32()).cast(pa.date32()),
        "s": pa.array([None, None, None, {"t": late}, None], pa.struct([("t", pa.timestamp("us", "UTC"))])),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = source_of(tmp_path, format="parquet")
    (block,) = _blocks(source)
    schema = schema_of({"f": "float", "t": "timestamp", "d": "date", "s": "struct<t:timestamp>"})
    accepted, rejected = outcome(source.decoder(schema, lineage=True).decode(block))
    assert [offset for offset, _ in accepted] == [0, 2]
    assert [(offset, reason[:2]) for offset, reason, _ in rejected] == [(1, "f:"), (3, "t:"), (4, "d:")]


def _decoded(table: pa.Table, path: Path, schema: pa.Schema, **options: Any) -> tuple[list[Any], list[Any]]:
    """Accepted and rejected rows of a file in one block."""
    pq.write_table(table, path, **options)
    source = source_of(path, format="parquet")
    (block,) = _blocks(source)
    return outcome(source.decoder(schema, lineage=True).decode(block))


def _replayed(table: pa.Table, path: Path, schema: pa.Schema) -> tuple[list[Any], list[Any]]:
    """Accepted and rejected rows of a replay of the rejected rows of a file in one block."""
    pq.write_table(table, path)
    source = source_of(path, format="parquet")
    (block,) = _blocks(source)
    decoder = source.decoder(schema, lineage=True)
    again = [outcome(decoder.decode(each)) for each in quarantined_rows("a", decoder.decode(block).rejected)]
    return [row for accepted, _ in again for row in accepted], [row for _, rejected in again for row in rejected]


_TWICE = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"])


@pytest.mark.parametrize(
    ("column", "kind", "reason", "raw"),
    [
        (_TWICE, "struct<x:bigint>", "c.x: the file has 2 fields of this name", b'{"c": {"x": 1, "x": 3}, "b": 5}'),
        (
            pa.ListArray.from_arrays([0, 2, 2], _TWICE),
            "array<struct<x:bigint>>",
            "c[].x: the file has 2 fields of this name",
            b'{"c": [{"x": 1, "x": 3}, {"x": 2, "x": 4}], "b": 5}',
        ),
        (
            pa.StructArray.from_arrays([_TWICE], names=["y"]),
            "struct<y:struct<x:bigint>>",
            "c.y.x: the file has 2 fields of this name",
            b'{"c": {"y": {"x": 1, "x": 3}}, "b": 5}',
        ),
    ],
)
def test_parquet_with_two_fields_of_one_name_is_rejected_and_none_of_them_lost(
    tmp_path: Path, column: pa.Array, kind: str, reason: str, raw: bytes
) -> None:
    table = pa.Table.from_arrays([column, pa.array([5, 6])], names=["c", "b"])
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"c": kind, "b": "int"}))
    assert accepted == []
    assert [found for _, found, _ in rejected] == [reason] * 2
    assert rejected[0][2] == raw
    assert [found for _, _, found in _replayed(table, tmp_path / "a.parquet", schema_of({"c": kind, "b": "int"}))[1]][
        :1
    ] == [raw]
    # The field does not matter where the schema does not have it.
    assert len(_decoded(table, tmp_path / "b.parquet", schema_of({"b": "int"}))[0]) == 2


def test_parquet_with_two_columns_of_one_name_is_rejected_and_none_of_them_lost(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([each]) for each in (1, 2, 3, 4)], names=["a", "a", "A", "b"])
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"a": "int", "b": "int"}))
    assert accepted == []
    assert rejected == [(0, "a: the file has 2 columns of this name", b'{"a": 1, "a": 2, "A": 3, "b": 4}')]
    assert _replayed(table, tmp_path / "a.parquet", schema_of({"a": "int", "b": "int"})) == ([], rejected)
    # Names are case-sensitive.
    for name, value in (("A", 3), ("b", 4)):
        assert _decoded(table, tmp_path / "a.parquet", schema_of({name: "int"})) == ([(0, {name: value})], [])


def test_parquet_without_any_of_the_schemas_columns_is_rejected(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "y": [None, 3], "s": [{"p": 1}, None]})
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"a": "int"}))
    assert accepted == []
    assert [reason for _, reason, _ in rejected] == ["the file has none of the schema's columns: x,y,s"] * 2
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"x": "int", "s": "struct<q:int>"}))
    assert accepted == []
    assert [reason for _, reason, _ in rejected] == ["s: the file's struct has none of the schema's fields: p"] * 2
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"x": "int", "s": "struct<p:int,q:int>"}))
    assert [row["s"] for _, row in accepted] == [{"p": 1, "q": None}, None]
    assert rejected == []


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_digits_beyond_microseconds_are_dropped_in_parquet_as_in_texts(tmp_path: Path, zone: str | None) -> None:
    nanos = [-1, -999, -1000, -1001, 0, 1, 999, 1001, -(10**9) + 1, -(2**63) + 1, 2**63 - 1, None]
    times = pa.array(nanos, pa.timestamp("ns", zone))
    texts = [
        None if text is None else text.removesuffix("Z")
        for text in times.cast(pa.timestamp("ns")).cast(pa.string()).to_pylist()
    ]
    expected = [None if text is None else iso_micros(text, zoned=False) for text in texts]
    kind = "timestamp_ntz" if zone is None else "timestamp"
    entries = pa.MapArray.from_arrays(range(len(nanos) + 1), pa.array([str(at) for at in range(len(nanos))]), times)
    columns = {
        "t": (times, kind),
        "s": (pa.StructArray.from_arrays([times], names=["t"]), f"struct<t:{kind}>"),
        "l": (pa.ListArray.from_arrays(range(len(nanos) + 1), times), f"array<{kind}>"),
        "g": (pa.LargeListArray.from_arrays(range(len(nanos) + 1), times), f"array<{kind}>"),
        "f": (pa.FixedSizeListArray.from_arrays(times, 1), f"array<{kind}>"),
        "m": (entries, f"map<string,{kind}>"),
        "d": (times.dictionary_encode(), kind),
        "x": (times.cast(pa.timestamp("ns")).cast(pa.string()), "string"),
    }
    table = pa.table({name: values for name, (values, _) in columns.items()}).slice(0)
    pq.write_table(pa.concat_tables([table.slice(3, 1), table]), tmp_path / "a.parquet")
    source = source_of(tmp_path, format="parquet")
    (block,) = _blocks(source)
    found = source.decoder(schema_of({name: kind for name, (_, kind) in columns.items()}), lineage=True).decode(block)
    assert found.rejected.num_rows == 0
    rows = found.accepted.slice(1)
    flat = {
        "s": lambda column: column.field("t"),
        "l": lambda column: column.flatten(),
        "g": lambda column: column.flatten(),
        "f": lambda column: column.flatten(),
        "m": lambda column: pa.concat_arrays([column.items[1:]]),
    }
    for name in "tslgfmd":
        column = rows.column(name)
        micros = flat.get(name, lambda column: column)(column).cast(pa.int64()).to_pylist()
        assert micros == expected, name


def test_old_timestamps_of_parquet_keep_years_that_nanoseconds_do_not_reach(tmp_path: Path) -> None:
    times = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None]
    table = pa.table({"t": pa.array(times, pa.timestamp("us")), "s": [{"t": time} for time in times]})
    schema = schema_of({"t": "timestamp_ntz", "s": "struct<t:timestamp_ntz>"})
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema, use_deprecated_int96_timestamps=True)
    assert rejected == []
    assert [row for _, row in accepted] == [{"t": time, "s": {"t": time}} for time in times]


def test_a_time_of_day_of_parquet_is_no_date(tmp_path: Path) -> None:
    midnight, later = datetime.datetime(1969, 12, 31), datetime.datetime(2026, 3, 1, 10)
    days = pa.array([midnight, later, None], pa.timestamp("us", tz="Europe/Berlin"))
    table = pa.table({"day": days})
    accepted, rejected = _decoded(table, tmp_path / "a.parquet", schema_of({"day": "date"}))
    assert [row["day"] for _, row in accepted] == [datetime.date(1969, 12, 31), None]
    assert [reason for _, reason, _ in rejected] == ["day: '2026-03-01 10:00:00+00:00' is not a date"]


def test_texts_of_parquet_that_are_not_utf8_are_rejected_alone_and_keep_their_bytes(tmp_path: Path) -> None:
    raw = pa.array([b"ok", b"\xff\xfe", None], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    columns = {
        "s": texts,
        "n": pa.StructArray.from_arrays([texts], ["x"]),
        "l": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts),
        "m": pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), texts),
    }
    for name, column in columns.items():
        table = pa.table({"id": [1, 2, 3], name: column})
        kind = {"s": "string", "n": "struct<x:string>", "l": "array<string>", "m": "map<string,string>"}[name]
        accepted, rejected = _decoded(table, tmp_path / f"{name}.parquet", schema_of({"id": "bigint", name: kind}))
        assert [row["id"] for _, row in accepted] == [1, 3]
        ((offset, reason, shown),) = rejected
        assert (offset, reason) == (1, f"{name}: a text is not UTF-8")
        assert b'{"$binary": "//4="}' in shown
