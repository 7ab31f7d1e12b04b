"""`make docs-site`: the pages become a site without a network, and its links lead somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where a page's element takes something from while it is shown.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The ids, links and loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := named.get(key))}
        if tag == "a" and (link := named.get("href")):
            self.links.append(link)
        if tag in LOADED and (source := named.get(LOADED[tag])):
            self.loaded.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The built pages by their files."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir"]
    # Whatever it would fetch, it would fail.
    closed = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [*command, str(folder)],
        cwd=ROOT,
        env={**os.environ, **closed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    assert len(pages) > 20
    return pages


def lost(site: dict[Path, Page], path: Path, link: str) -> Iterator[str]:
    """Why a link of the page `path` leads nowhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or path.name == "404.html":
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target not in site:
        # A file of the checkout: the pages are read there as well.
        home = next(parent for parent in path.parents if (parent / "tutorial.html").exists())
        outside = ROOT / "docs" / os.path.relpath(target, home)
        if not target.exists() and not outside.exists():
            yield f"{path.name}: {link}: no such file"
    elif parts.fragment and unquote(parts.fragment) not in site[target].ids:
        yield f"{path.name}: {link}: no such place on the page"


def test_every_link_leads_somewhere(site: dict[Path, Page]) -> None:
    assert [
        why for path, page in site.items() for link in page.links for why in lost(site, path, link)
    ] == []


def test_a_page_loads_nothing_from_a_network(site: dict[Path, Page]) -> None:
    assert [
        f"{path.name}: {source}"
        for path, page in site.items()
        for source in page.loaded
        if urlsplit(source).scheme or urlsplit(source).netloc
    ] == []


def test_every_page_is_in_the_navigation(site: dict[Path, Page]) -> None:
    (start,) = [path for path in site if path.name == "tutorial.html"]
    linked = {(start.parent / link).resolve() for link in site[start].links}
    names = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {
        name for name in names if start.parent / f"{name}.html" not in {*linked, start}
    } == set()
