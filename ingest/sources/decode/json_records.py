"""Decodes JSON lines: whole blocks by Arrow, and the lines that Arrow refuses one by one.

::

    block ── lines that are {...} ── Arrow, all at once, in parts, or around what it refuses (`json_blocks`) ── columns
               │ other lines          │ refused
               ▼                      ▼
             one by one: the definition of what is accepted (`values`), and the reasons

Arrow parses a stream of objects, not lines. With every line beginning with ``{`` and ending with ``}``
no object runs over a line's end (a raw line end inside a string is refused), and each line is at
least one object; so if rows and lines are equal in number, each line is exactly one. What Arrow takes
is what `values` takes, so it does not show which way a line went; but for fields that are no column: there
Arrow passes over the bare words Inf and -NaN, and over what is nested a thousand deep, which Python's
parser refuses. To look for them would take two percent of the time, and nobody is known to write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.as_written import with_texts
from ingest.sources.decode.json_blocks import JsonBlocks
from ingest.sources.decode.lines import Positions, TextBlock, invalid_utf8
from ingest.sources.decode.narrow import Taken
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.records import Records
from ingest.sources.decode.rows import decoded, no_rejects, rejects, unknown_field_error
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.values import Rejection, declared_type, parse_object, printable, to_value


@dataclass(frozen=True)
class JsonDecoder:
    """Picklable; see `RecordDecoder`.

    Attributes:
        schema: columns; a field that an object does not have is null, a string column keeps what is not a string
            as its JSON text.
        timestamp_formats: by column.
        on_unknown_field: what happens to an object with a field that the schema does not have, at any depth.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    timestamp_formats: Mapping[str, TimeFormat | None]
    on_unknown_field: UnknownField
    lineage: bool

    def decode(self, records: Records) -> Decoded:
        """See RecordDecoder."""
        taken = self._take(records)
        columns = [taken.column(at, field.type) for at, field in enumerate(self.schema)]
        if len(taken.lines) < records.rows:
            return self._with_lines_alone(records, taken.lines, columns)
        offsets = records.offsets if self.lineage else None
        return decoded(records.rows, self.schema, columns, offsets, no_rejects())

    def _take(self, records: Records) -> Taken:
        """What can be decoded as a block."""
        blocks = JsonBlocks(self.timestamp_formats, strict=self.on_unknown_field is not UnknownField.DROP)
        if not blocks.usable(self.schema):
            return Taken()
        lines = records.joined
        if lines is not None and _is_plain(lines):
            return blocks.take(lines.data, records.rows, self.schema)
        texts = records.texts
        plain = _plain_lines(texts, is_utf8=lines is not None and _is_utf8(lines.data))
        return blocks.take_of(texts, plain, self.schema)

    def _with_lines_alone(self, records: Records, taken: Positions, taken_columns: list[pa.Array]) -> Decoded:
        """Decode the lines that were not taken one by one, and put all rows in the order of the lines."""
        left = pa.array(np.setdiff1d(np.arange(records.rows), taken, assume_unique=True), pa.int64())
        rows: list[list[object]] = []
        accepted: list[int] = []
        bad: list[int] = []
        reasons: list[str] = []
        offsets = records.offsets.take(left).to_pylist()
        for index, offset, raw in zip(left.to_pylist(), offsets, records.texts.take(left).to_pylist(), strict=True):
            try:
                rows.append(self._decode_alone(raw, records.shard, offset))
                accepted.append(index)
            except Rejection as rejection:
                bad.append(index)
                reasons.append(printable(str(rejection)))
        alone = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self.schema)]
        columns = [pa.concat_arrays(both) for both in zip(taken_columns, alone, strict=True)]
        order = pa.array(np.concatenate([taken, np.array(accepted, np.intp)]), pa.int64())
        if len(taken) and accepted:
            by_line = pc.sort_indices(order)
            columns = [column.take(by_line) for column in columns]
            order = order.take(by_line)
        at = pa.array(bad, pa.int64())
        rejected = rejects(records.shard, records.offsets.take(at), reasons, records.texts.take(at))
        offsets = records.offsets.take(order) if self.lineage else None
        return decoded(len(order), self.schema, columns, offsets, rejected)

    def _decode_line(self, line: bytes, shard: str, offset: int) -> list[object]:
        try:
            text = line.decode()
        except UnicodeDecodeError as failure:
            raise Rejection(invalid_utf8(failure)) from None
        found = parse_object(text)
        if self.on_unknown_field is not UnknownField.DROP:
            unknown = _unknown(found, pa.struct(list(self.schema)))
            if unknown is not None and self.on_unknown_field is UnknownField.FAIL:
                raise unknown_field_error(shard, offset, unknown)
            if unknown is not None:
                raise Rejection(f"{unknown}: the schema has no such field")
        whole = with_texts(text, found, pa.struct(list(self.schema)))
        values = cast(dict[str, object], whole)
        return [
            to_value(values.get(field.name), field.name, field.type, self.timestamp_formats.get(field.name))
            for field in self.schema
        ]

    def _decode_alone(self, line: bytes, shard: str, offset: int) -> list[object]:
        """`_decode_line`, for objects of any depth."""
        try:
            return self._decode_line(line, shard, offset)
        except RecursionError:
            raise Rejection("malformed JSON: nested too deeply") from None


def _is_plain(lines: TextBlock) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``, none is blank, in valid UTF-8 without NUL."""
    return lines.bounds.enclosed(b"{", b"}") and b"\0" not in lines.data and _is_utf8(lines.data)


def _plain_lines(texts: pa.Array, *, is_utf8: bool) -> pa.Array:
    """Which lines begin with ``{`` and end with ``}``, in valid UTF-8 without NUL or a line end."""
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


def _unknown(value: object, kind: pa.DataType, path: str = "") -> str | None:
    """The first field that a struct type does not have, at any depth."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for name, item in value.items():
            declared = declared_type(kind, name)
            if declared is None:
                return printable(f"{path}{name}")
            found = _unknown(item, declared, f"{path}{name}.")
            if found is not None:
                return found
    elif pa.types.is_list(kind) and isinstance(value, list):
        return next((found for item in value if (found := _unknown(item, kind.value_type, path)) is not None), None)
    elif pa.types.is_map(kind) and isinstance(value, dict):
        items = value.values()
        return next((found for item in items if (found := _unknown(item, kind.item_type, path)) is not None), None)
    return None
