"""Rejected rows of Parquet files: their texts, and their replay from the quarantine."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.sources.base import Block, Decoded
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.parquet import ParquetDecoder
from ingest.sources.files.parquet_restore import quarantined_rows
from tests.unit.ingest.sources.rows import outcome, schema_of


def _decoder(**columns: str) -> ParquetDecoder:
    return ParquetDecoder(schema_of(columns), UnknownField.DROP, lineage=True)


def _block(columns: dict[str, pa.Array]) -> Block:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return Block("a.parquet", 7, batch.num_rows, batch)


def _raw(decoded: Decoded) -> Sequence[object]:
    return [json.loads(raw) for _, _, raw in outcome(decoded)[1]]


@pytest.mark.parametrize(
    "zone", ["Mars/Phobos", "Eastern Standard Time", "GMT+8", "UTC+1", "PST", "Z", "local", "Europe/Berlin", "+02:00"]
)
def test_a_rejected_row_shows_the_instant_whatever_its_zone_is_called(zone: str) -> None:
    times = pa.array([1_600_000_000_123_456_789, -1], pa.timestamp("ns", zone))
    block = _block({"n": pa.array(["x", "1"]), "t": times, "s": pa.array([{"t": None}] * 2)})
    good, bad = outcome(_decoder(n="int", t="timestamp").decode(block))
    assert [(offset, row["n"]) for offset, row in good] == [(8, 1)]
    assert [reason for _, reason, _ in bad] == ["n: 'x' is not an int"]
    assert json.loads(bad[0][2]) == {"n": "x", "t": "2020-09-13 12:26:40.123456789+00:00", "s": {"t": None}}
    refused = _decoder(n="int").refuse(block, "for a test")
    assert [row["t"] for row in _raw(refused)] == [  # type: ignore[index]
        "2020-09-13 12:26:40.123456789+00:00",
        "1969-12-31 23:59:59.999999999+00:00",
    ]


_FAR = 2**63 - 1


@pytest.mark.parametrize(
    "values",
    [
        *(pa.array([_FAR, -_FAR], pa.int64()).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array([_FAR, -_FAR], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("s", "Mars/Phobos")),
        pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()),
        pa.array([_FAR, -_FAR], pa.int64()).view(pa.date64()),
        pa.array([_FAR, -1], pa.int64()).view(pa.time64("ns")),
        pa.array([2**31 - 1, -1], pa.int32()).view(pa.time32("s")),
        *(pa.array([_FAR, -_FAR], pa.int64()).view(pa.duration(unit)) for unit in ("s", "ns")),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.array([float("nan"), float("inf")]),
        pa.array([b"\xff\x00", b""], pa.binary()).view(pa.string()),
    ],
    ids=lambda values: f"{values.type}-{len(values)}",
)
def test_a_block_can_be_refused_whatever_its_values_are(values: pa.Array) -> None:
    shapes = {
        "v": values,
        "d": values.dictionary_encode(),
        "s": pa.StructArray.from_arrays([values], ["$binary"]),
        "l": pa.ListArray.from_arrays([0, 1, 2], values),
        "m": pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), values),
    }
    assert len(_raw(_decoder(n="int").refuse(_block(shapes), "for a test"))) == 2


def test_times_without_a_date_are_shown_as_the_number_that_the_file_has() -> None:
    days = pa.array([4_000_000, 0], pa.int32()).cast(pa.date32())
    times = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("s", "Mars/Phobos"))
    block = _block({"d": days, "t": times})
    assert _raw(_decoder(n="int").refuse(block, "for a test")) == [
        {"d": 4_000_000, "t": 2**62},
        {"d": "1970-01-01", "t": "1970-01-01 00:00:00+00:00"},
    ]
    assert [reason for _, reason, _ in outcome(_decoder(d="date").decode(block))[1]] == ["d: 4000000 is not a date"]
    assert [reason for _, reason, _ in outcome(_decoder(t="timestamp").decode(block))[1]] == [
        f"t: {2**62} is not a timestamp"
    ]


def test_halves_of_a_block_do_not_carry_the_whole() -> None:
    texts = pa.array([f"{number:01000d}" for number in range(1000)])
    nested = pa.array([{"l": [text]} for text in texts.to_pylist()])
    block = _block({"t": texts, "n": nested, "d": texts.dictionary_encode()})
    whole = len(pickle.dumps(block, pickle.HIGHEST_PROTOCOL))
    for half in _decoder(t="string").halves(block):
        assert len(pickle.dumps(half, pickle.HIGHEST_PROTOCOL)) < 0.51 * whole
        (first, _) = _decoder(t="string").halves(half)
        assert len(pickle.dumps(first, pickle.HIGHEST_PROTOCOL)) < 0.26 * whole


def _again(decoded: Decoded) -> list[Block]:
    return list(quarantined_rows("a.parquet", decoded.rejected.select(["offset", "raw", "context"])))


_MIXED = {
    "u": pa.array([2**64 - 1, None], pa.uint64()),
    "i": pa.array([-1, None], pa.int8()),
    "f": pa.array([0.1, float("-inf")], pa.float32()),
    "dec": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "wide": pa.array([Decimal(10**50), None], pa.decimal256(60, 0)),
    "bool": pa.array([True, None]),
    "text": pa.array(["2026-01-31", '{"$binary": "x"}']),
    "bytes": pa.array([b"\xff", b"ok"], pa.binary()),
    "date": pa.array([4_000_000, -1], pa.int32()).view(pa.date32()),
    "date64": pa.array([86_400_000, 1]).view(pa.date64()),
    "time": pa.array([1, 86_399_999_999], pa.int64()).view(pa.time64("us")),
    "nanos": pa.array([1, 2_000], pa.int64()).view(pa.time64("ns")),
    "lasts": pa.array([-1, None], pa.int64()).view(pa.duration("ms")),
    "null": pa.nulls(2),
    **{
        f"{unit} {zone}": pa.array([1_600_000_000_123, -(2**60)], pa.int64()).view(pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Mars/Phobos", "Europe/Berlin")
    },
}


@pytest.mark.parametrize("name", _MIXED)
def test_a_rejected_row_comes_back_from_the_quarantine_as_it_was(name: str) -> None:
    values, offsets = _MIXED[name], pa.array([0, 1, 2], pa.int32())
    columns = {
        "v": values,
        "s": pa.StructArray.from_arrays([values], ["$binary"]),
        "l": pa.ListArray.from_arrays(offsets, values),
        "m": pa.MapArray.from_arrays(offsets, pa.array(["a", "b"]), values),
        "deep": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([values, values], ["x", "x"])),
    }
    block = _block(columns)
    first = _decoder(n="int").refuse(block, "for a test")
    blocks = _again(first)
    assert [each.start for each in blocks] == [7, 8]
    for at, each in enumerate(blocks):
        assert isinstance(each.data, pa.RecordBatch)
        assert each.data.schema.types == [column.type for column in columns.values()]
        for found, column in zip(each.data.columns, columns.values(), strict=True):
            assert found.equals(column.slice(at, 1)), found
        again = _decoder(n="int").refuse(each, "for a test").rejected
        assert again == first.rejected.slice(at, 1)


def test_texts_that_are_not_utf8_come_back_as_the_same_bytes() -> None:
    texts = pa.array([b"\xff\xfe", b"ok"], pa.binary()).view(pa.string())
    (first, second) = _again(_decoder(n="int").refuse(_block({"t": texts}), "for a test"))
    accepted, rejected = outcome(_decoder(t="string").decode(second))
    assert (accepted, rejected) == ([(8, {"t": "ok"})], [])
    ((offset, reason, raw),) = outcome(_decoder(t="string").decode(first))[1]
    assert (offset, reason, raw) == (7, "t: a text is not UTF-8", b'{"t": {"$binary": "//4="}}')


def _quarantined(*rows: tuple[bytes | None, str | None]) -> pa.RecordBatch:
    raw, context = ([row[at] for row in rows] for at in (0, 1))
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(rows)), pa.int64()), pa.array(raw, pa.binary()), pa.array(context, pa.string())],
        ["offset", "raw", "context"],
    )


def test_rows_that_cannot_be_made_again_are_rejected_alone_and_keep_their_bytes() -> None:
    types = '{"types": ["%s"]}'
    broken = [
        (b'{"n": 18446744073709551616}', None),
        (b'{"n": {"$binary": 5}}', None),
        (b'{"n": {"$binary": "abc"}}', None),
        (b'{"n": [1, "x"]}', None),
        (b'{"n": {"x": 1, "x": 2}}', None),
        (b"[1]", None),
        (b"\xff", None),
        (b"{", None),
        (b'{"n": 300}', types % "int8"),
        (b'{"n": 1, "m": 2}', types % "int8"),
        (b'{"n": "x"}', types % "no type"),
        (b'{"n": "x"}', types % "date32[day]"),
        (b'{"n": "x"}', '{"types": [["list", "int8"]]}'),
        (b'{"n": "x"}', '{"types": [["decimal", 5, 2]]}'),
        (b'{"n": 1}', "not JSON"),
        (b'{"n": 1}', "[]"),
        (None, types % "int8"),
    ]
    rows = list(
        quarantined_rows("a.parquet", _quarantined(*broken, (b'{"n": 1}', None), (b'{"n": 2}', types % "int8")))
    )
    decoder = _decoder(n="int")
    assert [outcome(decoder.decode(each))[0] for each in rows[-2:]] == [[(17, {"n": 1})], [(18, {"n": 2})]]
    for (raw, context), each in zip(broken, rows, strict=False):
        (row,) = decoder.decode(each).rejected.to_pylist()
        assert (row["raw"], row["context"]) == (raw, context)
        assert row["reason"].startswith("the row cannot be read again: ")
