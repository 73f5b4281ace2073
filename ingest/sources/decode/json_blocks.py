"""Blocks of JSON objects to columns: everything that Arrow can be brought to read.

::

    lines ── Arrow, all at once ────────────────────────────────────────→ columns
               │ refused, or the schema has maps
               ▼
             maps and texts taken out (`peel`) ── lines again, the same way ──→ columns
               │ the rest
               ▼
             Arrow, around the lines that it refuses (`narrow`) ─────────→ columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import Parsed, Refused, is_read_by_arrow, parse_block
from ingest.sources.decode.lines import TextBlock, split_lines
from ingest.sources.decode.narrow import Taken, suspicious, take_what_parses
from ingest.sources.decode.peel import (
    ENTRY_VALUE,
    Column,
    Peeled,
    Values,
    is_object,
    map_column,
    peel,
    struct_column,
    text_column,
)
from ingest.sources.decode.records import join_lines

_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True)
class JsonBlocks:
    """Reads lines of JSON by Arrow; the lines that it does not take are left.

    Attributes:
        timestamp_formats: by column.
        strict: leave lines with fields that the schema does not have.
    """

    timestamp_formats: Mapping[str, str | None]
    strict: bool

    def usable(self, schema: pa.Schema) -> bool:
        """Whether Arrow can be brought to read this schema."""
        formats = self.timestamp_formats
        return len(schema) > 0 and all(_is_usable(field.type, formats.get(field.name)) for field in schema)

    def take(self, data: bytes, rows: int, schema: pa.Schema) -> Taken:
        """What Arrow reads of these lines.

        Args:
            data: lines without blank ones, each beginning with ``{`` and ending with ``}``, in UTF-8 without NUL.
            rows: how many they are.
            schema: a usable one.
        """
        if all(is_read_by_arrow(field.type, self.timestamp_formats.get(field.name)) for field in schema):
            taken = self._take_at_once(data, rows, schema)
            if taken is not None:
                return taken
        if len(data) > _MOST_BYTES:
            return Taken()
        peeled = peel(data, schema)
        if peeled.doubtful.any():
            return self.take_of(split_lines(TextBlock.of(data), 0).texts, pa.array(~peeled.doubtful), schema)
        return self._take_peeled(data, rows, schema, peeled)

    def take_of(self, texts: pa.Array, which: pa.Array, schema: pa.Schema) -> Taken:
        """What Arrow reads of some of these lines.

        Args:
            texts: binary, one value a line.
            which: for each, whether it is asked for; then it is as for `take`.
            schema: a usable one.
        """
        texts, lines = texts.filter(which), np.flatnonzero(which)
        taken = Taken()
        if len(texts):
            found = self.take(join_lines(texts), len(texts), schema)
            taken.add(lines[found.lines], [found.column(at, field.type) for at, field in enumerate(schema)])
        return taken

    def _take_peeled(self, data: bytes, rows: int, schema: pa.Schema, peeled: Peeled) -> Taken:
        columns = {name: self._column(schema.field(name), values, rows) for name, values in peeled.values.items()}
        rest_schema = pa.schema([(field.name, pa.null() if is_object(field.type) else field.type) for field in schema])
        rest: Taken | None = None
        if peeled.rest is not None or rest_schema != schema:
            rest = self._take_at_once(peeled.rest or data, rows, rest_schema)
        if rest is None:
            # Of string columns everything that is no string was taken out.
            looked_at = pa.schema([field for field in schema if not pa.types.is_string(field.type)])
            plain = ~suspicious(peeled.structure, looked_at)
            rest = self._take_around(peeled.rest or data, plain, rest_schema)
        lines = rest.lines
        merged: list[pa.Array] = []
        for at, (field, kind) in enumerate(zip(schema, rest_schema.types, strict=True)):
            left = rest.column(at, kind)
            column = columns.get(field.name)
            if column is not None:
                out = column.values if len(lines) == rows else column.values.take(pa.array(lines))
                left = out if left.null_count == len(left) else pc.coalesce(left, out)
            merged.append(left if left.type == field.type else pa.nulls(len(lines), field.type))
        bad = [line for column in columns.values() for line in column.bad]
        taken = Taken()
        taken.add(lines, merged, np.flatnonzero(np.isin(lines, bad)).tolist() if bad else ())
        return taken

    def _column(self, field: pa.Field, values: Values, rows: int) -> Column:
        if pa.types.is_string(field.type):
            return text_column(values, rows, JsonBlocks({}, strict=False).take)
        timestamp_format = self.timestamp_formats.get(field.name)
        if pa.types.is_map(field.type):
            return map_column(values, rows, field.type, JsonBlocks({ENTRY_VALUE: timestamp_format}, self.strict).take)
        inner = JsonBlocks({child.name: timestamp_format for child in field.type}, self.strict)
        return struct_column(values, rows, field.type, inner.take)

    def _take_at_once(self, data: bytes, rows: int, schema: pa.Schema) -> Taken | None:
        """All lines, but those with a value that does not fit after all; None where Arrow refuses."""
        try:
            parsed = self._parse(data, rows, schema)
        except Refused:
            return None
        taken = Taken()
        taken.add(np.arange(rows), parsed.columns, parsed.bad)
        return taken

    def _take_around(self, data: bytes, plain: npt.NDArray[np.bool_], schema: pa.Schema) -> Taken:
        """What Arrow reads of lines that look right, around those that it refuses."""
        taken = Taken()
        texts = split_lines(TextBlock.of(data), 0).texts.filter(pa.array(plain))
        take_what_parses(texts, np.flatnonzero(plain), lambda some, rows: self._parse(some, rows, schema), taken)
        return taken

    def _parse(self, data: bytes, rows: int, schema: pa.Schema) -> Parsed:
        return parse_block(data, rows, schema, self.timestamp_formats, strict=self.strict)


def _is_usable(kind: pa.DataType, timestamp_format: str | None) -> bool:
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and _is_usable(kind.item_type, timestamp_format)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_usable(field.type, timestamp_format) for field in kind)
    return is_read_by_arrow(kind, timestamp_format)
