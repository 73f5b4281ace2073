"""Decodes raw records: one column with their bytes or their text."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.lines import as_text
from ingest.sources.decode.records import RawRecords
from ingest.sources.decode.rows import select
from timeline.errors import ConfigError

RAW_SCHEMA = pa.schema([pa.field("value", pa.binary())])
"""The schema where the job file declares none."""


def check_raw(schema: pa.Schema) -> None:
    """Check that a schema can hold raw records.

    Raises:
        ConfigError: the schema is not one column of type string or binary.
    """
    if len(schema) != 1 or not (pa.types.is_string(schema[0].type) or pa.types.is_binary(schema[0].type)):
        raise ConfigError(
            f"schema: format raw has one column of type binary or string; declared are {', '.join(schema.names)}"
        )


@dataclass(frozen=True)
class RawDecoder:
    """Picklable; see `RecordDecoder`. A string column rejects records that are not UTF-8.

    Attributes:
        schema: the one column.
        lineage: whether offsets are wanted.
    """

    schema: pa.Schema
    lineage: bool

    def decode(self, records: RawRecords) -> Decoded:
        """See RecordDecoder."""
        if pa.types.is_binary(self.schema[0].type):
            values, bad = pc.cast(records.texts, pa.binary()), dict[int, str]()
        else:
            texts = as_text(records.texts)
            values, bad = texts.texts, texts.bad
        return select(records, self.schema, [values], bad, lineage=self.lineage)
