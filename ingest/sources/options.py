"""What every ``source`` block of a job file has, and the block of a job whose rows a streaming query brings."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict

UNLIMITED = sys.maxsize
"""A limit of an epoch that never binds."""


def _text(value: object) -> object:
    """Spark's options are text; YAML may have made a number or a truth value of one."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


OptionText = Annotated[str, BeforeValidator(_text)]
"""A value that a library takes as text."""


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

    @property
    def reading(self) -> dict[str, str]:
        """The keys of the job file that say what values a record has, as far as they are there, and what they say."""
        return {}

    def unlimited(self) -> Self:
        """The same without limits for one epoch."""
        return self


class StreamOptions(SourceBlock):
    """The ``source`` block for ``type: stream``: everything else is said by the query, see `ingest.stream`."""

    type: Literal["stream"] = "stream"
