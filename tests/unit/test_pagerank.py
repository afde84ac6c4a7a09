"""PageRank against solving its equations directly, and against ranks worked out elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.policy.ordering.ranked import pagerank, rows_of_links
from headway.sim.graph import load_graph

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "examples/graphs/debdoc-small"
LARGE = ROOT.parent / "shared/data/graphs/cnr-2000"


def rows(links: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    flat = np.array([target for row in links for target in row], dtype=np.int32)
    return np.cumsum([0, *map(len, links)]), flat


def solved(links: list[list[int]], damping: float) -> np.ndarray:
    """The fixed point as a system of linear equations, with dense matrices."""
    count = len(links)
    step = np.zeros((count, count))
    for source, row in enumerate(links):
        for target in row:
            step[target, source] += 1 / len(row)
        if not row:
            step[:, source] = 1 / count
    return np.linalg.solve(np.eye(count) - damping * step, np.full(count, (1 - damping) / count))


webs = st.integers(1, 12).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, count - 1), max_size=4, unique=True), min_size=count, max_size=count
    )
)


@given(webs, st.sampled_from([0.0, 0.5, 0.85]))
@settings(max_examples=200, deadline=None)
def test_ranks_solve_the_equations_and_add_up_to_one(links: list[list[int]], damping: float) -> None:
    ranks = pagerank(*rows(links), damping=damping, tolerance=1e-13)
    np.testing.assert_allclose(ranks, solved(links, damping), atol=1e-11)
    assert ranks.sum() == pytest.approx(1.0)


@given(webs, st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_where_the_iteration_begins_does_not_matter(links: list[list[int]], seed: int) -> None:
    begin = np.random.default_rng(seed).random(len(links)) + 0.01
    warm = pagerank(*rows(links), tolerance=1e-12, begin_with=begin)
    np.testing.assert_allclose(warm, pagerank(*rows(links), tolerance=1e-12), atol=1e-10)


def test_single_links_become_rows_whatever_their_order() -> None:
    starts, targets = rows_of_links(3, np.array([2, 0, 2, 0]), np.array([1, 2, 0, 1]))
    assert starts.tolist() == [0, 2, 2, 4]
    assert targets.tolist() == [2, 1, 1, 0]


def test_a_web_without_pages_has_no_ranks() -> None:
    assert len(pagerank(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))) == 0


def test_a_damping_that_never_settles_is_refused() -> None:
    with pytest.raises(HeadwayError, match="damping"):
        pagerank(*rows([[0]]), damping=1.0)


@pytest.mark.parametrize("folder", [SMALL, LARGE], ids=["small", "large"])
def test_ranks_are_those_that_the_graph_came_with(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not here: it may not be shipped")
    meta = json.loads((folder / "META.json").read_text())["pagerank"]
    web = load_graph(folder)
    ranks = np.sort(pagerank(web.starts, web.targets, tolerance=1e-8))[::-1]
    assert ranks[0] == pytest.approx(meta["max"], rel=1e-6)
    assert ranks[: web.pages // 100].sum() == pytest.approx(meta["share_top_1pct"], abs=2e-3)
    assert ranks[: web.pages // 10].sum() == pytest.approx(meta["share_top_10pct"], abs=2e-3)
