"""Why rows were rejected, counted: reasons without the values of single rows, and of those not more than a handful.

The quarantine keeps each row's own reason. A manifest keeps these: a whole shard of bad rows, each with
another value, must not make it grow.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

MOST_REASONS = 20
"""Different reasons that are kept for a shard of an epoch."""

OTHER = "other reasons"
"""What rows beyond `MOST_REASONS` are counted under."""

_VALUE_OR_PLACE = (
    # Column: value is not a type.
    (r"(?s)^([^:]{1,100}): .* is not (.{1,200})$", r"\1: not \2"),
    # A line that is no header of the schema's columns, which may be a record.
    (r"(?s)^(the file's header (?:is not UTF-8|has none of the schema's columns)).*$", r"\1"),
    # What a parser says of the text: where in it, and a part of it.
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
        import pyarrow.compute as pc  # not before there are any: commands that only look start sooner

        kinds = reasons
        for pattern, kind in _VALUE_OR_PLACE:
            kinds = pc.replace_substring_regex(kinds, pattern, kind)
        self.merge({entry["values"]: entry["counts"] for entry in pc.value_counts(kinds).to_pylist()})

    def merge(self, counts: Mapping[str, int]) -> None:
        """Count what has been counted elsewhere."""
        for reason, rows in counts.items():
            kept = reason if reason in self.counts or len(self.counts) < MOST_REASONS else OTHER
            self.counts[kept] = self.counts.get(kept, 0) + rows
