"""Blocks of JSON lines, the columns to decode, and decoded lines: the values that all ways share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from ingest.sources.decode.json.object_fields import ParsedObjects
from ingest.sources.decode.lines import Positions
from ingest.sources.decode.time_format import TimeFormat

ENTRY_VALUE = "value"
"""Name of the column of a map's values, where each entry is a line."""


@dataclass(frozen=True)
class JsonColumns:
    """Columns to decode.

    Attributes:
        schema: names and types.
        timestamp_formats: by column.
        strict: leave lines undecoded that have fields outside the schema.
    """

    schema: pa.Schema
    timestamp_formats: Mapping[str, TimeFormat | None]
    strict: bool

    def format_of(self, name: str) -> TimeFormat | None:
        """The timestamp format of a column."""
        return self.timestamp_formats.get(name)

    def select(self, schema: pa.Schema) -> JsonColumns:
        """A subset of the columns."""
        return JsonColumns(schema, self.timestamp_formats, self.strict)

    def of_entries(self, field: pa.Field) -> JsonColumns:
        """The one column of lines that are entries of a map column: `ENTRY_VALUE`."""
        formats = {ENTRY_VALUE: self.format_of(field.name)}
        return JsonColumns(pa.schema([(ENTRY_VALUE, field.type.item_type)]), formats, self.strict)

    def of_struct(self, field: pa.Field) -> JsonColumns:
        """The columns of lines that are values of a struct column."""
        formats = dict.fromkeys((child.name for child in field.type), self.format_of(field.name))
        return JsonColumns(pa.schema(list(field.type)), formats, self.strict)


@dataclass(frozen=True)
class LineBlock:
    """Lines to decode together.

    Attributes:
        data: lines, none blank, each beginning with ``{`` and ending with ``}``, in UTF-8 without NUL.
        rows: number of lines.
        columns: the columns to decode.
        objects: the parsed objects that the lines were encoded from, one a line; None for lines not parsed yet.
    """

    data: bytes
    rows: int
    columns: JsonColumns
    objects: ParsedObjects | None = None


@dataclass(frozen=True)
class DecodedLines:
    """Decoded lines of a block.

    Attributes:
        lines: the lines' indices in the block; ascending, except after `joined`.
        columns: the columns of the schema, one value a line.
    """

    lines: Positions
    columns: Sequence[pa.Array]

    @classmethod
    def none(cls, schema: pa.Schema) -> Self:
        """The result without a line."""
        return cls(np.empty(0, np.intp), [pa.nulls(0, field.type) for field in schema])

    @classmethod
    def joined(cls, pieces: Sequence[DecodedLines], schema: pa.Schema) -> Self:
        """Pieces of one block, concatenated in the given order."""
        if not pieces:
            return cls.none(schema)
        if len(pieces) == 1:
            return cls(pieces[0].lines, pieces[0].columns)
        columns = [pa.concat_arrays(both) for both in zip(*(piece.columns for piece in pieces), strict=True)]
        return cls(np.concatenate([piece.lines for piece in pieces]), columns)

    def without(self, bad: Collection[int]) -> DecodedLines:
        """All lines but those at these positions of `lines`."""
        if not bad:
            return self
        keep = np.ones(len(self.lines), np.bool_)
        keep[list(bad)] = False
        return DecodedLines(self.lines[keep], [column.filter(pa.array(keep)) for column in self.columns])

    def renumbered(self, lines: Positions) -> DecodedLines:
        """The same lines as part of a larger block.

        Args:
            lines: for each line of the smaller block, its index in the larger one.
        """
        return DecodedLines(lines[self.lines], self.columns)
