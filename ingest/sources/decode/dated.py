"""Decodes records whose times have no year: the year follows from the records' write times.

A record belongs to the twelve months that end with the day after its write time (in UTC). The extra day is for zones,
whose date is at most one ahead of UTC's, and for clock skew. The same records with the same write times give the same
rows, whenever they are decoded.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.records import RawRecords, RecordDecoder, TextRecords

_DAY_MS = 86_400_000
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class DatedDecoder:
    """Picklable; see `RecordDecoder`. Records with a write time each need a decoder that gives offsets.

    Attributes:
        until: makes the decoder of records in the twelve months that end with a day; None: no year is known.
    """

    until: Callable[[datetime.date | None], RecordDecoder]

    def decode(self, records: RawRecords) -> Decoded:
        """See RecordDecoder."""
        times = records.times_ms
        if not isinstance(times, pa.Array):
            return self.until(None if times is None else last_day(times // _DAY_MS)).decode(records)
        days = pc.cast(pc.floor(pc.divide(pc.cast(times, pa.float64(), safe=False), float(_DAY_MS))), pa.int64())
        groups = pc.unique(days).to_pylist()
        if len(groups) <= 1:
            return self._of(groups[0] if groups else None).decode(records)
        return _in_order([self._of(day).decode(_only(records, days, day)) for day in groups])

    def _of(self, day: int | None) -> RecordDecoder:
        return self.until(None if day is None else last_day(day))


def last_day(written_on: int) -> datetime.date | None:
    """The last day of the twelve months that records belong to.

    Args:
        written_on: the day of their write times, counted from 1970-01-01.

    Returns:
        The day; None outside the years 1 to 9999.
    """
    try:
        return _EPOCH + datetime.timedelta(days=written_on + 1)
    except OverflowError:
        return None


def _only(records: RawRecords, days: pa.Array, day: int | None) -> TextRecords:
    """The records that were written on a day; for None those without a write time."""
    chosen = pc.is_null(days) if day is None else pc.fill_null(pc.equal(days, pa.scalar(day)), False)
    return TextRecords(records.shard, records.texts.filter(chosen), records.offsets.filter(chosen), records.header)


def _in_order(pieces: Sequence[Decoded]) -> Decoded:
    """Pieces concatenated, in the order of the records."""
    accepted = pa.concat_batches([piece.accepted for piece in pieces])
    rejected = pa.concat_batches([piece.rejected for piece in pieces])
    offsets = pa.concat_arrays([piece.offsets for piece in pieces])
    order = pc.sort_indices(offsets)
    by_offset = pc.sort_indices(rejected.column("offset"))
    return Decoded(accepted.take(order), offsets.take(order), rejected.take(by_offset))
