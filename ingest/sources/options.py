"""What every ``source`` block of a job file has, and the block of a job whose rows a streaming query brings."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict


class SourceBlock(BaseModel):
    """The ``source`` block of a job file; each source type extends it with its own keys.

    Attributes:
        type: which source it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str

    @property
    def place(self) -> str:
        """Where records come from, for messages; without credentials."""
        return self.type

    @property
    def added_columns(self) -> pa.Schema:
        """Columns that the source itself fills, behind those of the records."""
        return pa.schema([])


class StreamOptions(SourceBlock):
    """The ``source`` block for ``type: stream``: everything else is said by the query, see `ingest.stream`."""

    type: Literal["stream"] = "stream"
