"""Hints for unknown keys of a job file: a key of a similar name, or the block in which a key of this name belongs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from pydantic import BaseModel

from ingest.config.job_file import KeyPath, dotted

_CERTAIN = 0.85
"""From this similarity on (`difflib`, 0 to 1) a name is a typo, even if another block has the key."""


def keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Keys that a file may have at a path below a model; empty if there is no block."""
    found: type[BaseModel] | None = model
    for key in path:
        if isinstance(key, int):
            continue
        field = None if found is None else _fields(found).get(key)
        found = None if field is None else _block(field)
    return [] if found is None else list(_fields(found))


def places(model: type[BaseModel], prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every key below a model, outer ones first."""
    inner: list[tuple[type[BaseModel], KeyPath]] = []
    for name, annotation in _fields(model).items():
        yield (*prefix, name)
        block = _block(annotation)
        if block is not None:
            inner.append((block, (*prefix, name)))
    for block, path in inner:
        yield from places(block, path)


def unknown_key(name: str, here: list[str], elsewhere: Iterable[KeyPath]) -> str:
    """The message for a key that a block does not have.

    Args:
        name: the key as it is written.
        here: keys that the block has.
        elsewhere: paths of the keys that other blocks of the job have.
    """
    allowed = f"allowed are {', '.join(here)}" if here else "no key is allowed"
    homes = list(dict.fromkeys(dotted(path) for path in elsewhere if path[-1] == name))
    if homes and not difflib.get_close_matches(name, here, n=1, cutoff=_CERTAIN):
        return f"unknown key here; its place is {' or '.join(homes)}; here {allowed}"
    return f"unknown key; {did_you_mean(name, here)}{allowed}"


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """A question with the nearest of the allowed names; empty if none is near."""
    near = difflib.get_close_matches(found, list(allowed), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _fields(model: type[BaseModel]) -> Mapping[str, object]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _block(annotation: object) -> type[BaseModel] | None:
    """The block that a field holds, also of an optional field or of a list; None if it holds no block."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((block for each in get_args(annotation) if (block := _block(each)) is not None), None)
