"""What every page of ours that shows foreign words must be: whole, and without anything that acts or leads away."""

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A page as a browser would take it apart, and what a report must not have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def require_harmless(text: str) -> Page:
    page = Page(text)
    assert not page.wrong
    assert not page.open
    assert not set(page.tags) & {
        "script",
        "iframe",
        "object",
        "embed",
        "img",
        "link",
        "base",
        "form",
        "a",
    }
    names = [name for name, _ in page.attributes]
    assert not [name for name in names if name.startswith("on") or name in ("src", "href", "style")]
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert text.count("\u202e") == 0
    return page


def require_square(text: str) -> str:
    """The HTML of Markdown in which every row of a table has as many cells as its head."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(cells) == 1, table
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    page = Page(shown)
    assert not set(page.tags) & {"script", "img", "a", "em", "code"} - {"code"}
    assert page.tags.count("h1") == 1
    assert not [name for name, _ in page.attributes if name in ("href", "src", "onload")]
    assert "\u202e" not in text
    return shown
