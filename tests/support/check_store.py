"""What every Store promises, as functions that a user can run on an own one.

Each check takes a function that opens the store: always the same storage, empty before the first call.

    @pytest.mark.parametrize("check", STORE_CHECKS)
    def test_my_store_keeps_its_promises(check, tmp_path):
        check(lambda: MyStore(tmp_path / "store"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.model.command import (
    PageState,
    SaveFound,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Snapshot,
    WaitingRecord,
)
from headway.model.page import Capture, Kind, Outcome, Page, PageKey, Site, Task
from headway.ports import Original, Store
from headway.units import Bytes, BytesPerSecond, Instant, Seconds

OpenStore = Callable[[], Store]

_SITE = Site("https://www.example.org")
_OTHER_SITE = Site("http://127.0.0.1:8080")
_BEGAN_AT = Instant(1_700_000_000.25)


def check_a_new_store_is_empty(open_store: OpenStore) -> None:
    with _opened(open_store) as store:
        _expect(store.load(), None, "a store without a crawl loads None")
        _expect(dict(store.committed_lengths()), {}, "and knows no files")
        _expect(store.find_digest("sha1:A"), None, "nor any content")


def check_a_begun_crawl_is_taken_up(open_store: OpenStore) -> None:
    with _begun(open_store):
        pass
    snapshot = _load(open_store)
    _expect(snapshot.started_at, _BEGAN_AT, "the crawl's start is kept exactly: deadlines hang on it")
    _expect((len(snapshot.waiting), len(snapshot.seen), len(snapshot.tasks)), (0, 0, 0), "and nothing else")


def check_found_pages_wait_in_the_order_found(open_store: OpenStore) -> None:
    pages = [_page(number, site) for number in range(50) for site in (_OTHER_SITE, _SITE)]
    with _begun(open_store) as store:
        for place in range(0, len(pages), 7):
            store.commit([SaveFound(tuple(pages[place : place + 7]))], {})
    snapshot = _load(open_store)
    _expect(
        [record.page for record in snapshot.waiting], pages, "pages wait as they were found, in that order"
    )
    _expect(_keys(snapshot), {page.key for page in pages}, "and all of them are seen")


def check_the_first_pages_of_a_site_come_in_the_order_asked_for(open_store: OpenStore) -> None:
    pages = [_page(number, site) for number in range(60) for site in (_OTHER_SITE, _SITE)]
    own = [page for page in pages if page.site == _SITE]
    with _opened(open_store) as store:
        store.order_waiting("depth", lambda page: page.depth)
        store.create(_BEGAN_AT, {})
        store.commit([SaveFound(tuple(pages))], {})
        store.commit([_settled(own[0])], {})
        by_depth = sorted(own[1:], key=lambda page: page.depth)
        _expect(_first(store, 20), by_depth[:20], "lower ranks first, equal ones as they were found")
        _expect(_first(store, 1000), by_depth, "and no more than there are")
        nowhere = store.first_waiting(Site("http://nowhere.test"), 5)
        _expect(list(nowhere), [], "nothing waits of a site that is not known")
    with _opened(open_store) as store:
        store.order_waiting("score", lambda page: -page.score)
        by_score = sorted(own[1:], key=lambda page: -page.score)
        _expect(_first(store, 20), by_score[:20], "another order counts for the pages that wait already")


def check_waiting_pages_are_loaded_if_they_are_few_and_else_counted(open_store: OpenStore) -> None:
    pages = [_page(number, site) for number in range(60) for site in (_OTHER_SITE, _SITE)]
    with _opened(open_store) as store:
        store.order_waiting("score", lambda page: -page.score)
        store.create(_BEGAN_AT, {})
        store.commit([SaveFound(tuple(pages))], {})
        snapshot, whole = store.load(40), store.load(120)
    if snapshot is None or whole is None:
        raise AssertionError("a crawl that was begun is loaded: wanted a Snapshot, got None")
    _expect(list(snapshot.waiting), [], "too many are not loaded")
    for site in (_SITE, _OTHER_SITE):
        best = sorted((page for page in pages if page.site == site), key=lambda page: -page.score)
        _expect(snapshot.unloaded.get(site), 60, "they are counted")
        _expect(snapshot.first_ranks.get(site), -best[0].score, "with the rank of the first")
        loaded = [record.page for record in whole.waiting if record.page.site == site]
        _expect([page.score for page in loaded], [page.score for page in best], "few are loaded in order")
    _expect(dict(whole.unloaded), {}, "and none is left")
    _expect(_keys(snapshot), {page.key for page in pages}, "and all are seen")


def check_a_settled_page_waits_no_more_but_stays_seen(open_store: OpenStore) -> None:
    done, failed, excluded, waiting = pages = tuple(map(_page, range(4)))
    with _begun(open_store) as store:
        store.commit([SaveFound(pages)], {})
        store.commit([_settled(done), _settled(failed, PageState.FAILED, Kind.MISSING)], {})
        store.commit([_settled(excluded, PageState.EXCLUDED, Kind.ROBOTS_DENIED)], {})
    snapshot = _load(open_store)
    _expect([record.page for record in snapshot.waiting], [waiting], "only the page without an end waits")
    _expect(_keys(snapshot), {page.key for page in pages}, "settled pages stay seen")


def check_a_page_to_be_retried_waits_with_its_next_attempt(open_store: OpenStore) -> None:
    first, second = pages = (_page(1), _page(2))
    retry_at = Instant(1_700_000_900.5)
    with _begun(open_store) as store:
        store.commit([SaveFound(pages)], {})
        store.commit([_settled(first, PageState.WAITING, Kind.RESET, attempt=2, retry_at=retry_at)], {})
    expected = [WaitingRecord(first, attempt=3, retry_at=retry_at), WaitingRecord(second)]
    _expect(list(_load(open_store).waiting), expected, "the attempt after the failed one, in its old place")


def check_a_retried_page_can_still_be_done(open_store: OpenStore) -> None:
    page = _page(1)
    with _begun(open_store) as store:
        store.commit([SaveFound((page,))], {})
        store.commit([_settled(page, PageState.WAITING, Kind.RESET)], {})
        store.commit(
            [_settled(page, PageState.WAITING, Kind.RESET, attempt=1), _settled(page, attempt=2)], {}
        )
    snapshot = _load(open_store)
    _expect(list(snapshot.waiting), [], "the last word on a page counts, also within one batch")
    _expect(snapshot.sites[0].done, 1, "it is done once")
    _expect(snapshot.sites[0].wire_bytes, 3 * 1100, "and the bytes of every attempt have crossed the link")


def check_found_and_settled_in_one_batch(open_store: OpenStore) -> None:
    page, link = _page(1), _page(2)
    with _begun(open_store) as store:
        store.commit([SaveFound((page,)), _settled(page, links=(link, page)), SaveFound((link,))], {})
    snapshot = _load(open_store)
    _expect([record.page for record in snapshot.waiting], [link], "only the link waits")
    _expect(_keys(snapshot), {page.key, link.key}, "both are seen")


def check_a_known_page_is_not_queued_again(open_store: OpenStore) -> None:
    done, waiting, new = _page(1), _page(2), _page(3)
    with _begun(open_store) as store:
        store.commit([SaveFound((done, waiting))], {})
        store.commit([_settled(done)], {})
        store.commit([SaveFound((done, new, waiting, new))], {})
    snapshot = _load(open_store)
    _expect([record.page for record in snapshot.waiting], [waiting, new], "known pages keep their place")
    _expect(len(snapshot.seen), 3, "and are seen once")


def check_a_page_excluded_unfound_is_seen_and_opens_no_site(open_store: OpenStore) -> None:
    page = _page(1, _OTHER_SITE)
    excluded = SaveSettled(page, Outcome(Kind.OUT_OF_SCOPE, detail="host"), PageState.EXCLUDED, 0, _BEGAN_AT)
    with _begun(open_store) as store:
        store.commit([excluded], {})
    snapshot = _load(open_store)
    _expect(_keys(snapshot), {page.key}, "it is not judged twice")
    _expect(list(snapshot.waiting), [], "it does not wait")
    _expect(list(snapshot.sites), [], "a site that only was linked to has no books")


def check_sites_keep_their_sums(open_store: OpenStore) -> None:
    pages = tuple(map(_page, range(5)))
    with _begun(open_store) as store:
        store.commit([SaveFound(pages)], {})
        store.commit([_settled(pages[0]), _settled(pages[1])], {})
        store.commit([_settled(pages[2], PageState.FAILED, Kind.SERVER_ERROR)], {})
        store.commit([_settled(pages[3], PageState.EXCLUDED, Kind.LIMIT)], {})
    (record,) = _load(open_store).sites
    _expect((record.done, record.failed, record.excluded), (2, 1, 1), "pages by their state")
    _expect((record.wire_bytes, record.content_bytes), (4400, 4000), "bytes of all answers")
    _expect(record.started_at, _BEGAN_AT + 9.5, "the site began when its first page was asked for")


def check_sites_keep_their_politeness(open_store: OpenStore) -> None:
    free_at, expires_at, ended_at = (
        Instant(1_700_000_100.125),
        Instant(1_700_086_400.0),
        Instant(1_700_000_200.5),
    )
    with _begun(open_store) as store:
        store.commit(
            [SaveSite(_SITE, Instant(1.0), 0, "User-agent: *\nDisallow: /é", expires_at, ended_at)], {}
        )
        store.commit([SaveSite(_OTHER_SITE, Instant(2.0), 1, "", expires_at)], {})
        store.commit([SaveSite(_SITE, free_at, 3)], {})
    first, second = _load(open_store).sites
    _expect((first.site, first.free_at, first.failures_in_a_row), (_SITE, free_at, 3), "the last word counts")
    _expect(first.robots_text, "User-agent: *\nDisallow: /é", "no text means: unchanged")
    _expect(first.robots_expires_at, expires_at, "no expiry means: unchanged")
    _expect(first.ended_at, None, "a site that has pages again has not ended")
    _expect(second.robots_text, "", "an empty robots.txt is one, too")


def check_tasks_are_kept_exactly_and_in_order(open_store: OpenStore) -> None:
    plain = Task(_OTHER_SITE)
    full = Task(
        _SITE,
        seeds=("https://www.example.org/", "https://www.example.org/a?b=ü"),
        deadline_at=Instant(1_700_003_600.125),
        weight=2.5,
        max_pages=100,
        max_bytes=Bytes(10**12),
        expected_bytes=Bytes(5),
        cap_bytes_per_s=BytesPerSecond(math.inf),
    )
    with _begun(open_store) as store:
        store.commit([SaveTasks((Task(_SITE), plain))], {})
        store.commit([SaveTasks((full,))], {})
    _expect(list(_load(open_store).tasks), [full, plain], "a later task replaces the site's, in its place")


def check_the_first_capture_of_a_content_is_found(open_store: OpenStore) -> None:
    first, second, third, uncaptured = pages = tuple(map(_page, range(4)))
    with _begun(open_store) as store:
        store.commit([SaveFound(pages), _settled(uncaptured, digest="sha1:LOST", capture=False)], {})
        store.commit([_settled(first, digest="sha1:SAME"), _settled(third, digest="sha1:OTHER")], {})
        store.commit([_settled(second, digest="sha1:SAME")], {})
        expected = Original(first.url, Instant(_BEGAN_AT + 9.5))
        _expect(store.find_digest("sha1:SAME"), expected, "the first capture, as of its request")
    with _opened(open_store) as store:
        _expect(store.find_digest("sha1:SAME"), expected, "also after a restart")
        _expect(store.find_digest("sha1:LOST"), None, "what no archive holds cannot be referred to")
        _expect(store.find_digest("sha1:NONE"), None, "an unknown content is unknown")


def check_servers_are_remembered(open_store: OpenStore) -> None:
    with _begun(open_store) as store:
        store.commit([SaveServers((("192.0.2.1", b"old"), ("192.0.2.2", b"\x00two")))], {})
        store.commit([SaveServers((("192.0.2.1", b"new"),))], {})
    servers = [tuple(row) for row in _load(open_store).servers]
    _expect(servers, [("192.0.2.1", b"new"), ("192.0.2.2", b"\x00two")], "what was last learnt of each")


def check_file_lengths_are_committed(open_store: OpenStore) -> None:
    with _begun(open_store) as store:
        store.commit([], {"archive/a.warc.gz": 10, "pages.jsonl": 0})
        store.commit([_settled(_page(1))], {"archive/a.warc.gz": 25, "archive/b.warc.gz": 7})
    expected = {"archive/a.warc.gz": 25, "archive/b.warc.gz": 7, "pages.jsonl": 0}
    with _opened(open_store) as store:
        _expect(dict(store.committed_lengths()), expected, "the last length of every file ever named")


def check_odd_values_survive(open_store: OpenStore) -> None:
    pages = (
        Page(_SITE + "/ü\x00\n'\";--%", _SITE, PageKey(2**63 - 1), depth=10**6, score=-0.125),
        Page("not a URL of its site", _SITE, PageKey(-(2**63))),
        Page("/", _SITE, PageKey(0)),
        Page(_SITE, _SITE, PageKey(-1)),
        Page(_SITE + "x/", _SITE, PageKey(1)),
        Page(_SITE + "/" + "long" * 50_000, _SITE, PageKey(2)),
    )
    odd = Outcome(Kind.PROTOCOL, detail="half a pair \udc80 and \x00", content_type="text/ü\udcff")
    with _begun(open_store) as store:
        store.commit([SaveFound(pages)], {})
        store.commit([SaveSettled(pages[2], odd, PageState.FAILED, 0, _BEGAN_AT)], {})
    snapshot = _load(open_store)
    _expect(
        tuple(record.page for record in snapshot.waiting), pages[:2] + pages[3:], "pages are kept exactly"
    )
    _expect(_keys(snapshot), {page.key for page in pages}, "keys have 64 bits and a sign")


def check_large_batches_are_kept_whole(open_store: OpenStore) -> None:
    pages = [_page(number, Site(f"http://host{number % 37}.example")) for number in range(3000)]
    with _begun(open_store) as store:
        store.commit([SaveFound(tuple(pages))], {})
        store.commit([_settled(page, links=tuple(pages[:22])) for page in pages[:1000]], {})
    snapshot = _load(open_store)
    _expect([record.page for record in snapshot.waiting], pages[1000:], "what was not settled waits")
    _expect(sum(record.done for record in snapshot.sites), 1000, "what was settled counts")
    _expect(len(snapshot.seen), 3000, "and all is seen")


STORE_CHECKS: tuple[Callable[[OpenStore], None], ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)


def _expect(actual: object, wanted: object, claim: str) -> None:
    if actual != wanted:
        raise AssertionError(f"{claim}: wanted {wanted!r}, got {actual!r}")


@contextmanager
def _opened(open_store: OpenStore) -> Iterator[Store]:
    store = open_store()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _begun(open_store: OpenStore) -> Iterator[Store]:
    with _opened(open_store) as store:
        store.create(_BEGAN_AT, {"urls": ["https://www.example.org/"], "bandwidth": "1 MB/s"})
        yield store


def _load(open_store: OpenStore) -> Snapshot:
    with _opened(open_store) as store:
        snapshot = store.load()
    if snapshot is None:
        raise AssertionError("a crawl that was begun is loaded: wanted a Snapshot, got None")
    return snapshot


def _first(store: Store, most: int) -> list[Page]:
    return [record.page for record in store.first_waiting(_SITE, most)]


def _keys(snapshot: Snapshot) -> set[int]:
    return {int(key) for key in snapshot.seen}


def _page(number: int, site: Site = _SITE) -> Page:
    return Page(
        f"{site}/page/{number}",
        site,
        PageKey(number * 2_654_435_761 + len(site)),
        depth=number % 9,
        score=number / 7,
    )


def _settled(
    page: Page,
    state: PageState = PageState.DONE,
    kind: Kind = Kind.FETCHED,
    *,
    attempt: int = 0,
    retry_at: Instant | None = None,
    digest: str = "",
    capture: bool = True,
    links: tuple[Page, ...] = (),
) -> SaveSettled:
    outcome = Outcome(
        kind,
        200,
        wire_bytes=1100,
        duration_s=Seconds(0.5),
        content_type="text/html",
        content_bytes=1000,
        digest=digest,
    )
    where = Capture("archive/a.warc.gz", 0, 10) if capture else None
    return SaveSettled(page, outcome, state, attempt, Instant(_BEGAN_AT + 10), retry_at, where, links)
