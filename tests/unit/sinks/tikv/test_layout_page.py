"""The bytes in docs/tikv-layout.md are the bytes that the sink writes."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from sinks.sql_types import parse_type
from sinks.tikv.dedup import KeptRow, Rule
from sinks.tikv.staged import Stager

PAGE = (Path(__file__).parents[4] / "docs" / "tikv-layout.md").read_text(encoding="utf-8")
TYPES = {
    "tenant": "string",
    "id": "bigint",
    "at": "timestamp",
    "ok": "boolean",
    "price": "decimal(10,2)",
    "note": "string",
    "tags": "array<string>",
}
SCHEMA = pa.schema([(name, parse_type(kind)) for name, kind in TYPES.items()])
ROW = {
    "tenant": "acme corp",
    "id": -2,
    "at": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
    "ok": True,
    "price": Decimal("19.90"),
    "note": None,
    "tags": ["ü"],
}


def shown(title: str) -> bytes:
    """The bytes in the block below a title: hexadecimal pairs at the beginning of each line."""
    block = PAGE.split(f"\n{title}:\n\n```\n", 1)[1].split("```", 1)[0]
    pairs = re.findall(r"^((?:[0-9a-f]{2} ?)+)(?:  |$)", block, flags=re.MULTILINE)
    assert len(pairs) == len(block.splitlines())
    return bytes.fromhex("".join(pairs))


def test_the_example_of_the_page_is_what_is_written() -> None:
    stager = Stager.of(SCHEMA, prefix=b"tevents_", key=["tenant", "id"], rule=Rule(KeptRow.LAST))
    staged = stager.stage(pa.RecordBatch.from_pylist([ROW], SCHEMA), "s", pa.array([0]))
    assert staged.rows.column("key").to_pylist() == [shown("Key")]
    assert staged.rows.column("value").to_pylist() == [shown("Value")]
    assert stager.restore(staged.rows).to_pylist() == [ROW]


def test_the_page_says_what_the_example_of_the_test_is() -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    assert columns in " ".join(PAGE.split())
