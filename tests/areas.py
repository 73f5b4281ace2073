"""Tests of one area, in a minute or two: ``make test-sinks`` and so on.

An area holds the test files of the quick suites (unit, property, contract) that import one of its packages. Tests that
need servers, Spark or minutes are left to ``make test``.
"""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

AREAS = {
    "timeline": ("timeline",),
    "sinks": ("sinks",),
    "tikv": ("sinks.tikv",),
    "sources": ("ingest.sources",),
    "transform": ("ingest.transform", "ingest.stream"),
    "look": ("ingest.reports", "ingest.listeners.metrics"),
}
"""Packages by area."""

QUICK = ("tests/unit", "tests/property", "tests/contract")
TOO_WIDE = ("timeline.errors", "timeline.units", "timeline.failpoints")
"""Modules that tests of every area import."""


def files_of(area: str) -> list[str]:
    """The test files of an area."""
    files = (path for folder in QUICK for path in sorted((ROOT / folder).rglob("test_*.py")))
    return [str(path.relative_to(ROOT)) for path in files if _imports(path, AREAS[area])]


def _imports(path: Path, packages: tuple[str, ...]) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name not in TOO_WIDE and any(f"{name}.".startswith(f"{package}.") for package in packages):
                return True
    return False


def workers() -> str:
    """Number of workers that the tests run on."""
    return os.environ.get("WORKERS") or "3"


def side_by_side() -> list[str]:
    """Options of the runner for a run on all workers, as in the Makefile."""
    return ["-n", workers(), "--dist", "loadscope", "--no-loadscope-reorder"]


def main() -> int:
    """Run the tests of the area named on the command line."""
    if sys.argv[1:2] == [] or sys.argv[1] not in AREAS:
        sys.exit(f"name an area: {', '.join(AREAS)}")
    return int(pytest.main([*side_by_side(), "-m", "not real and not spark and not slow", *files_of(sys.argv[1])]))


if __name__ == "__main__":
    sys.exit(main())
