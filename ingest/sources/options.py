"""Keys of every ``source`` block of a job file, and the block of a job whose rows come from a streaming query."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict

UNLIMITED = sys.maxsize
"""A limit of an epoch that never binds."""


def _text(value: object) -> object:
    """Text of an option that YAML parsed as a number or boolean: Spark's options are text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


OptionText = Annotated[str, BeforeValidator(_text)]
"""A value that a library takes as text."""


class SourceBlock(BaseModel):
    """The ``source`` block of a job file; each source type extends it with its own keys.

    Attributes:
        type: name of the source type.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str

    @property
    def place(self) -> str:
        """Location of the source, for messages; without credentials."""
        return self.type

    @property
    def added_columns(self) -> pa.Schema:
        """Columns that the source itself fills, after those of the records."""
        return pa.schema([])

    @property
    def reading(self) -> dict[str, str]:
        """Job file keys that determine the values of a record, with their settings; only keys that are set."""
        return {}

    def unlimited(self) -> Self:
        """The same block without limits per epoch."""
        return self


class StreamOptions(SourceBlock):
    """The ``source`` block for ``type: stream``: the query defines everything else, see `ingest.stream`."""

    type: Literal["stream"] = "stream"
