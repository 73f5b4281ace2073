"""Decodes lines of text by a regular expression: its named groups are the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Block, Decoded
from ingest.sources.files.convert import convert
from ingest.sources.files.lines import as_text, positions_of, split_lines
from ingest.sources.files.rows import all_rejected, select
from timeline.errors import ConfigError


def line_expression(pattern: str) -> str:
    """The job's pattern, anchored: it matches whole lines."""
    return rf"\A(?:{pattern})\z"


def check_pattern(pattern: str, schema: pa.Schema) -> None:
    """Check that Arrow's engine (RE2) takes the pattern and that it has a group for every column.

    Raises:
        ConfigError: it does not.
    """
    try:
        pc.extract_regex(pa.array([""]), pattern=line_expression(pattern))
    except pa.ArrowInvalid as failure:
        raise ConfigError(
            f"source.pattern: {failure}; RE2 is allowed, without look-around and back references"
        ) from failure
    groups = re.compile(pattern).groupindex
    missing = [name for name in schema.names if name not in groups]
    if missing:
        raise ConfigError(
            f"schema: no group of source.pattern is named {', '.join(missing)}; its groups are {', '.join(groups)}"
        )


@dataclass(frozen=True)
class TextDecoder:
    """Picklable; see `Decoder`. A line that the pattern does not match whole is rejected.

    Attributes:
        schema: columns, each a group of the pattern.
        pattern: the job's expression.
        nulls: group texts that mean null; a group that took no part in the match has the empty text.
        timestamp_formats: by column.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    pattern: str
    nulls: tuple[str, ...]
    timestamp_formats: Mapping[str, str | None]
    lineage: bool

    def decode(self, block: Block) -> Decoded:
        """See Decoder."""
        if block.data is None:
            return all_rejected(block, self.schema, str(block.detail["reason"]), lineage=self.lineage)
        assert isinstance(block.data, bytes)
        lines = split_lines(block.data, block.start)
        texts = as_text(lines.texts)
        bad = dict(texts.bad)
        groups = pc.extract_regex(texts.texts, pattern=line_expression(self.pattern))
        for index in positions_of(pc.is_null(groups)):
            bad.setdefault(index, "the line does not match source.pattern")
        nulls = pa.array(self.nulls, pa.string())
        columns = []
        for field in self.schema:
            found = pc.if_else(pc.is_valid(groups), groups.field(field.name), pa.scalar(None, pa.string()))
            found = pc.if_else(pc.is_in(found, value_set=nulls), pa.scalar(None, pa.string()), found)
            converted = convert(found, field.name, field.type, self.timestamp_formats.get(field.name))
            columns.append(converted.values)
            for index, reason in converted.bad.items():
                bad.setdefault(index, reason)
        return select(block, self.schema, columns, lines.offsets, lines.texts, bad, lineage=self.lineage)
