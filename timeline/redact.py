"""Redaction of texts that may hold secrets or values of rows, such as error messages of libraries and servers.

Tideline's own errors are shown whole: their messages hold no row and no secret. Any other error, of a user's function,
a decoder or a library, is shown as its class and its place in the code, since its text may repeat a row's value or a
secret. Errors of the operating system also show the system's message for their number, and the path; failed imports
also show their message.
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
"""Names of keys with secret values; the pattern means the same in Java's regular expressions."""

_CREDENTIALS = re.compile(r"://[^/\s]*@")
_SECRET_OPTION = re.compile(f"key|{SECRET_NAME.pattern}", re.I)
"""Options whose values are masked in messages: access keys too, since S3 repeats them."""
_MASK = "…"
_SHOWN_PARTS = 2
"""Parts of a source file's path that are shown: package and file name."""


def is_secret_name(name: str) -> bool:
    """Whether a key of this name has a secret value."""
    return SECRET_NAME.search(name) is not None


def without_credentials(text: str) -> str:
    """A text with masked URL credentials, the part before the ``@`` of a URL's authority."""
    return _CREDENTIALS.sub(f"://{_MASK}@", text)


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """A server's or client's message with the values of secret options masked.

    S3 repeats an unknown access key, which is the secret if the user swapped the two.
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
    """An error's redacted text, for logs and the timeline; see the module's docstring."""
    if isinstance(error, TidelineError):
        return str(error)
    words = f"{type(error).__name__}{_system_message(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{words} at {code_location(frames[-1].filename, frames[-1].lineno, frames[-1].name)}" if frames else words


def shown_trace(error: BaseException) -> str:
    """Traceback of an error and of its causes, with redacted messages."""
    steps: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        lines = "".join(traceback.format_list(traceback.extract_tb(cause.__traceback__)))
        told = f": {cause}" if isinstance(cause, TidelineError) else _system_message(cause)
        steps.insert(0, f"Traceback (most recent call last):\n{lines}{type(cause).__name__}{told}\n")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(steps).rstrip("\n")


def code_location(file: str, line: int | None, function: str) -> str:
    """A place in the code, human-readable: ``decode/fields.py:12 in flatten``.

    Args:
        file: path of the source file.
        line: line number; None if unknown.
        function: name of the function.
    """
    return f"{'/'.join(PurePath(file).parts[-_SHOWN_PARTS:])}:{line} in {function}"


def _system_message(error: BaseException) -> str:
    """The system's message for an operating system's error, and its path; the message of a failed import; else ""."""
    if isinstance(error, ImportError):
        return f": {error}"
    if not isinstance(error, OSError) or error.errno is None:
        return ""
    path = f": {without_credentials(str(error.filename))}" if error.filename is not None else ""
    return f": {os.strerror(error.errno)}{path}"
