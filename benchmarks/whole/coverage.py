"""Why a crawler has not found a page that another has: looked up in the files of the web itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec
from benchmarks.manuals import SiteFolder
from selectolax.lexbor import LexborHTMLParser

_INDEXES = ("index.html", "index.htm")
_LINKING = "[href],[src],[data],[content]"


class Missing(msgspec.Struct, frozen=True):
    why: str
    pages: int
    example: str


def explain(lacking: Collection[str], has: Collection[str], sites: list[SiteFolder]) -> list[Missing]:
    """The pages that are lacking, gathered by reason, the most frequent first."""
    by_home = {site.url: site for site in sites}
    had_files = {_file_of(url, by_home) for url in has}
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for url in lacking:
        why = _why(url, by_home, had_files)
        reasons[why] += 1
        examples.setdefault(why, url)
    return [Missing(why, count, examples[why]) for why, count in reasons.most_common()]


def _why(url: str, by_home: dict[str, SiteFolder], had_files: set[Path | None]) -> str:
    path = _file_of(url, by_home)
    if path in had_files:
        return "has the same file under another address"
    site = by_home[_home(url)]
    tags = sorted(_tags_to(site.root, site.url).get(url, ()))
    if not tags:
        return "no element of any page links to it"
    return "linked by " + ", ".join(f"<{tag}>" for tag in tags)


def _home(url: str) -> str:
    return "{0.scheme}://{0.netloc}/".format(urlsplit(url))


def _file_of(url: str, by_home: dict[str, SiteFolder]) -> Path | None:
    site = by_home.get(_home(url))
    if site is None:
        return None
    path = site.root / urlsplit(url).path.lstrip("/")
    if path.is_dir():
        return next((path / name for name in _INDEXES if (path / name).exists()), path)
    return path


@cache
def _tags_to(root: Path, home: str) -> dict[str, frozenset[str]]:
    """Which elements lead to which page of the site."""
    tags: dict[str, set[str]] = {}
    for path in root.rglob("*.htm*"):
        here = urljoin(home, str(path.relative_to(root)))
        for node in LexborHTMLParser(path.read_bytes().decode("utf-8", "replace")).css(_LINKING):
            for name in ("href", "src", "data"):
                value = node.attributes.get(name)
                if value:
                    target = urldefrag(urljoin(here, value.strip()))[0]
                    tags.setdefault(target, set()).add(str(node.tag))
    return {url: frozenset(names) for url, names in tags.items()}
