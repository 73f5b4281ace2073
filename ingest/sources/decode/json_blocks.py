"""Blocks of JSON objects to columns: everything that Arrow can be brought to read.

::

    lines ── Arrow, all at once ────────────────────────────────────────→ columns
               │ refused, or the schema has maps
               ▼
             objects taken apart (`fields`), maps and texts taken out (`peel`) ── their values are lines ──→ columns
               │ the rest
               ▼
             Arrow, around the lines that it refuses (`narrow`) ─────────→ columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import Parsed, Refused, is_read_by_arrow, parse_block
from ingest.sources.decode.fields import Objects, Values
from ingest.sources.decode.lines import Positions, TextBlock, split_lines
from ingest.sources.decode.narrow import Taken, suspicious, take_what_parses
from ingest.sources.decode.native import can_name
from ingest.sources.decode.peel import (
    ENTRY_VALUE,
    Column,
    Peeled,
    is_object,
    map_column,
    peel,
    struct_column,
    text_column,
)
from ingest.sources.decode.records import join_lines
from ingest.sources.decode.time_format import TimeFormat

_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True)
class JsonBlocks:
    """Reads lines of JSON by Arrow; the lines that it does not take are left.

    Attributes:
        timestamp_formats: by column.
        strict: leave lines with fields that the schema does not have.
    """

    timestamp_formats: Mapping[str, TimeFormat | None]
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
        if len(data) > _MOST_BYTES or not can_name(schema.names):
            return Taken()
        return self._take_peeled(peel(data, rows, schema, strict=self.strict), schema)

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

    def _take_peeled(self, peeled: Peeled, schema: pa.Schema) -> Taken:
        objects = peeled.objects
        columns = {name: Column(values) for name, values in peeled.native.items()}
        for name, values in peeled.values.items():
            columns[name] = self._column(schema.field(name), values, len(objects))
        in_place = pa.schema([each for each in schema if not (each.name in peeled.native or is_object(each.type))])
        rest = self._take_rest(objects, in_place, {name: values.rows for name, values in peeled.values.items()})
        lines = rest.lines
        merged: list[pa.Array] = []
        for field in schema:
            at = in_place.get_field_index(field.name)
            left = rest.column(at, field.type) if at >= 0 else pa.nulls(len(lines), field.type)
            column = columns.get(field.name)
            if column is not None:
                out = column.values if len(lines) == len(objects) else column.values.take(pa.array(lines))
                left = out if left.null_count == len(left) else pc.coalesce(left, out)
            merged.append(left)
        bad = peeled.bad.union(*(column.bad for column in columns.values()))
        taken = Taken()
        taken.add(objects.lines[lines], merged, np.flatnonzero(np.isin(lines, list(bad))).tolist() if bad else ())
        return taken

    def _take_rest(self, objects: Objects, schema: pa.Schema, without: Mapping[str, Positions]) -> Taken:
        """What Arrow reads of columns in place, without the values that were taken out."""
        taken = Taken()
        if not len(objects) or not len(schema):
            taken.add(np.arange(len(objects)), [pa.nulls(0, field.type) for field in schema])
            return taken
        data = objects.as_lines(schema, without)
        at_once = self._take_at_once(data, len(objects), schema)
        if at_once is not None:
            return at_once
        # Of string columns everything that is no string was taken out.
        looked_at = pa.schema([field for field in schema if not pa.types.is_string(field.type)])
        plain = ~suspicious(objects, looked_at)
        texts = split_lines(TextBlock.of(data), 0).texts.filter(pa.array(plain))
        take_what_parses(texts, np.flatnonzero(plain), lambda some, rows: self._parse(some, rows, schema), taken)
        return taken

    def _column(self, field: pa.Field, values: Values, rows: int) -> Column:
        if pa.types.is_string(field.type):
            return text_column(values, rows)
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

    def _parse(self, data: bytes, rows: int, schema: pa.Schema) -> Parsed:
        return parse_block(data, rows, schema, self.timestamp_formats, strict=self.strict)


def _is_usable(kind: pa.DataType, timestamp_format: TimeFormat | None) -> bool:
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and _is_usable(kind.item_type, timestamp_format)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_usable(field.type, timestamp_format) for field in kind)
    return is_read_by_arrow(kind, timestamp_format)
