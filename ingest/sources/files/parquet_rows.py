"""Rejected rows of Parquet files as JSON, since Parquet has no bytes of one row; `parquet_again` restores them.

Every value has a text: a time is an instant of UTC whatever its zone is called, and a number where no date can hold it.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

from ingest.sources.decode.timestamps import in_range
from ingest.sources.decode.values import Number
from ingest.sources.files.parquet_columns import ENTRY

BINARY = "$binary"
"""The one field of an object that stands for bytes, in base64."""

EPOCH = datetime.datetime(1970, 1, 1)
NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FIRST_DAY, _LAST_DAY = ((day - EPOCH.date()).days for day in (datetime.date.min, datetime.date.max))
_MILLIS_PER_DAY = 86_400_000


def plain(value: pa.Scalar) -> object:
    """A value of any type, human-readable; a time beyond the range of dates as the file's number."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar):
        return plain(value.value)
    if isinstance(value, pa.MapScalar):
        return [dict(zip(ENTRY, map(plain, entry.values()), strict=True)) for entry in value.values]
    if isinstance(value, pa.StructScalar):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, pa.ListScalar):
        return [plain(each) for each in value.values]
    if isinstance(value, pa.TimestampScalar):
        return _instant(value.value, value.type)
    if isinstance(value, pa.Date32Scalar):
        return _day(value.value)
    if isinstance(value, pa.Date64Scalar):
        days, rest = divmod(value.value, _MILLIS_PER_DAY)
        day = _day(days)
        return value.value if rest or isinstance(day, int) else day
    is_exact = not (pa.types.is_time(value.type) and value.type.unit == "ns" and value.value % NANOS["us"])
    if pa.types.is_duration(value.type) or not is_exact:
        return value.value
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()
    except (ValueError, OverflowError, NotImplementedError):
        # Times of day beyond a day as numbers, and any other value that Python cannot hold.
        return getattr(value, "value", f"a value of the type {value.type}")


def _instant(count: int, kind: pa.TimestampType) -> str | int:
    seconds, nanos = divmod(count * NANOS[kind.unit], 1_000_000_000)
    if in_range(seconds * 1_000_000) is None:
        return count
    fraction = f".{nanos:09d}".removesuffix("000") if nanos else ""
    return f"{EPOCH + datetime.timedelta(seconds=seconds)}{fraction}{'' if kind.tz is None else '+00:00'}"


def _day(days: int) -> str | int:
    return str(EPOCH.date() + datetime.timedelta(days=days)) if _FIRST_DAY <= days <= _LAST_DAY else days


def shown_as(value: pa.Scalar, wanted: pa.DataType) -> str:
    """A value as reasons quote it: a `Number` where a number stands for a time, in the file or in the job's type."""
    found = plain(value)
    if isinstance(found, bytes):
        return found.decode(errors="backslashreplace")
    is_count = isinstance(found, int | float | Decimal) and not isinstance(found, bool)
    is_time = any(pa.types.is_temporal(kind) for kind in (value.type, wanted))
    return Number(found) if is_count and is_time else str(found)


def row_text(batch: pa.RecordBatch, index: int) -> bytes:
    """A rejected row as JSON; repeated names are kept."""
    return _object(zip(batch.schema.names, (column[index] for column in batch.columns), strict=True)).encode()


def _object(fields: Iterable[tuple[str, pa.Scalar]]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {_text(value)}' for name, value in fields)}}}"


def _text(value: pa.Scalar) -> str:
    if value.is_valid and isinstance(value, pa.MapScalar):
        return f"[{', '.join(_object(zip(ENTRY, entry.values(), strict=True)) for entry in value.values)}]"
    if value.is_valid and isinstance(value, pa.StructScalar):
        return _object(value.items())
    if value.is_valid and isinstance(value, pa.ListScalar):
        return f"[{', '.join(map(_text, value.values))}]"
    return _json(plain(value))


def _json(value: object) -> str:
    return json.dumps(value, default=_as_json, ensure_ascii=False)


def _as_json(value: object) -> object:
    """Values without a JSON type: bytes in a form that is no text by chance, all others as text."""
    return {BINARY: base64.b64encode(value).decode()} if isinstance(value, bytes) else str(value)
