from __future__ import annotations

import pyarrow as pa
import pytest

from sinks.sql_types import parse_type
from sinks.tikv.key_codec import (
    MAX_PREFIX_BYTES,
    KeyCodec,
    check_prefix,
    from_memcomparable,
    memcomparable,
    own_range,
    row_range,
)
from timeline.errors import ConfigError, DataError, FormatError

ID = KeyCodec(b"p_", (pa.field("id", pa.int64()),))
NAME = KeyCodec(b"p_", (pa.field("name", pa.string()),))


def key_of(codec: KeyCodec, value: object) -> bytes:
    batch = pa.RecordBatch.from_arrays([pa.array([value], codec.columns[0].type)], schema=pa.schema(codec.columns))
    key: bytes = codec.encode(batch)[0].as_py()
    return key


# From TiDB's own tests (pkg/util/codec: TestCodecKey, TestBytes, testEncodeBytes).
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"", "0000000000000000f7"),
        (b"\x00", "0000000000000000f8"),
        (b"\x01\x02\x03", "0102030000000000fa"),
        (b"\x01\x02\x03\x00", "0102030000000000fb"),
        (b"\x01\x02\x03\x04\x05\x06\x07", "01020304050607" + "00fe"),
        (b"\x00" * 8, "0000000000000000ff0000000000000000f7"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08", "0102030405060708ff0000000000000000f7"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", "0102030405060708ff0900000000000000f8"),
    ],
)
def test_bytes_are_encoded_as_tidb_encodes_them(value: bytes, encoded: str) -> None:
    assert memcomparable(value).hex() == encoded
    assert from_memcomparable(bytes.fromhex(encoded)) == value
    assert key_of(KeyCodec(b"p_", (pa.field("b", pa.binary()),)), value) == b"p_\x01" + bytes.fromhex(encoded)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (-(2**63), "0000000000000000"),
        (-1, "7fffffffffffffff"),
        (0, "8000000000000000"),
        (2**63 - 1, "ffffffffffffffff"),
    ],
)
def test_numbers_are_encoded_as_tidb_encodes_them(value: int, encoded: str) -> None:
    assert key_of(ID, value) == b"p_\x03" + bytes.fromhex(encoded)


@pytest.mark.parametrize("kind", ["double", "float", "boolean", "decimal(10,2)", "array<int>", "struct<a:int>"])
def test_a_key_column_whose_order_cannot_be_kept_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KeyCodec(b"p_", (pa.field("id", pa.int64()), pa.field("wrong", parse_type(kind))))
    assert all(word in str(refused.value) for word in ("`wrong`", kind, "bigint", "timestamp", "binary"))


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.uint64(), pa.time64("us")])
def test_a_type_that_a_job_file_cannot_name_is_refused_too(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"`wrong`.*allowed are"):
        KeyCodec(b"p_", (pa.field("wrong", kind),))


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_key_columns_are_one_or_more_each_once(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="each once"):
        KeyCodec(b"p_", tuple(pa.field(name, pa.int64()) for name in names))


def test_a_null_in_any_key_column_is_found_and_never_encoded() -> None:
    codec = KeyCodec(b"p_", (pa.field("a", pa.int64()), pa.field("b", pa.string())))
    rows = pa.RecordBatch.from_pydict({"b": ["x", None, None, "y"], "a": [1, 2, None, None], "c": [None] * 4})
    assert codec.null_rows(rows).to_pylist() == [False, True, True, True]
    with pytest.raises(DataError, match="`a` is null in 2 rows"):
        codec.encode(rows)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"p",
        b"q_" + key_of(ID, 7)[2:],
        b"p_",
        key_of(ID, 7)[:-1],
        key_of(ID, 7) + b"\0",
        b"p_\x01" + key_of(ID, 7)[3:],
    ],
)
def test_keys_of_something_else_are_refused(key: bytes) -> None:
    with pytest.raises(FormatError):
        ID.decode(pa.array([key_of(ID, 1), key, key_of(ID, 2)]))


@pytest.mark.parametrize(
    "group", ["6100000000000000f6", "61000000000000f8", "6100000000000001f8", "ff00000000000000f8"]
)
def test_groups_that_nobody_writes_are_refused(group: str) -> None:
    with pytest.raises(FormatError):
        NAME.decode(pa.array([b"p_\x01" + bytes.fromhex(group)]))


def test_a_number_beyond_its_columns_type_is_refused() -> None:
    small = KeyCodec(b"p_", (pa.field("id", pa.int8()),))
    with pytest.raises(FormatError, match="tinyint"):
        small.decode(pa.array([key_of(ID, 128)]))


def test_a_column_is_taken_in_the_type_that_the_batch_has() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([5], pa.int32())], names=["id"])
    assert ID.encode(rows)[0].as_py() == key_of(ID, 5)
    assert NAME.encode(pa.RecordBatch.from_arrays([pa.array(["a"], pa.large_string())], names=["name"]))[
        0
    ].as_py() == key_of(NAME, "a")


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("tevents_", b"tevents_"),
        ("metrics_", b"metrics_"),
        ("ü", "ü".encode()),
        ("0x7401", b"t\x01"),
        ("0X00fF", b"\x00\xff"),
        ("x" * MAX_PREFIX_BYTES, b"x" * MAX_PREFIX_BYTES),
    ],
)
def test_a_prefix_is_text_or_hexadecimal(text: str, prefix: bytes) -> None:
    assert check_prefix(text) == prefix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "0x123",
        "0xzz",
        "0x12 34",
        "x" * (MAX_PREFIX_BYTES + 1),
        "\ud800",
        "0xff01",
        "t",
        "m",
        "0x748000000000000001",
        "0x7480000000000000015f72",
        "t12345678_r",
        "t12345678_i_more",
        "mDB",
        "mmetadataLock",
    ],
)
def test_a_prefix_that_is_none_or_meets_tidb_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)prefix .*allowed are 1 to 128 bytes"):
        check_prefix(text)


def test_rows_lie_in_their_range_and_never_in_our_own() -> None:
    start, end = row_range(b"p_")
    own_start, own_end = own_range(b"p_")
    assert own_start < own_end <= start < end
    for key in (key_of(ID, -(2**63)), key_of(ID, 2**63 - 1), key_of(NAME, ""), key_of(NAME, "\U0010ffff" * 9)):
        assert start <= key < end
    assert own_start <= b"p_\x00anything\xff" < own_end
