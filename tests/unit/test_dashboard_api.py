"""The dashboard's API over a real port: what it says of a run, what it takes, and whom it lets in."""

from __future__ import annotations

import http.client
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")

from tests.support.runs import BOUND, PAGE_BYTES, make_run

from headway.dashboard.answers import WatchedRun
from headway.dashboard.application import Served, new_token
from headway.errors import StoreError
from headway.model.command import AddSite, SetDeadline, StopSite
from headway.runtime.control import LIMIT_FILE, OrderWatch
from headway.store.rows import Gauges
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant

A, B = "http://a.test", "http://b.test:8080"
TOKEN = new_token()


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            data = None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                given.setdefault("content-type", "application/json")
            connection.request(method, path, data, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def look(self, path: str) -> Any:
        status, _, body = self.ask("GET", f"/api/v1/{path}")
        assert status == 200, body
        return json.loads(body)

    def order(self, wish: object, token: str = TOKEN) -> tuple[int, dict[str, Any]]:
        status, _, body = self.ask("POST", "/api/v1/orders", wish, authorization=f"Bearer {token}")
        return status, json.loads(body)


def serving(folder: Path, host: str = "127.0.0.1") -> Iterator[Client]:
    ready: queue.Queue[Served] = queue.Queue()

    def serve() -> None:
        served = Served(folder, host=host, port=0, token=TOKEN)
        served.run(on_ready=lambda: ready.put(served))

    thread = threading.Thread(target=serve)
    thread.start()
    served = ready.get(timeout=30)
    try:
        yield Client(served.port)
    finally:
        served.stop()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", [A, B], pages=20, waiting=5)
    return tmp_path / "run"


@pytest.fixture
def client(run: Path) -> Iterator[Client]:
    yield from serving(run)


@pytest.fixture
def public(run: Path) -> Iterator[Client]:
    yield from serving(run, "0.0.0.0")


# -- what it says -------------------------------------------------------------------------------------------


def test_tells_the_sums_of_the_run(client: Client) -> None:
    run = client.look("run")
    assert (run["done"], run["failed"], run["sites"]) == (36, 4, 2)
    assert run["wire_bytes"] == 40 * PAGE_BYTES
    assert run["state"] == "stopped"
    assert run["waiting"] == 10
    assert {"state": "failed", "kind": "server-error", "count": 4} in run["errors"]


def test_the_link_has_a_point_a_second_with_bound_and_prediction(client: Client) -> None:
    link = client.look("link")
    assert len(link) == 20
    assert all(point["rate_bytes_per_s"] == pytest.approx(2 * PAGE_BYTES) for point in link)
    assert {point["bound_bytes_per_s"] for point in link} == {BOUND}
    assert {point["predicted_bytes_per_s"] for point in link} == {0.9 * BOUND}
    middle = link[9]["at"]
    assert client.look(f"link?after={middle}") == link[10:]


def test_sites_can_be_found_sorted_and_paged(client: Client) -> None:
    both = client.look("sites?sort=site")
    assert [line["site"] for line in both["sites"]] == [A, B]
    assert [line["site"] for line in client.look("sites?sort=site&descending=true")["sites"]] == [B, A]
    assert [line["site"] for line in client.look("sites?contains=B.TEST")["sites"]] == [B]
    second = client.look("sites?sort=site&offset=1&limit=1")
    assert (second["total"], [line["site"] for line in second["sites"]]) == (2, [B])
    assert client.look("sites?state=missed")["total"] == 2
    assert client.look("sites?state=fetching")["total"] == 0


def test_one_site_has_its_course(client: Client) -> None:
    number = client.look(f"sites?contains={A[7:]}")["sites"][0]["number"]
    detail = client.look(f"sites/{number}")
    assert detail["line"]["site"] == A
    assert [point["wire_bytes"] for point in detail["course"]] == [PAGE_BYTES * n for n in range(1, 21)]
    assert client.ask("GET", "/api/v1/sites/99")[0] == 404
    assert client.ask("GET", "/api/v1/sites/x")[0] == 400


def test_now_is_everything_in_one_answer(client: Client) -> None:
    now = client.look("now?limit=1")
    assert now["run"]["name"] == "run"
    assert len(now["link"]) == 20
    assert (now["sites"]["total"], len(now["sites"]["sites"])) == (2, 1)


def test_happenings_have_the_failures_newest_first(client: Client) -> None:
    failures = client.look("happenings?limit=3")["failures"]
    assert len(failures) == 3
    assert [failure["at"] for failure in failures] == sorted((f["at"] for f in failures), reverse=True)
    assert failures[0]["kind"] == "server-error"


@pytest.mark.parametrize(
    "path",
    [
        "sites?sort=colour",
        "sites?limit=0",
        "sites?limit=many",
        "sites?offset=-1",
        "sites?descending=1",
        "sites?limit=1&limit=2",
        "sites?sorted=site",
        "link?after=nan",
        "run?x=1",
    ],
)
def test_a_bad_request_gets_the_reason(client: Client, path: str) -> None:
    status, _, body = client.ask("GET", f"/api/v1/{path}")
    assert status == 400
    assert json.loads(body)["problem"]


def test_metrics_have_conventional_names(client: Client) -> None:
    status, headers, body = client.ask("GET", "/metrics")
    text = body.decode()
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert f"headway_bytes_downloaded_total {40 * PAGE_BYTES:.1f}" in text
    assert "headway_pages_fetched_total 36.0" in text
    assert 'headway_errors_total{kind="server-error",state="failed"} 4.0' in text
    assert "# TYPE headway_pages_waiting gauge" in text


def test_metrics_are_read_by_prometheus_own_parser(client: Client) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as plain

    body = client.ask("GET", "/metrics")[2].decode()
    assert {family.name for family in plain(body)} >= {"headway_sites", "headway_link_rate_bytes_per_second"}
    accept = "application/openmetrics-text; version=1.0.0"
    assert list(openmetrics(client.ask("GET", "/metrics", accept=accept)[2].decode()))


# -- orders -------------------------------------------------------------------------------------------------


def test_an_order_for_a_crawl_that_is_not_running_waits_in_its_folder(client: Client, run: Path) -> None:
    status, accepted = client.order({"order": "stop", "site": A})
    assert (status, accepted["takes_effect"]) == (202, "when the crawl is started again")
    assert OrderWatch(run).lasting() == [StopSite(A)]


def test_each_order_reaches_the_folder(client: Client, run: Path) -> None:
    assert client.order({"order": "bandwidth", "bandwidth": "2 Mbit/s"})[0] == 202
    assert (run / LIMIT_FILE).read_text().strip() == "2 Mbit/s"
    assert client.order({"order": "bandwidth", "bandwidth": None})[0] == 202
    assert not (run / LIMIT_FILE).exists()
    before = time.time()
    assert client.order({"order": "deadline", "site": B, "deadline": "2 h"})[0] == 202
    assert client.order({"order": "deadline", "site": B, "deadline": None})[0] == 202
    assert client.order({"order": "add", "url": "http://c.test/x", "max_pages": 7})[0] == 202
    later, none, added = OrderWatch(run).lasting()
    assert isinstance(later, SetDeadline)
    assert later.deadline_at is not None
    assert 7100 < later.deadline_at - before < 7300
    assert none == SetDeadline(B, None)
    assert isinstance(added, AddSite)
    assert (added.task.site, added.task.max_pages, added.pages[0].url) == (
        "http://c.test",
        7,
        "http://c.test/x",
    )


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"order": "stop", "site": "http://other.test"}, 404),
        ({"order": "pause"}, 409),
        ({"order": "bandwidth", "bandwidth": "fast"}, 422),
        ({"order": "bandwidth", "bandwidth": "0 B/s"}, 422),
        ({"order": "deadline", "site": A, "deadline": "soon"}, 422),
        ({"order": "add", "url": "ftp://c.test/"}, 422),
        ({"order": "dance"}, 400),
        ({"order": "stop"}, 400),
        ({"order": "pause", "really": True}, 400),
        ([], 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        ({"order": "stop", "site": "x" * 20_000}, 413),
    ],
)
def test_an_order_that_makes_no_sense_changes_nothing(
    client: Client, run: Path, wish: object, status: int
) -> None:
    told, body = client.order(wish)
    assert told == status
    assert body["problem"]
    assert OrderWatch(run).lasting() == []
    assert not (run / LIMIT_FILE).exists()


# -- who may ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer "],
    ids=["none", "wrong", "basic", "bare", "empty"],
)
def test_nothing_can_be_ordered_without_the_token(client: Client, run: Path, authorization: str) -> None:
    status, headers, _ = client.ask(
        "POST", "/api/v1/orders", {"order": "stop", "site": A}, authorization=authorization
    )
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert OrderWatch(run).lasting() == []


def test_an_order_must_be_json_even_with_the_token(client: Client) -> None:
    status, _, _ = client.ask(
        "POST",
        "/api/v1/orders",
        b'{"order":"pause"}',
        authorization=f"Bearer {TOKEN}",
        content_type="text/plain",
    )
    assert status == 415


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8077", "127.0.0.1.evil.test", ""])
def test_on_loopback_only_names_of_this_machine_are_answered_to(client: Client, host: str) -> None:
    assert client.ask("GET", "/api/v1/run", host=host)[0] == 421
    assert client.ask("GET", "/", host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8077", "127.9.9.9"])
def test_names_of_this_machine_are_answered_to(client: Client, host: str) -> None:
    assert client.ask("GET", "/api/v1/run", host=host)[0] == 200


def test_a_page_of_another_site_learns_nothing(client: Client) -> None:
    assert client.ask("GET", "/api/v1/run", sec_fetch_site="cross-site")[0] == 403
    assert client.ask("GET", "/api/v1/run", sec_fetch_site="same-origin")[0] == 200
    _, headers, _ = client.ask("OPTIONS", "/api/v1/orders", origin="http://evil.test")
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize("path", ["/api/v1/run", "/api/v1/now", "/api/v1/sites/1", "/metrics", "/elsewhere"])
def test_off_loopback_nothing_is_seen_without_the_token(public: Client, path: str) -> None:
    assert public.ask("GET", path)[0] == 401
    status = public.ask("GET", path, authorization=f"Bearer {TOKEN}")[0]
    assert status == (404 if path == "/elsewhere" else 200)


def test_off_loopback_the_empty_page_is_served_to_enter_a_token(public: Client) -> None:
    assert public.ask("GET", "/")[0] == 200
    assert public.ask("GET", "/static/main.js")[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/static/style.css", "/api/v1/run", "/metrics", "/nowhere", "/api/openapi.json"]
)
def test_every_answer_has_the_strict_policy(client: Client, path: str) -> None:
    _, headers, _ = client.ask("GET", path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/static/../application.py", "/static/%2e%2e/application.py", "/static//etc/passwd"]
)
def test_nothing_beside_the_page_is_served(client: Client, path: str) -> None:
    assert client.ask("GET", path)[0] == 404


def test_two_tokens_are_never_alike() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert all(len(new_token()) >= 32 for _ in range(3))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        Served(tmp_path, host="127.0.0.1", port=0, token=TOKEN)


def test_a_damaged_run_is_reported(run: Path) -> None:
    ticking = iter(range(1_900_000_000, 1_900_000_100))
    watching = WatchedRun(run, clock=lambda: float(next(ticking)))
    try:
        assert watching.picture().run.done == 36
        (run / "crawl.sqlite").write_bytes(b"something else" * 1000)
        with pytest.raises(StoreError, match=r"crawl\.sqlite"):
            watching.picture()
    finally:
        watching.close()


def test_the_run_is_read_once_a_second_however_many_look_on(run: Path) -> None:
    now = [1_900_000_000.0]
    watching = WatchedRun(run, clock=lambda: now[0])
    try:
        first = watching.picture()
        now[0] += 0.5
        assert watching.picture() is first
        now[0] += 0.5
        assert watching.picture() is not first
    finally:
        watching.close()


def test_waiting_pages_are_counted_if_no_sample_has_their_number(run: Path) -> None:
    """As in a run by several processes, whose samples have the link alone."""
    connection = sqlite3.connect(run / "crawl.sqlite")
    connection.execute("UPDATE sample SET waiting = NULL, in_flight = NULL, predicted_bytes_per_s = NULL")
    connection.execute("UPDATE site SET waiting = NULL, left_bytes = NULL")
    connection.commit()
    connection.close()
    watching = WatchedRun(run)
    try:
        picture = watching.picture()
        assert picture.run.waiting == 10
        assert [line.waiting for line in picture.sites] == [5, 5]
        assert all(0.7 < line.progress < 0.9 for line in picture.sites)
    finally:
        watching.close()


def test_a_crawl_that_looks_at_no_orders_takes_none(run: Path) -> None:
    store = SqliteStore(run / "crawl.sqlite")
    try:
        for in_flight in (3, None):
            at = Instant(1_900_000_000.0)
            store.record_sample(at, 1, BytesPerSecond(1000.0), Gauges(in_flight=in_flight))
            store.commit((), {})
            watching = WatchedRun(run, clock=lambda: 1_900_000_000.5)
            assert watching.picture().run.state == "running"
            assert watching.picture().run.takes_orders is (in_flight is not None)
            watching.close()
    finally:
        store.close()
