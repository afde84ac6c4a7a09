"""The castillo2004 experiment: what is kept is not crawled again, and each claim gets a verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway.sim.web import SyntheticSpec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.castillo2004 import figures, runs, verdicts
from experiments.castillo2004.findings import Findings, OnWeb, Trial
from experiments.castillo2004.kept import Keeper, OutOfTimeError
from experiments.castillo2004.webs import synthetic_ground

PAGES = 2_000


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crawls")
    runs.run_all(synthetic_ground(PAGES), Keeper(folder))
    return folder


@pytest.fixture(scope="module")
def on_web(kept: Path) -> OnWeb:
    """With no time at all: only what is kept can be had."""
    return runs.run_all(synthetic_ground(PAGES), Keeper(kept, most_s=-1))


def test_all_crawls_are_kept_and_not_made_again(on_web: OnWeb) -> None:
    assert on_web.pages == PAGES
    assert not on_web.left_out
    assert len(on_web.strategies) == 9
    assert on_web.robots is not None
    assert on_web.robots["length"].keys() == {1, 64, 256}


def test_what_is_missing_is_crawled_and_nothing_else(kept: Path, tmp_path: Path) -> None:
    copies = {path.name: path.read_bytes() for path in kept.iterdir()}
    gone = "synthetic-length-r64.json"
    for name, content in copies.items():
        if name != gone:
            (tmp_path / name).write_bytes(content)
    without = runs.run_all(synthetic_ground(PAGES), Keeper(tmp_path, most_s=-1))
    assert without.left_out == ["figure 6"]
    assert without.robots is None
    runs.run_all(synthetic_ground(PAGES), Keeper(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == copies.keys()
    untouched = copies.keys() - {gone}
    assert all((tmp_path / name).read_bytes() == copies[name] for name in untouched)


def test_without_time_and_without_anything_kept_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError, match="synthetic-shape"):
        runs.run_all(synthetic_ground(PAGES), Keeper(tmp_path, most_s=-1))


def test_strategies_without_time_are_named_rather_than_made_up(kept: Path, tmp_path: Path) -> None:
    for path in kept.iterdir():
        if not path.name.startswith("synthetic-flow"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    on_web = runs.run_all(synthetic_ground(PAGES), Keeper(tmp_path, most_s=-1))
    assert [name.partition("(")[0] for name in on_web.left_out] == ["flow"]
    assert not any(name.startswith("flow") for name in on_web.strategies)


def test_every_claim_has_a_verdict_and_one_that_fails_says_why(on_web: OnWeb, tmp_path: Path) -> None:
    trials = [Trial(SyntheticSpec(), 0.6, 0.7, 9.0), Trial(SyntheticSpec(), 0.7, 0.6, 2.0)]
    claims = verdicts.on_all(Findings([on_web], trials))
    assert {claim.figure for claim in claims} >= {"3", "5", "6", "table 1", "8", "9", "10"}
    assert [claim.text for claim in claims if claim.holds is False and not claim.why] == []
    text = verdicts.report(claims, "")
    assert text.count("\n| ") == len(claims) + 1
    pytest.importorskip("matplotlib")
    figures.draw_all(Findings([on_web], trials), tmp_path)
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    # A web this small has no batch of ten thousand pages.
    assert drawn == figures.TITLES.keys() - {"figure-07"}
