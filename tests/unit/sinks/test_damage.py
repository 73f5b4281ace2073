"""`fsck --deep` finds data files whose bytes differ from those that were written."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.damage import damage_of as damage_of_file
from timeline.epoch import WrittenFile

ROWS = 20_000
TABLE = pa.table(
    {
        "id": pa.array(np.arange(ROWS)),
        "host": pa.array([f"host-{number % 50}" if number % 7 else None for number in range(ROWS)]),
        "load": pa.array(np.random.default_rng(1).random(ROWS)),
        "at": pa.array(np.arange(ROWS), pa.timestamp("us", "UTC")),
        "price": pa.array(range(ROWS), pa.int64()).cast(pa.decimal128(19, 0)),
        "tags": pa.array([[{"k": str(number)}] for number in range(ROWS)]),
        "raw": pa.array([bytes([number % 256]) for number in range(ROWS)], pa.binary()),
    }
)


def damage_of(body: bytes, rows: int, crc32: int | None = None) -> str | None:
    return damage_of_file(body, WrittenFile("a.parquet", len(body), rows, crc32=crc32))


def written(*, with_sums: bool, compression: str = "zstd", table: pa.Table = TABLE) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(
        table,
        out,
        compression=compression,
        write_page_checksum=with_sums,
        row_group_size=7_000,
        use_dictionary=["host"],
    )
    return bytes(out.getvalue())


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes(byte ^ 0xFF for byte in body[at : at + 4]) + body[at + 4 :]


def ends(body: bytes) -> list[int]:
    """End offset of each column chunk, and with it of the chunk's last page."""
    metadata = pq.read_metadata(pa.BufferReader(body))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    return [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]


@pytest.mark.parametrize("with_sums", [True, False])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_whole_file_is_whole(with_sums: bool, compression: str) -> None:
    assert damage_of(written(with_sums=with_sums, compression=compression), ROWS) is None
    assert damage_of(written(with_sums=with_sums, table=TABLE.slice(0, 0)), 0) is None
    nothing = pa.table({"id": pa.array([None, None], pa.int64()), "load": pa.array([float("nan"), 1.0])})
    assert damage_of(written(with_sums=with_sums, table=nothing), 2) is None
    assert damage_of(written(with_sums=with_sums), ROWS + 1) == "it holds 20,000 rows, the manifest says 20,001"


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_four_changed_bytes_of_any_page_are_found_by_its_checksum(compression: str) -> None:
    body = written(with_sums=True, compression=compression)
    for end in ends(body):
        assert damage_of(flipped(body, end - 8), ROWS) == "a page's checksum is not that of its bytes"


def test_four_changed_bytes_anywhere_are_found_by_the_files_checksum() -> None:
    body = written(with_sums=False)
    assert damage_of(body, ROWS, zlib.crc32(body)) is None
    for at in random.Random(7).sample(range(len(body) - 4), 200):
        said = damage_of(flipped(body, at), ROWS, zlib.crc32(body))
        assert said is not None and said.startswith("its bytes add up to"), at


def test_a_value_out_of_its_statistics_is_found_without_checksums_too() -> None:
    plain = pa.table({"id": pa.array(np.arange(ROWS)), "other": pa.array(np.arange(ROWS))})
    out = pa.BufferOutputStream()
    pq.write_table(plain, out, compression="none", use_dictionary=False, write_page_checksum=False)
    body = bytes(out.getvalue())
    changed = flipped(body, ends(body)[1] - 404)
    assert pq.read_table(pa.BufferReader(changed)).num_rows == ROWS, "readers notice nothing"
    assert damage_of(changed, ROWS) == "values of column 'other' are not those that its statistics tell of"


def test_what_cannot_be_decoded_is_told_without_its_values() -> None:
    for body in (b"", b"PAR1", written(with_sums=True)[:-100], flipped(written(with_sums=True), -8)):
        assert str(damage_of(body, ROWS)).startswith("it cannot be decoded (")
