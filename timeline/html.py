"""HTML for notebooks and pages; all text from storage is escaped.

Text becomes HTML in one place, `element`: a plain string is always text, only `Html` is taken as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

_VOID = frozenset({"meta", "img", "br", "link"})
_CELL = "text-align:left;vertical-align:top;padding:0.15em 0.9em 0.15em 0"
_COLOURS = {
    "committed": "#0072B2",
    "completed": "#0072B2",
    "rolled back": "#D55E00",
    "rollback": "#D55E00",
    "pending": "#8A6500",
    "requested": "#8A6500",
    "inflight": "#8A6500",
}
_MARKS = {"committed": "●", "completed": "●", "rolled back": "✕", "rollback": "✕"}


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as text of a page: escaped, and without characters that HTML does not allow."""
    if isinstance(value, Html):
        return value
    shown = "".join(letter if _is_allowed(letter) else "\ufffd" for letter in str(value))
    return Html(html.escape(shown, quote=True))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """One element with its children; strings are escaped, `Html` is taken as it is.

    Args:
        name: the element's name.
        children: its content; None and empty strings are left out.
        attributes: values by name, ``_`` for ``-`` and ``class_`` for class; those with None are left out.
    """
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{together(*children)}</{name}>")


def together(*children: object) -> Html:
    """Children joined in order; strings are escaped, None is left out."""
    return Html("".join(text(child) for child in children if child is not None))


def table(heads: Sequence[object], rows: Iterable[Sequence[object]], **attributes: object) -> Html:
    """A table with a header row; None is an empty cell."""
    head = element("thead", element("tr", *(element("th", each, scope="col", style=_CELL) for each in heads)))
    body = [element("tr", *(element("td", "" if cell is None else cell, style=_CELL) for cell in row)) for row in rows]
    return element("table", head, element("tbody", *body), **attributes)


def mark(state: str) -> Html:
    """A state with a symbol, so that it is readable without its colour."""
    colour = _COLOURS.get(state)
    word = f"{_MARKS.get(state, '○')} {state}"
    return element("span", word, style=f"color:{colour};font-weight:600;white-space:nowrap" if colour else None)


def moment(at: datetime | None) -> str:
    """A time in UTC, human-readable; empty for None."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def facts_table(facts: Iterable[tuple[str, object]], **attributes: object) -> Html:
    """A table of names and values; names without a value are left out."""
    rows = [
        element("tr", element("th", name, scope="row", style=_CELL), element("td", value, style=_CELL))
        for name, value in facts
        if value is not None and value != ""
    ]
    return element("table", element("tbody", *rows), **attributes)


def _is_allowed(letter: str) -> bool:
    """Whether HTML allows this character: no control characters but white space, no half of a surrogate pair."""
    code = ord(letter)
    return letter in "\n\t" or (code >= 0x20 and not 0x7F <= code < 0xA0 and not 0xD800 <= code < 0xE000)
