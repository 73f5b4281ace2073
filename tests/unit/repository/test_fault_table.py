"""Every test that the pages on guarantees and faults name as a proof exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("docs/faults.md", "docs/guarantees.md")


def functions(path: Path) -> set[str]:
    """Names of the test functions of a module, those of its classes included."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", (ROOT / page).read_text())
    assert len(named) > 5
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and name not in functions(ROOT / path))
    ]
    assert not missing


def test_every_row_of_the_fault_table_names_a_test() -> None:
    lines = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if line.startswith("| ")]
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 4, line
        assert cells[0] == "fault" or "::test_" in cells[3] or cells[3] == "the same", line
