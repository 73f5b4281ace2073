"""A strict parser of HTML, and a text that must never be parsed as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script> \"double\" 'single' & \x00\x1b[31m\ud800"

VOID = {"meta", "img", "br", "link"}


class WellFormed(HTMLParser):
    """Fails if an element is not closed, or a different one is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(page: str) -> list[str]:
    """Names of all elements of well-formed HTML."""
    parser = WellFormed()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser.seen
