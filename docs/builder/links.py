"""Check the built site: every link to a page, a picture or a heading has a target."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["broken_links"]


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a tag's links and anchors."""
        for name, value in attrs:
            if value and (name, tag) in {("href", "a"), ("src", "img")}:
                self.links.append(value)
            if value and (name == "id" or (name, tag) == ("name", "a")):
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for each broken link of a site; links to other sites are not checked."""
    pages = {file: _Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        for link in page.links:
            path, anchor = urldefrag(link)
            if urlsplit(link).scheme or file.name == "404.html":
                continue
            other = (file.parent / unquote(path)).resolve() if path else file
            if other.is_dir():
                other /= "index.html"
            anchored = other not in pages or not anchor or unquote(anchor) in pages[other].anchors
            if not other.is_file() or not anchored:
                broken.append(f"{file.relative_to(site)}: {link}")
    return sorted(set(broken))
