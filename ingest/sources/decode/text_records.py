"""Decodes records of text by a regular expression: its named groups are the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.convert import convert
from ingest.sources.decode.lines import as_text, positions_of
from ingest.sources.decode.records import RawRecords
from ingest.sources.decode.rows import select
from ingest.sources.decode.time_format import TimeFormat
from timeline.errors import ConfigError


def line_expression(pattern: str) -> str:
    """The job's pattern, anchored to match whole lines."""
    return rf"\A(?:{pattern})\z"


def refused_by_re2(pattern: str) -> str | None:
    """Why Arrow's engine (RE2) refuses a pattern that Python's accepts; None where RE2 accepts the pattern."""
    try:
        pc.extract_regex(pa.array([""]), pattern=line_expression(pattern))
    except pa.ArrowInvalid as failure:
        return (
            f"{failure}; RE2 is allowed: no look-around, no back references, repetitions up to 1000, "
            "also where they are nested"
        )
    return None


def check_pattern(pattern: str, schema: pa.Schema) -> None:
    """Check that Arrow's engine (RE2) accepts the pattern and that the pattern has a group for every column.

    Raises:
        ConfigError: RE2 refuses the pattern, or a column has no group.
    """
    refused = refused_by_re2(pattern)
    if refused is not None:
        raise ConfigError(f"source.pattern: {refused}")
    groups = re.compile(pattern).groupindex
    missing = [name for name in schema.names if name not in groups]
    if missing:
        raise ConfigError(
            f"schema: no group of source.pattern is named {', '.join(missing)}; its groups are {', '.join(groups)}"
        )


@dataclass(frozen=True)
class TextDecoder:
    """Picklable; see `RecordDecoder`. A record that the pattern does not match whole is rejected.

    Attributes:
        schema: columns, each a group of the pattern.
        pattern: the job's expression.
        nulls: group texts that mean null. A group that took no part in the match is always null.
        timestamp_formats: by column.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    pattern: str
    nulls: tuple[str, ...]
    timestamp_formats: Mapping[str, TimeFormat | None]
    lineage: bool

    def decode(self, records: RawRecords) -> Decoded:
        """See RecordDecoder."""
        texts = as_text(records.texts)
        bad = dict(texts.bad)
        expression = line_expression(self.pattern)
        groups = pc.extract_regex(texts.texts, pattern=expression)
        for index in positions_of(pc.is_null(groups)):
            bad.setdefault(index, "the line does not match source.pattern")
        nulls = pa.array(self.nulls, pa.string())
        columns = []
        for field in self.schema:
            found = pc.if_else(pc.is_valid(groups), groups.field(field.name), pa.scalar(None, pa.string()))
            if "" not in self.nulls:
                found = _without_absent(found, field.name, texts.texts, expression)
            found = pc.if_else(pc.is_in(found, value_set=nulls), pa.scalar(None, pa.string()), found)
            converted = convert(found, field.name, field.type, self.timestamp_formats.get(field.name))
            columns.append(converted.values)
            for index, reason in converted.bad.items():
                bad.setdefault(index, reason)
        return select(records, self.schema, columns, bad, lineage=self.lineage)


def _without_absent(found: pa.Array, group: str, texts: pa.Array, expression: str) -> pa.Array:
    """A group's texts with null where the group took no part in the match.

    Texts do not distinguish an absent group from an empty match; spans do, and are computed for empty texts only.
    """
    # By lengths: a comparison with a text loads pandas, which takes a new worker 0.4 s.
    lengths = pc.binary_length(found)
    if pc.min(lengths).as_py() != 0:
        return found
    empty = pc.indices_nonzero(pc.fill_null(pc.invert(pc.cast(lengths, pa.bool_())), False))
    spans = pc.extract_regex_span(texts.take(empty), pattern=expression).field(group)
    absent = empty.filter(pc.is_null(spans))
    if not len(absent):
        return found
    is_absent = pc.is_in(pa.arange(0, len(found)), value_set=absent.cast(pa.int64()))
    return pc.if_else(is_absent, pa.scalar(None, pa.string()), found)
