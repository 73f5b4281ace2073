"""No module tests for the class of another package's sink, options, writer or store (docs/adr/0027)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

FOREIGN = {"ingest": ("sinks", "timeline.stores"), "sinks": ("timeline.stores",), "timeline": ("timeline.stores",)}
"""Packages whose classes a package's modules do not test for; modules of `timeline.stores` may test for their own."""

VALUES = {"DeletedFiles"}
"""Events that listeners distinguish: neither a sink nor a part of one."""


def asked_classes(source: str, foreign: tuple[str, ...]) -> Iterator[str]:
    """Classes of foreign packages that a module tests for, by isinstance, issubclass or a match pattern."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and _is_in(node.module or "", foreign)
        for alias in node.names
    }
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = [each for argument in node.args[1:] for each in ast.walk(argument)]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        yield from (each.id for each in asked if isinstance(each, ast.Name) and each.id in imported - VALUES)


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", FOREIGN)
def test_no_module_asks_for_a_class_of_a_sink_or_a_store(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): asked
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.is_relative_to(ROOT / "timeline" / "stores")
        and (asked := list(asked_classes(path.read_text(encoding="utf-8"), FOREIGN[package])))
    }
    assert found == {}


@pytest.mark.parametrize(
    "question",
    ["isinstance(a, DeltaOptions)", "issubclass(a, int | DeltaOptions)", "match a:\n  case DeltaOptions(): ..."],
)
def test_each_way_to_ask_is_seen(question: str) -> None:
    source = f"from sinks.delta.sink import DeltaOptions\n{question}\n"
    assert list(asked_classes(source, ("sinks",))) == ["DeltaOptions"]
    assert list(asked_classes(source, ("timeline.stores",))) == []
