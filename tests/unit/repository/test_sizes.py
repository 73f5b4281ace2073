"""Bounds that keep a function and a class readable, and one meaning for each public class name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_LINES = 60
MOST_PARAMETERS = 6
MOST_METHODS = 15

COMMANDS = "ingest/cli/"
"""A command has a parameter for each of its options."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Path below the root and syntax tree of each module of the packages."""
    for package in ("timeline", "sinks", "ingest", "tideline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def too_large(name: str, tree: ast.Module) -> Iterator[str]:
    """Functions and classes of a module beyond the bounds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(each.arg not in ("self", "cls") for each in parameters)
            if lines > MOST_LINES:
                yield f"{name}:{node.lineno} {node.name}: {lines} lines"
            if count > MOST_PARAMETERS and not name.startswith(COMMANDS):
                yield f"{name}:{node.lineno} {node.name}: {count} parameters"
        elif isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            public = [each for each in methods if not each.startswith("_")]
            if len(public) > MOST_METHODS:
                yield f"{name}:{node.lineno} {node.name}: {len(public)} public methods"


def test_no_function_and_no_class_is_too_large() -> None:
    assert [found for name, tree in modules() for found in too_large(name, tree)] == []


def test_a_public_class_name_stands_for_one_thing() -> None:
    homes = defaultdict(list)
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n" + "    x = 1\n" * MOST_LINES,
        "def f(a, b, c, d, e, /, f, *, g): ...",
        "class C:\n" + "".join(f"    def m{number}(self): ...\n" for number in range(MOST_METHODS + 1)),
    ],
)
def test_what_is_too_large_is_found(source: str) -> None:
    assert len(list(too_large("m.py", ast.parse(source)))) == 1
