"""What may be shown of texts that hold secrets, or that others made of what they were sent.

Tideline's own errors are shown whole: they are written to hold no row and no secret. Of any other error the class and
the place in the code are shown, since its text may repeat a row's value or a secret: a user's function, a decoder, a
library raised it. Of the operating system's errors, the system's own words for their number and the path are shown too;
of failed imports, what they name.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from timeline.errors import TidelineError

SECRET_NAME = re.compile(
    r"secret|password|passwd|token|credential|private|api[._]?key|access[._]?key|account[._]?key|(^|\.)key$", re.I
)
"""Names of keys whose values are not to be shown; Java's regular expressions mean the same by it."""

_CREDENTIALS = re.compile(r"://[^/\s]*@")
_SECRET_OPTION = re.compile(r"key|secret|token|password", re.I)
_MASK = "…"
_SHOWN_PARTS = 2
"""Parts of a source file's path that are shown: its package's name and its own."""


def is_secret_name(name: str) -> bool:
    """Whether the value of a key of this name is not to be shown."""
    return SECRET_NAME.search(name) is not None


def without_credentials(text: str) -> str:
    """A text for people: what stands before the ``@`` of a URL's authority is cut out."""
    return _CREDENTIALS.sub(f"://{_MASK}@", text)


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """What a server or client says, for people: the values of options that are secret are cut out.

    S3 repeats the access key that it does not know, and that is the secret where somebody mixed them up.
    """
    for value in sorted(_secrets_in(options), key=len, reverse=True):
        for form in (value, json.dumps(value)[1:-1]):
            text = text.replace(form, _MASK)
    return text


def _secrets_in(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, str) and value and _SECRET_OPTION.search(name):
            yield value


def shown_error(error: BaseException) -> str:
    """An error as logs and the timeline may show it; see the top of this module."""
    if isinstance(error, TidelineError):
        return str(error)
    words = f"{type(error).__name__}{_system_words(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{words} at {place(frames[-1].filename, frames[-1].lineno, frames[-1].name)}" if frames else words


def shown_trace(error: BaseException) -> str:
    """The steps to an error and to its causes, without the texts that it may not show."""
    steps: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        lines = "".join(traceback.format_list(traceback.extract_tb(cause.__traceback__)))
        told = f": {cause}" if isinstance(cause, TidelineError) else _system_words(cause)
        steps.insert(0, f"Traceback (most recent call last):\n{lines}{type(cause).__name__}{told}\n")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(steps).rstrip("\n")


def place(file: str, line: int | None, function: str) -> str:
    """A place in the code for people: ``decode/fields.py:12 in flatten``."""
    return f"{'/'.join(PurePath(file).parts[-_SHOWN_PARTS:])}:{line} in {function}"


def _system_words(error: BaseException) -> str:
    """What the system calls an error of its own, and the path that it is about; of an import, what cannot be."""
    if isinstance(error, ImportError):
        return f": {error}"
    if not isinstance(error, OSError) or error.errno is None:
        return ""
    path = f": {without_credentials(str(error.filename))}" if error.filename is not None else ""
    return f": {os.strerror(error.errno)}{path}"
