"""Checks of exactly-once delivery raise errors instead of asserting: ``python -O`` removes asserts."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ingest.execution.spark.runner import in_order
from ingest.execution.task import error_of
from timeline.errors import InvariantError, RowCountError

ROOT = Path(__file__).parents[4]


def test_reports_that_are_missing_doubled_or_of_nobody_end_the_epoch() -> None:
    whole = [(0, b"a"), (1, b"b"), (-2, b"c"), (-1, b"d")]
    assert in_order(whole, 2, 2) == [b"a", b"b", b"c", b"d"]
    for wrong in (whole[:-1], [*whole, (0, b"again")], [*whole[:-1], (7, b"d")]):
        with pytest.raises(RowCountError, match="one of each of"):
            in_order(wrong, 2, 2)


def test_failure_of_an_unknown_class_is_no_success() -> None:
    for name in ("NoSuchError", "annotations"):
        with pytest.raises(InvariantError, match="does not know"):
            error_of((name, "something"))


def test_rows_that_come_to_another_bucket_are_refused_without_asserts_too() -> None:
    code = """
        import ingest.execution.spark.executors as executors
        from ingest.execution.shuffle import ShuffleConfig
        from sinks.base import TaskAttempt
        from timeline.errors import InvariantError

        executors.this_attempt = lambda: TaskAttempt(1, 0, 0)
        try:
            list(executors.receive_in_task([(0, b"")], outputs=None, epoch=7, shuffle=ShuffleConfig(2)))
        except InvariantError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-O", "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "rows for bucket 0 came to bucket 1" in done.stdout, done.stderr


def test_asserts_only_tell_types() -> None:
    """Asserts only narrow types: a check of a condition that can fail raises an error."""
    said = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("timeline", "sinks", "ingest", "tideline")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and not _tells_a_type(node.test)
    ]
    assert not said


def _tells_a_type(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(values=values):
            return all(map(_tells_a_type, values))
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
            return True
    return False
