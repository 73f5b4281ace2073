"""A number before a plural noun is formatted by `timeline.units.count`, so that "1 rows" is never shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

NOUNS = (
    "attempts|bytes|callbacks|calls|columns|commits|creators|digits|epochs|fields|files|groups|instants|keys|lines|"
    "listings|locks|markers|objects|ones|others|partitions|points|problems|records|replacements|reports|rows|seconds|"
    "shards|sources|targets|tasks|timestamps|transactions|tries|uploads|values|versions|writers"
)
ADJECTIVES = "committed|completed|data|fixed|further|leaf|lost|more|open|older|other|pending|rejected|settled"
_PLURAL = re.compile(rf" (?:(?:{ADJECTIVES}) )?(?:{NOUNS})\b(?!/)")
_FORMATTED = re.compile(rf"%(?:d|i|,d) (?:(?:{ADJECTIVES}) )?(?:{NOUNS})\b(?!/)")

ALWAYS_SEVERAL = {
    ("ingest/config/checks.py", "counts[name]"),
    ("ingest/reports/report.py", "number"),
    ("ingest/reports/selection.py", "len(found)"),
    ("ingest/listeners/on_commit.py", "attempt + 1"),
    ("ingest/sources/files/parquet_columns.py", "len(places)"),
    ("ingest/sources/files/parquet_columns.py", "names.count(field.name)"),
    ("ingest/transform/analysis.py", "counts[field.name.lower()]"),
    ("ingest/transform/aside.py", "size"),
    ("sinks/tikv/binary_arrays.py", "total"),
    ("sinks/tikv/staged.py", "key_bytes[index]"),
    ("sinks/tikv/staged.py", "row_bytes[index]"),
}
"""Numbers that are always above 1: their message is about a duplicate, or about too many bytes."""


def uncounted(text: str) -> Iterator[tuple[int, str]]:
    """Line and expression of each number of a module that precedes a plural noun without `count`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FORMATTED.search(node.value):
            yield node.lineno, node.value
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            shown = ast.unparse(value.value)
            # The value of a constant, in capitals, is known.
            if _PLURAL.match(str(after.value)) and not re.fullmatch(r"[A-Z_]+", shown):
                yield value.lineno, shown


def test_numbers_beside_plural_nouns_are_written_by_the_one_function() -> None:
    found = [
        (name, line, shown)
        for folder in ("timeline", "sinks", "ingest", "tideline")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in [path.relative_to(ROOT).as_posix()]
        for line, shown in uncounted(path.read_text())
        if (name, shown) not in ALWAYS_SEVERAL
    ]
    assert not found, "write them with timeline.units.count"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('f"took {n} rows"', True),
        ('f"{len(a):,} settled instants"', True),
        ('log.info("deleted %d files of lost", n)', True),
        ('f"{n:,.0f} rows/s"', False),
        ("f\"took {count(n, 'row')}, {MOST} bytes at most\"", False),
    ],
)
def test_the_look_for_them_finds_them(code: str, is_found: bool) -> None:
    assert bool(list(uncounted(code))) is is_found
