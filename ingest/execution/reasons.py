"""Counts of rejected rows by reason: reasons without values of single rows, at most `MOST_REASONS` of them.

The quarantine keeps each row's own reason. A manifest keeps these counts: a whole shard of bad rows, each
with another value, must not make it grow.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

MOST_REASONS = 20
"""Most distinct reasons for a shard of an epoch."""

OTHER = "other reasons"
"""The reason under which rows beyond `MOST_REASONS` are counted."""

_VALUE_OR_PLACE = (
    # Column: value is not a type.
    (r"(?s)^([^:]{1,100}): .* is not (.{1,200})$", r"\1: not \2"),
    # A line without the header of the schema's columns may be a record.
    (r"(?s)^(the file's header (?:is not UTF-8|has none of the schema's columns)).*$", r"\1"),
    # A parser's message: the position in the text, and a part of the text.
    (r"(?s)^(malformed [A-Za-z]+|not UTF-8|text behind a closing quote).*$", r"\1"),
)


class Reasons:
    """How many rows were rejected, by reason."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, reasons: pa.Array) -> None:
        """Count rows.

        Args:
            reasons: string, the reason of each row.
        """
        import pyarrow.compute as pc  # imported late: read-only commands start sooner

        kinds = reasons
        for pattern, kind in _VALUE_OR_PLACE:
            kinds = pc.replace_substring_regex(kinds, pattern, kind)
        self.merge({entry["values"]: entry["counts"] for entry in pc.value_counts(kinds).to_pylist()})

    def merge(self, counts: Mapping[str, int]) -> None:
        """Add counts from elsewhere."""
        for reason, rows in counts.items():
            kept = reason if reason in self.counts or len(self.counts) < MOST_REASONS else OTHER
            self.counts[kept] = self.counts.get(kept, 0) + rows
