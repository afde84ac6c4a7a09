"""Builds a site page by page.

Each page is introduced by one other page. All other links of a page lead to pages that its own ancestors
introduce. So in any order of crawling a page is first found on the page that introduces it, and its depth is
the same for every crawler.
"""

from __future__ import annotations

import math
import posixpath
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec

from headway.demoweb.content import Writer, least_size_bytes
from headway.demoweb.model import HTML_LAYOUTS, Framing, Layout, Link, LinkKind, PageDesign, Place, SiteDesign

MAX_DEPTH = 6
_SIZE_SIGMA = 0.9
_LARGEST_BYTES = 150_000


@dataclass(frozen=True)
class Habits:
    """The distributions from which the pages of a site are drawn."""

    median_bytes: int = 9_000
    documents: float = 0.1
    """The part of the pages that are PDF, PostScript or plain text."""
    chunked: float = 0.25
    closing: float = 0.02
    relative_links: float = 0.3
    codings: tuple[str, ...] = ()
    """Content codings to draw from; `""` means none."""
    latency_s: float = 0.0


@dataclass
class _Draft:
    page: PageDesign
    introduced_by: str | None
    links: list[Link] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


class SiteBuilder:
    """Add pages and links, then call `build`."""

    def __init__(self, seed: str, name: str, title: str, habits: Habits | None = None) -> None:
        self.name = name
        self.seed = f"{seed}/{name}"
        self.rng = Random(self.seed)
        self._title = title
        self._writer = Writer(self.rng)
        self._habits = habits or Habits()
        self._drafts: dict[str, _Draft] = {}
        self.add("/", title, under=None)
        self.add("/about.html", f"About {title}")

    def add(
        self,
        path: str,
        title: str = "",
        *,
        under: str | None = "/",
        via: LinkKind = LinkKind.A,
        href: str = "",
        nofollow: bool = False,
        **fields: Any,
    ) -> str:
        """Add a page that is introduced by the page `under`, with a link of the kind `via`."""
        title = title or self._writer.title()
        if "size_bytes" not in fields:
            fields["size_bytes"] = self._draw_size(2_500)
        depth = 0 if under is None else self._drafts[under].page.depth + 1
        page = PageDesign(path=path, title=title, depth=depth, **fields)
        if self._habits.latency_s:
            page = msgspec.structs.replace(page, latency_s=self._draw_latency())
        self._drafts[path] = _Draft(page, under)
        if under is not None:
            self._drafts[under].children.append(path)
            self.link(under, path, title, via=via, href=href, nofollow=nofollow)
        return path

    def link(
        self,
        source: str,
        to: str | Place | None,
        text: str = "",
        *,
        via: LinkKind = LinkKind.A,
        href: str = "",
        nofollow: bool = False,
    ) -> None:
        target = Place(self.name, to) if isinstance(to, str) else to
        self._drafts[source].links.append(Link(target, text, via, href, nofollow))

    def redirect(self, path: str, to: str | Place, *, under: str, status: int = 302, href: str = "") -> None:
        self.add(path, f"Moved ({status})", under=under, layout=Layout.REDIRECT, status=status)
        self.link(path, to, via=LinkKind.REDIRECT, href=href)

    def service(self, path: str, layout: Layout, targets: list[str], **fields: Any) -> None:
        """Add a file for machines. No page introduces it, and its content determines its size."""
        self.add(path, self._title, under=None, layout=layout, size_bytes=0, **fields)
        for target in targets:
            self.link(path, target, self._drafts[target].page.title)

    def grow(self, count: int, sections: tuple[str, ...], under: str = "/") -> None:
        """Add sections with trees of pages. Pages with many children get more (a power law)."""
        roots = [
            self.add(f"/{section}/", section.replace("-", " ").capitalize(), under=under)
            for section in sections
        ]
        parents = list(roots)
        for _ in range(count - len(roots)):
            parent = self.rng.choice(parents)
            path, is_parent = self._grow_below(parent)
            if is_parent:
                # One more entry for each child: preferential attachment.
                parents += [path, parent]

    def pages_introduced_by(self, path: str) -> list[str]:
        return list(self._drafts[path].children)

    def leaves(self) -> list[str]:
        return [path for path, draft in self._drafts.items() if draft.introduced_by and not draft.children]

    def amend(self, path: str, **changes: Any) -> None:
        draft = self._drafts[path]
        self._drafts[path] = replace(draft, page=msgspec.structs.replace(draft.page, **changes))

    def documents(self) -> list[str]:
        return [path for path, draft in self._drafts.items() if draft.page.layout in HTML_LAYOUTS]

    def build(self, character: str, **fields: Any) -> SiteDesign:
        pages = {path: self._finished(draft) for path, draft in self._drafts.items()}
        for path, page in pages.items():
            if page.copy_of:
                original = pages[page.copy_of]
                pages[path] = msgspec.structs.replace(
                    page, links=original.links, size_bytes=original.size_bytes
                )
        return SiteDesign(
            name=self.name, title=self._title, character=character, seed=self.seed, pages=pages, **fields
        )

    def _finished(self, draft: _Draft) -> PageDesign:
        page, links = draft.page, list(draft.links)
        if page.layout is Layout.ARTICLE and draft.introduced_by is not None:
            known = {link.to for link in links}
            for path, text in ((draft.introduced_by, "Up"), ("/", self._title)):
                if Place(self.name, path) not in known:
                    known.add(Place(self.name, path))
                    links.append(Link(Place(self.name, path), text))
        page = msgspec.structs.replace(page, links=tuple(links))
        if page.layout in HTML_LAYOUTS:
            size_bytes = max(page.size_bytes, least_size_bytes(page))
            page = msgspec.structs.replace(page, size_bytes=size_bytes + size_bytes % 2)
        return page

    def _grow_below(self, parent: str) -> tuple[str, bool]:
        """Add a page below another. Returns its path, and whether it may have children."""
        title = self._writer.title()
        folder = parent if parent.endswith("/") else parent.removesuffix(".html") + "/"
        slug = "".join(c if c.isalnum() else "-" for c in title.lower()).replace("--", "-")
        stem = f"{folder}{slug}"
        while f"{stem}.html" in self._drafts:
            stem = f"{folder}{slug}-{self.rng.randrange(10_000)}"
        depth = self._drafts[parent].page.depth + 1
        if self.rng.random() < self._habits.documents:
            layout = self.rng.choices([Layout.PDF, Layout.TEXT, Layout.POSTSCRIPT], [5, 3, 1])[0]
            suffix = {Layout.PDF: ".pdf", Layout.TEXT: ".txt", Layout.POSTSCRIPT: ".ps"}[layout]
            size_bytes = self._draw_size(3 * self._habits.median_bytes)
            return self.add(stem + suffix, title, under=parent, layout=layout, size_bytes=size_bytes), False
        path = f"{stem}.html"
        self.add(
            path,
            title,
            under=parent,
            href=self._spelling(parent, path),
            size_bytes=self._draw_size(self._habits.median_bytes),
            framing=self._draw_framing(),
            coding=self.rng.choice(self._habits.codings) if self._habits.codings else "",
        )
        self._link_about(path)
        return path, depth < MAX_DEPTH

    def _link_about(self, path: str) -> None:
        """Add links to pages that the page's ancestors show, mostly to the first ones."""
        shown: list[str] = []
        ancestor = self._drafts[path].introduced_by
        while ancestor is not None:
            shown[:0] = [child for child in self._drafts[ancestor].children if child != path]
            ancestor = self._drafts[ancestor].introduced_by
        wanted = min(int(self.rng.paretovariate(1.2)), 25, len(shown))
        chosen = {shown[int(len(shown) * self.rng.random() ** 2.5)] for _ in range(wanted)}
        for target in sorted(chosen):
            self.link(path, target, self._drafts[target].page.title, href=self._spelling(path, target))

    def _spelling(self, source: str, target: str) -> str:
        """Sometimes a relative reference, as people write them; "" for the default spelling."""
        if target.endswith("/") or self.rng.random() >= self._habits.relative_links:
            return ""
        return posixpath.relpath(target, posixpath.dirname(source))

    def _draw_size(self, median_bytes: int) -> int:
        size = self.rng.lognormvariate(math.log(median_bytes), _SIZE_SIGMA)
        return max(1_200, min(int(size), _LARGEST_BYTES))

    def _draw_latency(self) -> float:
        return round(self._habits.latency_s * self.rng.lognormvariate(-0.08, 0.4), 4)

    def _draw_framing(self) -> Framing:
        draw = self.rng.random()
        if draw < self._habits.closing:
            return Framing.CLOSE
        return Framing.CHUNKED if draw < self._habits.closing + self._habits.chunked else Framing.LENGTH
