"""Decodes JSON lines: whole blocks by Arrow, and the lines that Arrow refuses one by one.

::

    block ── every line is {...} ── Arrow, all lines at once ─────────────────→ columns
               │ no                  │ refused
               ▼                     ▼
             lines of that form ── windows ── bad lines found ── Arrow, the rest at once
               │ others                        │
               ▼                               ▼
             one by one: the definition of what is accepted (`values`), and the reasons

Arrow parses a stream of objects, not lines. With every line beginning with ``{`` and ending with ``}``
no object runs over a line's end (a raw line end inside a string is refused), and each line is at
least one object; so if rows and lines are equal in number, each line is exactly one. A line is
accepted together with others exactly when it is accepted alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Block, Decoded
from ingest.sources.files.arrow_json import Refused, parse_block, usable_by_arrow
from ingest.sources.files.lines import invalid_utf8, split_lines
from ingest.sources.files.narrow import find_bad_lines
from ingest.sources.files.options import UnknownField
from ingest.sources.files.rows import all_rejected, decoded, no_rejects, rejects, unknown_field_error
from ingest.sources.files.values import Rejection, parse_object, to_value


@dataclass(frozen=True)
class JsonDecoder:
    """Picklable; see `Decoder`.

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

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            return all_rejected(block, self.schema, str(block.detail["reason"]), lineage=self.lineage)
        data = block.data
        assert isinstance(data, bytes)
        strict = self.on_unknown_field is not UnknownField.DROP
        by_arrow = usable_by_arrow(self.schema, self.timestamp_formats)
        if by_arrow and _is_plain(data, block.rows):
            try:
                parsed = parse_block(data, block.rows, self.schema, self.timestamp_formats, strict=strict)
                if not parsed.bad:
                    offsets = split_lines(data, block.start).offsets if self.lineage else None
                    return decoded(block, self.schema, parsed.columns, offsets, no_rejects())
            except Refused:
                pass
        lines = split_lines(data, block.start)
        raw: list[bytes] = lines.texts.to_pylist()
        good: list[int] = []
        pieces: list[list[pa.Array]] = []
        if by_arrow:
            plain = [index for index, line in enumerate(raw) if _is_plain(line, 1)]
            found = find_bad_lines(
                [raw[index] for index in plain],
                lambda some: parse_block(
                    b"\n".join(some), len(some), self.schema, self.timestamp_formats, strict=strict
                ),
            )
            good = [plain[index] for index in found.good]
            pieces = found.columns
        alone = sorted(set(range(len(raw))) - set(good)) if good else range(len(raw))
        return self._assemble(block, raw, lines.offsets, good, pieces, alone)

    def _assemble(
        self,
        block: Block,
        raw: Sequence[bytes],
        offsets: pa.Array,
        good: list[int],
        pieces: list[list[pa.Array]],
        alone: Sequence[int],
    ) -> Decoded:
        """Put Arrow's columns and the lines decoded alone together, in the order of the lines."""
        values: list[list[object]] = [[] for _ in self.schema]
        accepted: list[int] = []
        bad: list[int] = []
        reasons: list[str] = []
        for index in alone:
            try:
                row = self._decode_line(raw[index], block, offsets, index)
            except Rejection as rejection:
                bad.append(index)
                reasons.append(str(rejection))
                continue
            accepted.append(index)
            for column, value in zip(values, row, strict=True):
                column.append(value)
        if accepted:
            pieces = [
                *pieces,
                [pa.array(column, field.type) for column, field in zip(values, self.schema, strict=True)],
            ]
        columns = (
            [pa.concat_arrays([piece[at] for piece in pieces]) for at in range(len(self.schema))] if pieces else []
        )
        if not pieces:
            columns = [pa.nulls(0, field.type) for field in self.schema]
        order = pa.array([*good, *accepted], pa.int64())
        if good and accepted:
            by_line = pc.sort_indices(order)
            columns = [column.take(by_line) for column in columns]
            order = order.take(by_line)
        at = pa.array(bad, pa.int64())
        rejected = rejects(block.shard, offsets.take(at), reasons, pa.array([raw[index] for index in bad], pa.binary()))
        return decoded(block, self.schema, columns, offsets.take(order) if self.lineage else None, rejected)

    def _decode_line(self, line: bytes, block: Block, offsets: pa.Array, index: int) -> list[object]:
        try:
            text = line.decode()
        except UnicodeDecodeError as failure:
            raise Rejection(invalid_utf8(failure)) from None
        found = parse_object(text)
        if self.on_unknown_field is not UnknownField.DROP:
            unknown = _unknown(found, pa.struct(list(self.schema)))
            if unknown is not None and self.on_unknown_field is UnknownField.FAIL:
                raise unknown_field_error(block, offsets[index].as_py(), unknown)
            if unknown is not None:
                raise Rejection(f"{unknown}: the schema has no such field")
        return [
            to_value(found.get(field.name), field.name, field.type, self.timestamp_formats.get(field.name))
            for field in self.schema
        ]


def _is_plain(data: bytes, rows: int) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``, in valid UTF-8 without NUL."""
    end = len(data) - (2 if data.endswith(b"\r\n") else 1 if data.endswith(b"\n") else 0)
    if not data.startswith(b"{") or data[end - 1 : end] != b"}" or b"\0" in data:
        return False
    if data.count(b"}\n{") + data.count(b"}\r\n{") != rows - 1:
        return False
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
