"""The demo web is made from its seed alone, has the size that was promised, and says what is wrong."""

from __future__ import annotations

import hashlib
import io
import os
import statistics
import subprocess
import sys
import zipfile
from collections import Counter

import pytest

from headway.demoweb import DEFAULT_ROSTER, Layout, Scope, WebDesign, design_from, design_web
from headway.demoweb.content import (
    content_of,
    empty_zip,
    encoded,
    pdf,
    plain_text,
    png,
    postscript,
    stylesheet,
)
from headway.demoweb.model import HTML_LAYOUTS
from headway.errors import HeadwayError


def digest(design: WebDesign) -> str:
    origins = {name: f"http://127.0.0.1:{8100 + number}" for number, name in enumerate(design.sites)}
    total = hashlib.sha256()
    for site in design.sites.values():
        for page in site.pages.values():
            total.update(page.path.encode() + content_of(site, page, origins))
    return total.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_demoweb_design import *;"
        "print(digest(design_web(11, 0.3)))"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120
    for hash_seed in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", program, here],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert ran.stdout.strip() == digest(design_web(11, 0.3))


def test_another_seed_gives_other_pages() -> None:
    assert digest(design_web(1, 0.2)) != digest(design_web(2, 0.2))
    one, other = (set(design_web(seed).sites["library"].pages) for seed in (1, 2))
    assert len(one & other) < len(one) / 2


def test_a_design_can_be_made_again_from_its_recipe() -> None:
    design = design_web(5, 0.2, roster=("plain", "plain", "museum"))
    assert list(design.sites) == ["plain", "plain-2", "museum"]
    assert design_from(design.recipe) == design
    assert design.sites["plain"].pages != design.sites["plain-2"].pages


@pytest.mark.parametrize("seed", [1, 7, 42])
def test_at_scale_one_it_is_a_demo_of_some_seconds(seed: int) -> None:
    design = design_web(seed)
    assert list(design.sites) == list(DEFAULT_ROSTER)
    asked_for = design.expected(Scope(max_depth=8))
    assert 300 <= len(asked_for) <= 600
    assert 4e6 <= sum(page.content_bytes for page in asked_for.values()) <= 9e6
    assert 4e6 <= design.total_bytes <= 9e6


def test_scale_makes_it_smaller_and_larger() -> None:
    small, middle, large = (design_web(7, scale).total_bytes for scale in (0.2, 1, 10))
    assert small < middle / 2
    assert 7 < large / middle < 13


def test_sizes_and_links_are_as_skewed_as_on_the_real_web() -> None:
    pages = [p for p in design_web(7, 5).sites["library"].pages.values() if p.layout in HTML_LAYOUTS]
    sizes = [page.size_bytes for page in pages]
    assert statistics.mean(sizes) > 1.2 * statistics.median(sizes)
    links_in = Counter(link.to for page in pages for link in page.links)
    del links_in[max(links_in, key=links_in.__getitem__)]  # the home page, which all link to
    most = [count for _, count in links_in.most_common(len(links_in) // 20)]
    assert sum(most) > 0.25 * links_in.total()
    assert 5 <= max(page.depth for page in pages) <= 6


def test_copies_are_the_same_byte_for_byte_and_other_start_pages_are_not() -> None:
    design = design_web(7, 0.2)
    origins = dict.fromkeys(design.sites, "http://127.0.0.1:8100")
    library, museum = design.sites["library"], design.sites["museum"]

    def content(site_name: str, path: str) -> bytes:
        site = design.sites[site_name]
        return content_of(site, site.pages[path], origins)

    assert content("library", "/") == content("library", "/index.html")
    assert content("library", "/guide/chapter-3.html") == content("library", "/mirror/guide/chapter-3.html")
    assert content("library", "/guide/chapter-3.html") != content("library", "/guide/chapter-4.html")
    assert content("museum", "/") != content("museum", "/index.html")
    assert library.total_bytes == sum(page.size_bytes for page in library.documents())
    assert not any(page.layout is Layout.PNG for page in museum.documents())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: design_web(1, roster=("libary",)), "no demo site is named 'libary'; choose from library"),
        (lambda: design_web(1, 0), "scale of the demo web must be greater than 0"),
        (lambda: design_web(1, -1), "not -1"),
        (lambda: design_web(1, float("nan")), "not nan"),
        (lambda: design_web(1, 1e9), "at most 1000"),
    ],
)
def test_impossible_webs_are_refused_with_the_reason(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HeadwayError, match=said):
        make()


SENTENCES = [
    "The keeper lost the lantern.",
    "Before the railway came, the committee moved it, as any map shows.",
]


@pytest.mark.parametrize("size_bytes", [1_500, 1_501, 1_577, 60_000])
def test_every_kind_of_file_has_the_size_asked_for(size_bytes: int) -> None:
    def text():  # type: ignore[no-untyped-def]
        while True:
            yield from SENTENCES

    for made in (
        pdf("A title", text(), size_bytes),
        postscript("A title", text(), size_bytes),
        plain_text("A title", text(), size_bytes),
        png(3, size_bytes),
        stylesheet(size_bytes),
        empty_zip(size_bytes),
    ):
        assert len(made) == size_bytes


def test_the_files_are_valid_of_their_kind() -> None:
    def text():  # type: ignore[no-untyped-def]
        while True:
            yield from SENTENCES

    document = pdf("A (bracketed) title", text(), 5_000)
    at = int(document.rpartition(b"startxref\n")[2].split()[0])
    assert document[at:].startswith(b"xref\n0 6\n")
    for number, line in enumerate(document[at:].split(b"\n")[3:8], start=1):
        assert document[int(line.split()[0]) :].startswith(b"%d 0 obj" % number)
    assert postscript("T", text(), 2_000).startswith(b"%!PS-Adobe")
    assert zipfile.ZipFile(io.BytesIO(empty_zip(2_000))).namelist() == []
    assert png(1, 4_000).startswith(b"\x89PNG\r\n\x1a\n")
    assert png(1, 4_000).endswith(b"IEND\xaeB`\x82")


def test_an_unknown_coding_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown content coding 'lzma'"):
        encoded(b"x", "lzma")
