"""Decodes JSON lines: whole blocks by Arrow, and the lines that Arrow refuses one by one.

::

    block ── every line is {...} ── Arrow, all lines at once ─────────────────→ columns
               │ no                  │ refused
               ▼                     ▼
             what does not look wrong ── Arrow, around the lines it refuses (`narrow`)
               │ what does                       │ refused
               ▼                                 ▼
             one by one: the definition of what is accepted (`values`), and the reasons

Arrow parses a stream of objects, not lines. With every line beginning with ``{`` and ending with ``}``
no object runs over a line's end (a raw line end inside a string is refused), and each line is at
least one object; so if rows and lines are equal in number, each line is exactly one. What Arrow takes
is what `values` takes, so it does not show which way a line went.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.arrow_json import Parsed, Refused, parse_block, usable_by_arrow
from ingest.sources.decode.lines import LineBounds, invalid_utf8, positions_of
from ingest.sources.decode.narrow import Taken, suspicious, take_what_parses
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.records import Records
from ingest.sources.decode.rows import decoded, no_rejects, rejects, unknown_field_error
from ingest.sources.decode.values import Rejection, parse_object, to_value


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
    timestamp_formats: Mapping[str, str | None]
    on_unknown_field: UnknownField
    lineage: bool

    def decode(self, records: Records) -> Decoded:
        """See RecordDecoder."""
        data = records.joined
        parse = self._parse if usable_by_arrow(self.schema, self.timestamp_formats) else None
        parsed: Parsed | None = None
        if parse is not None and data is not None and _is_plain(data, records.rows):
            with contextlib.suppress(Refused):
                parsed = parse(data, records.rows)
        if parsed is not None and not parsed.bad:
            offsets = records.offsets if self.lineage else None
            return decoded(records.rows, self.schema, parsed.columns, offsets, no_rejects())
        taken = Taken()
        if parsed is not None:
            taken.add(list(range(records.rows)), parsed)
        elif parse is not None:
            self._take(records.texts, parse, taken, is_utf8=data is not None and _is_utf8(data))
        return self._with_lines_alone(records, taken)

    def _parse(self, data: bytes, rows: int) -> Parsed:
        strict = self.on_unknown_field is not UnknownField.DROP
        return parse_block(data, rows, self.schema, self.timestamp_formats, strict=strict)

    def _take(self, texts: pa.Array, parse: Callable[[bytes, int], Parsed], taken: Taken, *, is_utf8: bool) -> None:
        """Take what Arrow parses, leaving out what looks wrong."""
        plain = pc.invert(suspicious(texts, self.schema))
        if not is_utf8:
            plain = pc.and_(plain, pa.array([_is_utf8(text) for text in texts.to_pylist()], pa.bool_()))
        take_what_parses(texts.filter(plain), list(positions_of(plain)), parse, taken)

    def _with_lines_alone(self, records: Records, taken: Taken) -> Decoded:
        """Decode the lines that were not taken one by one, and put all rows in the order of the lines."""
        left = pa.array(sorted(set(range(records.rows)).difference(taken.lines)), pa.int64())
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
                reasons.append(str(rejection))
        alone = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self.schema)]
        columns = [
            pa.concat_arrays([*(piece[at] for piece in taken.columns), alone[at]]) for at in range(len(self.schema))
        ]
        order = pa.array([*taken.lines, *accepted], pa.int64())
        if taken.lines and accepted:
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
        return [
            to_value(found.get(field.name), field.name, field.type, self.timestamp_formats.get(field.name))
            for field in self.schema
        ]

    def _decode_alone(self, line: bytes, shard: str, offset: int) -> list[object]:
        """`_decode_line`, for objects of any depth."""
        try:
            return self._decode_line(line, shard, offset)
        except RecursionError:
            raise Rejection("malformed JSON: nested too deeply") from None


def _is_plain(data: bytes, rows: int) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``, in valid UTF-8 without NUL."""
    bounds = LineBounds.of(data)
    if len(bounds.starts) != rows or not bounds.enclosed(b"{", b"}") or b"\0" in data:
        return False
    return _is_utf8(data)


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
            at = kind.get_field_index(name)
            if at < 0:
                return f"{path}{name}"
            found = _unknown(item, kind.field(at).type, f"{path}{name}.")
            if found is not None:
                return found
    elif pa.types.is_list(kind) and isinstance(value, list):
        return next((found for item in value if (found := _unknown(item, kind.value_type, path)) is not None), None)
    elif pa.types.is_map(kind) and isinstance(value, dict):
        items = value.values()
        return next((found for item in items if (found := _unknown(item, kind.item_type, path)) is not None), None)
    return None
