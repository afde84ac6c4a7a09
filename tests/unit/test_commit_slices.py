"""Rows that can wait do not hold up a crawl; all of them are written in the end, and the others at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.model.command import PageState, SaveFound, SaveSettled, Saving
from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.policy.scope import Exclusion
from headway.runtime.commands import AT_ONCE, spread
from headway.units import Instant

SITE = Site("https://a.example")


def row(number: int, detail: str | None) -> Saving:
    page = Page(f"{SITE}/{number}", SITE, PageKey(number))
    if detail is None:
        return SaveFound((page,))
    if not detail:
        return SaveSettled(page, Outcome(Kind.FETCHED, 200), PageState.DONE, 0, Instant(0.0))
    return SaveSettled(page, Outcome(Kind.OUT_OF_SCOPE, detail=detail), PageState.EXCLUDED, 0, Instant(0.0))


DETAILS = st.sampled_from([None, "", Exclusion.OTHER_HOST, Exclusion.OTHER_HOST, "trap: session id"])


@given(st.lists(DETAILS, min_size=1, max_size=30), st.integers(1, 200))
def test_every_row_is_written_once_and_what_others_depend_on_at_once(
    details: list[str | None], times: int
) -> None:
    batch = [row(number, detail) for number, detail in enumerate(details * times)]
    waits = [
        saving
        for saving in batch
        if isinstance(saving, SaveSettled) and saving.outcome.detail == "other-host"
    ]
    first, later = spread(batch)
    assert all(saving in waits for saving in later[:50])
    assert len(first) + len(later) == len(batch)
    written = list(first)
    commits = 1
    while later:
        part, later = spread(later)
        assert len(part) <= max(AT_ONCE, len(batch) // 100 + 1)
        written += part
        commits += 1
    assert sorted(map(id, written)) == sorted(map(id, batch))
    assert commits <= 1 + len(waits) // AT_ONCE + 1


def test_a_small_batch_is_written_as_it_is() -> None:
    batch = [row(number, Exclusion.OTHER_HOST) for number in range(AT_ONCE)]
    assert spread(batch) == (batch, [])
