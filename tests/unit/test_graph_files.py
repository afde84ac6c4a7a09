"""Graph folders: what is written is read again, and damage is named instead of simulated."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.errors import HeadwayError
from headway.sim.graph import load_graph, save_graph
from headway.sim.web import Web

NODES = "id\thost\tsize\turl\n0\ta.test\t100\t/\n1\ta.test\t\t/x\n2\tb.test\t300\t\n"
LINKS = "1 1\n\n0\n"


def write(folder: Path, nodes: str = NODES, links: str = LINKS, **more: str) -> Path:
    (folder / "nodes.tsv.xz").write_bytes(lzma.compress(nodes.encode()))
    (folder / "adj.txt.xz").write_bytes(lzma.compress(links.encode()))
    for name, text in more.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_a_graph_is_read_as_its_format_says(tmp_path: Path) -> None:
    web = load_graph(write(tmp_path))
    assert [web.links_of(page) for page in range(3)] == [[1, 2], [], [0]]
    assert list(web.sites) == ["a.test", "b.test"]
    assert web.site_of.tolist() == [0, 0, 1]
    assert web.seeds.tolist() == [0, 2], "without seeds.txt the first page of each host"
    assert web.size_bytes[0] == 100
    assert web.size_bytes[1] > 0, "a size that is not known is drawn"
    assert web.page(1, 2).url == "http://a.test/x"
    assert web.page(2, 0).url == "http://b.test/2"


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    web = load_graph(write(tmp_path, seeds_txt="2\n0\n"))
    save_graph(web, tmp_path / "copy")
    copy = load_graph(tmp_path / "copy")
    for name in ("starts", "targets", "site_of", "size_bytes", "seeds"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(web, name))
    assert copy.paths == web.paths


def test_the_shipped_graph_loads() -> None:
    web = load_graph(Path(__file__).parents[2] / "examples/graphs/debdoc-small")
    assert (web.pages, web.links, len(web.sites)) == (8501, 114_620, 170)


def test_a_part_of_a_web_has_only_links_within_it(tmp_path: Path) -> None:
    part = load_graph(write(tmp_path)).only(["a.test"])
    assert part.pages == 2
    assert [part.links_of(page) for page in range(2)] == [[1], []]
    assert part.seeds.tolist() == [0]


def test_an_unknown_site_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"no site 'c\.test'"):
        load_graph(write(tmp_path)).only(["c.test"])


def truncate(folder: Path) -> None:
    path = folder / "adj.txt.xz"
    path.write_bytes(path.read_bytes()[:-20])


def not_xz(folder: Path) -> None:
    (folder / "nodes.tsv.xz").write_bytes(b"this is not compressed at all")


def other_content(folder: Path) -> None:
    (folder / "META.json").write_text('{"sha256": {"adj.txt.xz": "0"}}')


def damage(**parts: str) -> Callable[[Path], None]:
    return lambda folder: void(write(folder, **parts))


def void(_: object) -> None:
    """Nothing to return."""


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (truncate, "truncated"),
        (not_xz, "xz-compressed"),
        (other_content, "damaged"),
        (lambda folder: (folder / "adj.txt.xz").unlink(), "missing"),
        (damage(META_json='{"pages": 4}'), "says 4 pages"),
        (damage(META_json="{"), "cannot be read"),
        (damage(META_json="[]"), "not a JSON object"),
        (damage(links="1 1\n\n"), "2 lines for 3 pages"),
        (damage(links="1 1\n\n7\n"), "line 3: a link to page 7"),
        (damage(links="1 1\n\n-1\n"), "line 3: a link to page -1"),
        (damage(links="1 0\n\n0\n"), "line 1: a link to page 1"),
        (damage(links="1 x\n\n0\n"), "other than numbers, as in line 1"),
        (damage(links="1  1\n\n0\n"), "empty fields, as in line 1"),
        (damage(links="1 99999999999999999999999\n\n0\n"), "line 1"),
        (damage(nodes="id\thost\n"), "line 1: the header"),
        (damage(nodes="id\thost\tsize\turl\n"), "no pages"),
        (damage(nodes=NODES.replace("2\tb", "5\tb")), "line 4: the id must be 2"),
        (damage(nodes=NODES.replace("b.test", "")), "line 4: page 2 has no host"),
        (damage(nodes=NODES.replace("300", "-3")), "line 4: '-3' is not a number of bytes"),
        (
            damage(nodes=NODES.replace("300", "9" * 40)),
            "line 4: '99999999999999999999' is not a number of bytes",
        ),
        (damage(nodes=NODES.replace("\t300\t", "\t300")), "line 4: 3 fields"),
        (damage(seeds_txt="9\n"), "'9' is not a page"),
        (damage(seeds_txt="\n"), "no page to begin with"),
    ],
)
def test_damage_is_named(tmp_path: Path, harm: Callable[[Path], None], words: str) -> None:
    write(tmp_path)
    harm(tmp_path)
    with pytest.raises(HeadwayError) as caught:
        load_graph(tmp_path)
    assert words in str(caught.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="not a graph folder"):
        load_graph(tmp_path / "nowhere")


def test_a_batch_finds_nothing() -> None:
    web = Web(
        "two",
        np.array([0, 1, 1]),
        np.array([1], dtype=np.int32),
        np.zeros(2, dtype=np.int32),
        np.ones(2, dtype=np.int64),
        ["a.test"],
        np.array([0], dtype=np.int32),
    )
    batch = web.without_links(np.array([1], dtype=np.int32))
    assert batch.links == 0
    assert batch.seeds.tolist() == [1]
