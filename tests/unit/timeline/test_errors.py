"""The error tree is the one that its module draws."""

from __future__ import annotations

import inspect
import re

from timeline import errors


def drawn() -> dict[str, str]:
    """Class and parent as the module's docstring draws them."""
    assert errors.__doc__ is not None
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ([│ ├└─]*)(\w+Error)\b", line)
        if found is not None:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = {
        name: found.__bases__[0].__name__
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, BaseException)
    }
    assert drawn() == classes
    assert len(classes) > 20


def test_every_error_says_what_it_tells_the_caller() -> None:
    for _, found in inspect.getmembers(errors, inspect.isclass):
        assert found.__doc__ and found.__doc__ != found.__bases__[0].__doc__
        assert len(found.__bases__) == 1
