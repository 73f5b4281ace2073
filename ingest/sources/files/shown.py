"""Values of Parquet files as people see them and the quarantine keeps them.

Nothing here fails: a row that cannot be shown could not be rejected either.
"""

from __future__ import annotations

import pyarrow as pa

from ingest.sources.files.parquet_columns import ENTRY


def plain(value: pa.Scalar) -> object:
    """A value as Python's; as text where Python has none (nanoseconds, years beyond 9999, zones of nowhere)."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        return [dict(zip(ENTRY, map(plain, entry.values()), strict=True)) for entry in value.values]
    if isinstance(value, pa.StructScalar):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, pa.ListScalar):
        return [plain(each) for each in value.values]
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()
    except (ValueError, OverflowError, KeyError):
        return _as_text(value)


def _as_text(value: pa.Scalar) -> str:
    if isinstance(value, pa.TimestampScalar):
        value = pa.scalar(value.value, pa.timestamp(value.type.unit))
    count = f"{value.value} {getattr(value.type, 'unit', 'days')}" if hasattr(value, "value") else repr(value)
    try:
        text: str = value.cast(pa.string()).as_py()
    except pa.ArrowException:
        return count
    # Beyond what Arrow can say it says so, or something else.
    return text if text[:1].isdigit() and text[4:5] == "-" else count
