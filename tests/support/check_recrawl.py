"""What a Store promises where pages are fetched more than once, beside `check_store`."""

from __future__ import annotations

from collections.abc import Callable

from headway.model.command import PageState, SaveAgain, SaveFound, SaveSettled
from headway.model.page import AGAIN, Kind, Outcome, Page, PageKey, Sighting, Site
from headway.ports import Store
from headway.units import Instant, Seconds

OpenStore = Callable[[], Store]
_SITE = Site("https://www.example.org")
_BEGAN_AT = Instant(1_700_000_000.25)
_PAGE = Page(f"{_SITE}/1", _SITE, PageKey(7), depth=2)
_SIGHTING = Sighting('"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", b"\x00\x00\x80\x3f")


def _settled(
    kind: Kind = Kind.FETCHED, *, at: float = 10.0, attempt: int = 0, digest: str = "sha256:a"
) -> SaveSettled:
    outcome = Outcome(kind, 200, 100, Seconds(1.0), "text/html", 50, digest)
    state = PageState.FAILED if kind is Kind.MISSING else PageState.DONE
    return SaveSettled(_PAGE, outcome, state, attempt, Instant(_BEGAN_AT + at), sighting=_SIGHTING)


def check_a_page_never_seen_has_no_copy(open_store: OpenStore) -> None:
    store = open_store()
    store.create(_BEGAN_AT, {})
    assert store.find_copy(_PAGE) is None
    store.close()


def check_a_page_that_only_waits_has_never_been_answered(open_store: OpenStore) -> None:
    store = open_store()
    store.create(_BEGAN_AT, {})
    store.commit([SaveFound((_PAGE,))], {})
    copy = store.find_copy(_PAGE)
    assert copy is not None
    assert copy.kind is None
    assert copy.is_waiting
    assert not copy.was_answered
    store.close()


def check_a_copy_has_what_the_last_visit_left(open_store: OpenStore) -> None:
    store = open_store()
    store.create(_BEGAN_AT, {})
    store.commit([SaveFound((_PAGE,)), _settled()], {})
    store.commit([_settled(at=20.0, attempt=AGAIN, digest="sha256:b")], {})
    store.close()
    store = open_store()
    store.load()
    copy = store.find_copy(_PAGE)
    assert copy is not None
    assert (copy.state, copy.kind, copy.digest, copy.depth) == (PageState.DONE, Kind.FETCHED, "sha256:b", 2)
    assert copy.fetched_at == _BEGAN_AT + 19.0
    assert copy.sighting == _SIGHTING
    assert not copy.is_waiting
    store.close()


def check_a_page_to_be_fetched_again_waits_until_its_time_and_is_known_as_such(open_store: OpenStore) -> None:
    due_at = Instant(_BEGAN_AT + 100.0)
    store = open_store()
    store.create(_BEGAN_AT, {})
    store.commit([SaveFound((_PAGE,)), _settled(), SaveAgain((_PAGE,), due_at)], {})
    store.commit([SaveAgain((_PAGE,), due_at)], {})
    store.close()
    store = open_store()
    snapshot = store.load()
    assert snapshot is not None
    assert [(each.page.key, each.attempt, each.retry_at) for each in snapshot.waiting] == [(7, AGAIN, due_at)]
    copy = store.find_copy(_PAGE)
    assert copy is not None
    assert copy.is_waiting
    assert copy.was_answered
    store.close()


def check_the_last_word_of_a_batch_counts(open_store: OpenStore) -> None:
    """Settled, queued again and settled once more within one batch, it does not wait."""
    store = open_store()
    store.create(_BEGAN_AT, {})
    again = SaveAgain((_PAGE,), _BEGAN_AT)
    store.commit([SaveFound((_PAGE,)), _settled(), again, _settled(at=11.0, attempt=AGAIN)], {})
    store.close()
    store = open_store()
    snapshot = store.load()
    assert snapshot is not None
    assert not snapshot.waiting
    assert snapshot.sites[0].done == 1
    store.close()


def check_a_page_counts_as_what_it_is_now(open_store: OpenStore) -> None:
    store = open_store()
    store.create(_BEGAN_AT, {})
    store.commit([SaveFound((_PAGE,)), _settled(), SaveAgain((_PAGE,), _BEGAN_AT)], {})
    store.commit([_settled(Kind.MISSING, at=20.0, attempt=AGAIN, digest="")], {})
    store.close()
    store = open_store()
    snapshot = store.load()
    assert snapshot is not None
    assert (snapshot.sites[0].done, snapshot.sites[0].failed) == (0, 1)
    store.close()


RECRAWL_CHECKS: tuple[Callable[[OpenStore], None], ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)
