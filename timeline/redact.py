"""What may be shown of texts that hold secrets, or that others made of what they were sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_CREDENTIALS = re.compile(r"://[^/\s]*@")
_SECRET_OPTION = re.compile(r"key|secret|token|password", re.I)
_MASK = "…"


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
