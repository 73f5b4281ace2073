"""Row keys: the user's prefix and the key columns in TiDB's memcomparable form, encoded and decoded.

::

    prefix 0x00 …                        Tideline's own records: epochs and attempts
    prefix 0x01 <groups of 8 + marker>   a row whose first key column is text or bytes
    prefix 0x03 <8 bytes, big-endian>    a row whose first key column is a whole number, a date or a timestamp

Encoded keys sort as the tuples of their columns do: numbers by value, texts by their UTF-8 bytes. Source: TiDB,
``pkg/util/codec`` (`EncodeBytes`, `EncodeInt`, and the flags of `EncodeKey`); docs/tikv-layout.md has it byte by byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.sql_types import type_name
from sinks.tikv.binary_arrays import (
    EMPTY,
    WORD,
    Bytes,
    Ints,
    Values,
    binary_array,
    booleans,
    fixed_rows,
    values_of,
)
from timeline.errors import ConfigError, DataError, FormatError
from timeline.units import count

MAX_KEY_BYTES = 4096
"""Largest key of a row, prefix included. TiKV refuses keys above its ``storage.max-key-size`` (8 KiB by default since
TiKV 5.4), measured on an encoding of the key that is an eighth longer."""

MAX_PREFIX_BYTES = 128

OWN_FLAG = 0x00
BYTES_FLAG = 0x01
INT_FLAG = 0x03

_GROUP = WORD + 1
_FULL_MARKER = 0xFF
_SIGN = np.uint64(1 << 63)
_ALLOWED = "tinyint, smallint, int, bigint, date, timestamp, timestamp_ntz, string, binary"
_TIDB_TABLE = re.compile(rb"t(?:[\x80-\xff]|.{8}_[ri])", re.DOTALL)
_TIDB_META = re.compile(rb"m(?:[A-Z]|metadata)")


def check_prefix(text: str) -> bytes:
    """The bytes of a job file's `prefix:`, either text (as UTF-8) or ``0x`` and hexadecimal digits.

    Raises:
        ConfigError: the prefix is empty, too long, not hexadecimal behind ``0x``, begins with 0xff (TiKV's end of all
            keys), or rows below it could collide with TiDB's keys (``t`` tables, ``m`` metadata).
    """
    allowed = f"allowed are 1 to {MAX_PREFIX_BYTES} bytes as text (`tevents_`) or hexadecimal (`0x7465…`)"
    if text.startswith(("0x", "0X")):
        digits = text[2:]
        if len(digits) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", digits):
            raise ConfigError(f"prefix {text!r}: behind 0x must be an even number of hexadecimal digits; {allowed}")
        prefix = bytes.fromhex(digits)
    else:
        try:
            prefix = text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"prefix {text!r} is not valid Unicode; {allowed}") from error
    if not 1 <= len(prefix) <= MAX_PREFIX_BYTES:
        raise ConfigError(f"prefix {text!r} has {count(len(prefix), 'byte')}; {allowed}")
    if prefix[0] == 0xFF:
        raise ConfigError(
            f"prefix {text!r} begins with 0xff, where TiKV's keys end; {allowed}, not beginning with 0xff"
        )
    if prefix in (b"t", b"m") or _TIDB_TABLE.match(prefix) or _TIDB_META.match(prefix):
        raise ConfigError(
            f"prefix {text!r} is TiDB's own: `t` with a table's number behind it holds its tables, `m` with a name its "
            f"metadata; {allowed}; a longer word that says what the rows are (`tevents_`) meets neither"
        )
    return prefix


def own_range(prefix: bytes) -> tuple[bytes, bytes]:
    """First key and end (exclusive) of Tideline's own records below a prefix."""
    return prefix + bytes([OWN_FLAG]), prefix + bytes([OWN_FLAG + 1])


def row_range(prefix: bytes) -> tuple[bytes, bytes]:
    """First key and end (exclusive) of all rows below a prefix; disjoint from `own_range`."""
    return prefix + bytes([BYTES_FLAG]), prefix + bytes([INT_FLAG + 1])


def memcomparable(key: bytes) -> bytes:
    """One key as PD and region bounds encode it: TiDB's `EncodeBytes`, without a flag."""
    groups = [key[start : start + WORD] for start in range(0, len(key) + 1, WORD)]
    return b"".join(group.ljust(WORD, b"\0") + bytes([_FULL_MARKER - WORD + len(group)]) for group in groups)


def from_memcomparable(encoded: bytes) -> bytes:
    """Decode the encoding of `memcomparable`.

    Raises:
        FormatError: the bytes are not memcomparable.
    """
    key = b"".join(
        encoded[start : start + min(WORD, max(0, encoded[start + WORD] - _FULL_MARKER + WORD))]
        for start in range(0, len(encoded) - WORD, _GROUP)
    )
    if memcomparable(key) != encoded:
        raise FormatError(f"0x{encoded.hex()} is not a memcomparable key (groups of 8 bytes, each with its marker)")
    return key


def is_number(kind: pa.DataType) -> bool:
    """Whether a key column of this type is encoded as a number.

    Raises:
        ConfigError: the type is not allowed for key columns.
    """
    types = pa.types
    if types.is_signed_integer(kind) or types.is_date32(kind) or (types.is_timestamp(kind) and kind.unit == "us"):
        return True
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return False
    raise ConfigError(f"a key column cannot be {_type_text(kind)}; allowed are {_ALLOWED}")


@dataclass(frozen=True)
class KeyCodec:
    """Encodes the key columns of whole batches, and decodes them.

    Attributes:
        prefix: first bytes of every key; see `check_prefix`.
        columns: the key columns, in the order in which they are encoded.

    Raises:
        ConfigError: a column's type has no encoding that keeps the order, or there is no column.
    """

    prefix: bytes
    columns: tuple[pa.Field, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"key columns {names}: allowed are one or more columns, each once")
        for column in self.columns:
            try:
                is_number(column.type)
            except ConfigError as error:
                raise ConfigError(f"key column `{column.name}`: {error}") from None

    def null_rows(self, rows: pa.RecordBatch) -> pa.Array:
        """Mask of the rows that have no key because a key column is null."""
        found = booleans(np.zeros(rows.num_rows, dtype=np.bool_))
        for column in self.columns:
            found = pc.or_(found, rows.column(column.name).is_null())
        return found

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """The key of each row, as `binary`; see `null_rows` for rows without a key.

        Args:
            rows: contain the key columns, in any order and among others.

        Raises:
            DataError: a key column is null.
        """
        parts: list[pa.Array | pa.Scalar] = []
        fixed: list[bytes | Bytes] = [self.prefix]
        for field in self.columns:
            column = rows.column(field.name)
            if column.null_count:
                raise DataError(
                    f"key column `{field.name}` is null in {count(column.null_count, 'row')}: reject them before"
                )
            if is_number(field.type):
                fixed += [bytes([INT_FLAG]), _encode_numbers(column)]
            else:
                fixed.append(bytes([BYTES_FLAG]))
                parts += [_side_by_side(fixed, rows.num_rows), _encode_bytes(column)]
                fixed = []
        if fixed:
            parts.append(_side_by_side(fixed, rows.num_rows))
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, EMPTY)

    def decode(self, keys: pa.Array) -> pa.RecordBatch:
        """The key columns of encoded keys, in the order of `columns`.

        Raises:
            FormatError: a key was not encoded by this codec.
        """
        values = values_of(keys)
        at = values.starts
        ahead = len(self.prefix)
        _expect(values, at + ahead <= values.ends, self)
        prefixes = pc.binary_slice(keys, 0, ahead) if len(keys) else keys
        if not pc.all(pc.equal(prefixes, pa.scalar(self.prefix, keys.type)), min_count=0).as_py():
            raise FormatError(f"a key does not begin with the prefix {self.prefix!r}: it is not a row of this target")
        at = at + ahead
        columns: list[pa.Array] = []
        for field in self.columns:
            flag = INT_FLAG if is_number(field.type) else BYTES_FLAG
            _expect(values, at < values.ends, self)
            _expect(values, values.data[at] == flag, self)
            column, at = (_decode_numbers if flag == INT_FLAG else _decode_bytes)(values, at + 1, field.type, self)
            columns.append(column)
        _expect(values, at == values.ends, self)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.columns))


def _type_text(kind: pa.DataType) -> str:
    """A type as the job file spells it, else as Arrow does."""
    try:
        return type_name(kind)
    except ValueError:
        return str(kind)


def _side_by_side(parts: list[bytes | Bytes], rows: int) -> pa.Array | pa.Scalar:
    """Join fixed-width parts: one value for each row, or a scalar where all parts are constant."""
    if all(isinstance(part, bytes) for part in parts):
        return pa.scalar(b"".join(part for part in parts if isinstance(part, bytes)), pa.binary())
    widths = [len(part) if isinstance(part, bytes) else part.shape[1] for part in parts]
    matrix = np.empty((rows, sum(widths)), dtype=np.uint8)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        matrix[:, start : start + width] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        start += width
    return fixed_rows(matrix)


def _encode_numbers(column: pa.Array) -> Bytes:
    """Eight bytes for each row, big-endian, the sign bit flipped so that negative numbers come first."""
    plain = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    numbers: Ints = plain.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return (numbers.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint8).reshape(-1, WORD)


def _encode_bytes(column: pa.Array) -> pa.Array:
    """TiDB's `EncodeBytes`: zero-padded groups of 8 bytes, each followed by 0xff minus its number of padding bytes."""
    values = values_of(column)
    groups = values.lengths // WORD + 1
    ends = np.cumsum(groups)
    total = int(ends[-1]) if len(ends) else 0
    number = np.arange(total) - np.repeat(ends - groups, groups)
    kept = np.minimum(np.repeat(values.lengths, groups) - number * WORD, WORD)
    encoded = np.empty((total, _GROUP), dtype=np.uint8)
    words = values.words(np.repeat(values.starts, groups) + number * WORD, kept)
    encoded[:, :WORD] = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD)
    encoded[:, WORD] = _FULL_MARKER - WORD + kept
    return binary_array(encoded.reshape(-1), ends * _GROUP)


def _decode_numbers(values: Values, at: Ints, kind: pa.DataType, codec: KeyCodec) -> tuple[pa.Array, Ints]:
    """A column of numbers, and the start of the next column in each key."""
    _expect(values, at + WORD <= values.ends, codec)
    numbers = (values.words(at).byteswap() ^ _SIGN).view(np.int64)
    try:
        plain = pa.array(numbers, pa.int64()).cast(pa.int32() if pa.types.is_date32(kind) else kind)
    except pa.ArrowInvalid as error:
        raise FormatError(f"a key holds a number that is no {_type_text(kind)}: {error}") from error
    return plain.cast(kind), at + WORD


def _decode_bytes(values: Values, at: Ints, kind: pa.DataType, codec: KeyCodec) -> tuple[pa.Array, Ints]:
    """A column of texts or bytes, and the start of the next column in each key."""
    groups = np.zeros(len(at), dtype=np.int64)
    last = np.zeros(len(at), dtype=np.int64)
    open_rows = np.arange(len(at))
    while len(open_rows):
        marker_at = at[open_rows] + groups[open_rows] * _GROUP + WORD
        _expect(values, marker_at < values.ends[open_rows], codec)
        kept = values.data[marker_at].astype(np.int64) - (_FULL_MARKER - WORD)
        _expect(values, (kept >= 0), codec)
        last[open_rows] = kept
        groups[open_rows] += 1
        open_rows = open_rows[kept == WORD]
    ends = np.cumsum(groups)
    total = int(ends[-1]) if len(ends) else 0
    number = np.arange(total) - np.repeat(ends - groups, groups)
    starts = np.repeat(at, groups) + number * _GROUP
    is_last = number == np.repeat(groups, groups) - 1
    kept = np.where(is_last, np.repeat(last, groups), WORD)
    words = values.words(starts)
    _expect(values, words == values.words(starts, kept), codec)
    matrix = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD)
    data = matrix[np.arange(WORD) < kept[:, np.newaxis]]
    decoded = binary_array(data, np.cumsum((groups - 1) * WORD + last))
    try:
        return decoded.cast(kind), at + groups * _GROUP
    except pa.ArrowInvalid as error:
        raise FormatError(f"a key holds bytes that are no {_type_text(kind)}: {error}") from error


def _expect(values: Values, holds: npt.NDArray[np.bool_], codec: KeyCodec) -> None:
    """Raise FormatError where a key is not in the codec's layout."""
    if not holds.all():
        columns = ", ".join(f"{column.name} {_type_text(column.type)}" for column in codec.columns)
        raise FormatError(
            f"of {count(len(values.starts), 'key')} at least one is not ({columns}) behind the prefix "
            f"{codec.prefix!r}: it was written by something else, or the key columns of the job file have changed since"
        )
