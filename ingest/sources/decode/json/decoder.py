"""JSON records to rows: whole blocks first, then the undecoded lines one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.json.line_block import DecodedLines, JsonColumns, LineBlock
from ingest.sources.decode.json.line_by_line import LineByLineDecoder
from ingest.sources.decode.json.ways import can_decode, decode_block
from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.records import RawRecords, join_lines
from ingest.sources.decode.rows import decoded, no_rejects, rejects
from ingest.sources.decode.time_format import TimeFormat


@dataclass(frozen=True)
class JsonDecoder:
    """Picklable; see `RecordDecoder`.

    Every way accepts the same lines, except in fields that are no column: there Arrow skips the bare words Inf and
    -NaN, and values that are nested a thousand deep, which Python's parser refuses. A search for these values would
    take two percent of the time, and no writer of them is known.

    Attributes:
        schema: columns; a missing field is null, a string column keeps a value that is no string as its JSON text.
        timestamp_formats: by column.
        on_unknown_field: treatment of an object with a field that the schema does not have, at any depth.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    timestamp_formats: Mapping[str, TimeFormat | None]
    on_unknown_field: UnknownField
    lineage: bool

    def decode(self, records: RawRecords) -> Decoded:
        """See RecordDecoder."""
        found = self._decode_blocks(records)
        if len(found.lines) == records.rows:
            offsets = records.offsets if self.lineage else None
            return decoded(records.rows, self.schema, found.columns, offsets, no_rejects())
        return self._with_single_lines(records, found)

    def _decode_blocks(self, records: RawRecords) -> DecodedLines:
        """Decode the lines that begin and end like objects as one block."""
        columns = JsonColumns(self.schema, self.timestamp_formats, self.on_unknown_field is not UnknownField.DROP)
        if not can_decode(columns):
            return DecodedLines.none(self.schema)
        lines = records.joined
        if lines is not None and _are_plain(lines):
            return decode_block(LineBlock(lines.data, records.rows, columns))
        texts = records.texts
        is_plain = _plain_lines(texts, is_utf8=lines is not None and _is_utf8(lines.data))
        plain = np.flatnonzero(is_plain)
        data = join_lines(texts.filter(is_plain)) if len(plain) else b""
        return decode_block(LineBlock(data, len(plain), columns)).renumbered(plain)

    def _with_single_lines(self, records: RawRecords, found: DecodedLines) -> Decoded:
        """All rows in the order of the lines: the decoded lines, and the others decoded line by line."""
        left = np.setdiff1d(np.arange(records.rows), found.lines, assume_unique=True)
        single = LineByLineDecoder(self.schema, self.timestamp_formats, self.on_unknown_field).decode(records, left)
        both = DecodedLines.joined([found, single.accepted], self.schema)
        order, columns = pa.array(both.lines, pa.int64()), both.columns
        if len(found.lines) and len(single.accepted.lines):
            by_line = pc.sort_indices(order)
            order, columns = order.take(by_line), [column.take(by_line) for column in columns]
        at = pa.array(list(single.rejected), pa.int64())
        reasons = list(single.rejected.values())
        rejected = rejects(records.shard, records.offsets.take(at), reasons, records.texts.take(at))
        offsets = records.offsets.take(order) if self.lineage else None
        return decoded(len(order), self.schema, columns, offsets, rejected)


def _are_plain(lines: TextBlock) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``, none is blank, in valid UTF-8 without NUL."""
    return lines.bounds.enclosed(b"{", b"}") and b"\0" not in lines.data and _is_utf8(lines.data)


def _plain_lines(texts: pa.Array, *, is_utf8: bool) -> pa.Array:
    """A mask of the lines that begin with ``{`` and end with ``}``, in valid UTF-8 without NUL or a line end.

    Args:
        texts: the lines.
        is_utf8: whether all lines are known to be valid UTF-8.
    """
    plain = pc.and_(pc.starts_with(texts, pattern=b"{"), pc.ends_with(texts, pattern=b"}"))
    plain = pc.and_not(plain, pc.match_substring_regex(texts, pattern=r"[\x00\n]"))
    return plain if is_utf8 else pc.and_(plain, pa.array([_is_utf8(text) for text in texts.to_pylist()], pa.bool_()))


def _is_utf8(data: bytes) -> bool:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
    return True
