"""How a lake target lays its files out: by columns, and by the date or hour of a timestamp."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

import pyarrow as pa


class Transform(enum.Enum):
    """How a partition value is made of its source column."""

    IDENTITY = "identity"
    DATE = "date"
    HOUR = "hour"


@dataclass(frozen=True)
class PartitionField:
    """One partition column.

    ``date(ts)`` adds a column ``ts_date`` (date), ``hour(ts)`` a column ``ts_hour`` (string
    ``yyyy-MM-dd-HH``, UTC); both are written into the table and its files like any other column.
    """

    source: str
    transform: Transform = Transform.IDENTITY

    @property
    def column(self) -> str:
        """Name of the partition column in the table."""
        return self.source if self.transform is Transform.IDENTITY else f"{self.source}_{self.transform.value}"

    @property
    def derived_type(self) -> pa.DataType | None:
        """Type of the added column; None where the source column itself is used."""
        match self.transform:
            case Transform.IDENTITY:
                return None
            case Transform.DATE:
                return pa.date32()
            case Transform.HOUR:
                return pa.string()


def parse_partition(text: str) -> PartitionField:
    """A partition field from a job file: ``col``, ``date(col)`` or ``hour(col)``.

    Raises:
        ValueError: the text is none of these.
    """
    called = re.fullmatch(r"\s*(\w+)\s*\(\s*(\S+)\s*\)\s*", text)
    if called is None:
        if not text.strip() or "(" in text or ")" in text:
            raise ValueError(f"{text!r}: allowed are a column, date(column), hour(column)")
        return PartitionField(text.strip())
    name, column = called.groups()
    if name not in ("date", "hour"):
        raise ValueError(f"{text!r}: allowed are a column, date(column), hour(column)")
    return PartitionField(column, Transform(name))
