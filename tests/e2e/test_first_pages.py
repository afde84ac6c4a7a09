"""What a person means by a site: redirects of its address, servers that are down, pages that are bad."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.store.reader import knowledge_of_run

HEADWAY = [sys.executable, "-m", "headway"]
JOB = """\
[crawl]
interval = "5 ms"
retry_penalty = "20 ms"
backoff = "20 ms"
max_backoff = "200 ms"
allow_private = true
"""
Answer = tuple[int, bytes, dict[str, str]]


def html(*links: str) -> Answer:
    text = "".join(f'<a href="{link}">to {link}</a>' for link in links)
    return 200, f"<title>A page</title><p>some words</p>{text}".encode(), {"Content-Type": "text/html"}


def to(target: str) -> Answer:
    return 301, b"", {"Location": target}


class Site:
    """A web site whose answers a function gives; it can be taken down and put up again."""

    def __init__(self, answer: Callable[[str], Answer], host: str = "127.0.0.1") -> None:
        self.answer = answer
        self.host = host
        self.asked: Counter[str] = Counter()
        self.port = 0
        self.up()

    @property
    def name(self) -> str:
        return f"http://{self.host}:{self.port}"

    def up(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.asked[self.path] += 1
                status, body, headers = (404, b"", {}) if "robots" in self.path else site.answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def new_site() -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(answer: Callable[[str], Answer], host: str = "127.0.0.1") -> Site:
        sites.append(Site(answer, host))
        return sites[-1]

    yield make
    for site in sites:
        site.down()


def pages(path: str) -> Answer:
    return html(*(f"/page{number}" for number in range(5))) if path in {"/", "/de/"} else html()


def crawl(folder: Path, job: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (folder / "job.toml").write_text(JOB + job)
    done = subprocess.run(
        [*HEADWAY, "crawl", "job.toml", "--json", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
    )
    assert "a bug in headway" not in done.stderr, done.stderr
    summary = json.loads(done.stdout) if done.stdout else {"sites": []}
    return done, {site["site"]: site for site in summary["sites"]}


def site_table(url: str, **keys: object) -> str:
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[[site]]\nurl = "{url}"\n{lines}'


def test_the_site_that_a_chain_of_redirects_leads_to_takes_over_the_task(
    tmp_path: Path, new_site: Callable[..., Site]
) -> None:
    last = new_site(lambda path: to("/de/") if path == "/" else pages(path), "www.localhost")
    middle = new_site(lambda path: to(f"http://127.0.0.1:{last.port}/"))
    first = new_site(lambda path: to(f"{middle.name}/"))
    last.host = "127.0.0.1"
    job = site_table(f"{first.name}/", deadline="1 h", max_pages=4)
    done, sites = crawl(tmp_path, job)
    assert done.returncode == 0, done.stderr
    assert sites[last.name]["verdict"] == "met"
    assert sites[last.name]["done"] == 4, "its limit is that of the task"
    assert sites[last.name]["deadline_s"] == 3600
    assert sites[first.name]["verdict"] == sites[middle.name]["verdict"] == "redirects"
    assert sites[first.name]["leads_to"] == f"{middle.name}/"
    assert sites[first.name]["deadline_s"] is None
    again, sites = crawl(tmp_path, job)
    assert again.returncode == 0, again.stderr
    assert sites[last.name]["verdict"] == "met", "the same command finds the same task"
    shown = subprocess.run(
        [*HEADWAY, "status", "run"], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert f"{first.name} -> {middle.name}/" in " ".join(shown.split())


@pytest.mark.parametrize("deadline", ["1 h", None])
def test_a_redirect_out_of_scope_is_a_failure_that_names_the_cure(
    tmp_path: Path, new_site: Callable[..., Site], deadline: str | None
) -> None:
    good = new_site(pages)
    gone = new_site(lambda path: to(f"http://elsewhere.example:{good.port}/"), "gone.test")
    gone.host = "127.0.0.1"
    scope = '[crawl.scope]\ndeny = ["/shut/"]\n'
    shut = new_site(lambda path: to(f"{good.name}/shut/x"))
    keys = {"deadline": deadline} if deadline else {}
    done, sites = crawl(
        tmp_path, scope + site_table(f"{good.name}/", **keys) + site_table(f"{shut.name}/", **keys)
    )
    assert done.returncode == 3, done.stderr
    assert sites[good.name]["verdict"] == ("met" if deadline else "done")
    assert sites[shut.name]["verdict"] == ("missed" if deadline else "failed")
    alone, _ = crawl(tmp_path, scope + site_table(f"{shut.name}/"), "-o", "alone")
    assert alone.returncode == 1
    assert f'give url = "{good.name}/shut/x"' in alone.stderr


@pytest.mark.parametrize(
    "answer",
    [
        lambda path: (404, b"", {}),
        lambda path: to("/" if path == "/b" else "/b"),
        lambda path: to("/"),
        lambda path: (403, b"", {}),
    ],
    ids=["404", "loop", "to-itself", "403"],
)
def test_a_site_without_its_first_page_is_not_met(
    tmp_path: Path, new_site: Callable[..., Site], answer: Callable[[str], Answer]
) -> None:
    bad, good = new_site(answer), new_site(pages)
    job = site_table(f"{bad.name}/", deadline="1 h") + site_table(f"{good.name}/", deadline="1 h")
    done, sites = crawl(tmp_path, job)
    assert done.returncode == 3, done.stderr
    assert sites[bad.name]["verdict"] == "missed"
    assert f"{bad.name}/" in sites[bad.name]["problem"]
    assert sites[good.name]["verdict"] == "met"


@pytest.mark.parametrize("status", [401, 404])
def test_a_site_that_answers_without_a_page_is_not_called_unreachable(
    tmp_path: Path, new_site: Callable[..., Site], status: int
) -> None:
    bad, good = new_site(lambda _: (status, b"", {})), new_site(pages)
    done, sites = crawl(tmp_path, site_table(f"{bad.name}/") + site_table(f"{good.name}/"))
    assert done.returncode == 3, done.stderr
    assert sites[bad.name]["verdict"] == "failed"
    assert f" {status})" in sites[bad.name]["problem"]
    assert sites[bad.name]["unreachable_since"] is None
    shown = subprocess.run(
        [*HEADWAY, "status", "run"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "unreachable" not in shown.stdout
    assert f"{bad.name}: first page not fetched: {bad.name}/ (" in shown.stdout


@pytest.mark.parametrize("how", ["refuses", "answers 500"])
def test_an_outage_costs_no_page(tmp_path: Path, new_site: Callable[..., Site], how: str) -> None:
    is_broken = threading.Event()

    def answer(path: str) -> Answer:
        if is_broken.is_set():
            return 502, b"", {}
        return html(*(f"/page{number}" for number in range(40))) if path == "/" else html()

    site = new_site(answer)

    def break_it() -> None:
        while sum(site.asked.values()) < 8:
            time.sleep(0.005)
        if how == "refuses":
            site.down()
        is_broken.set()
        time.sleep(2)
        is_broken.clear()
        if how == "refuses":
            site.up()

    breaking = threading.Thread(target=break_it)
    breaking.start()
    done, sites = crawl(tmp_path, site_table(f"{site.name}/", deadline="1 h"))
    breaking.join()
    assert done.returncode == 0, done.stderr
    assert (sites[site.name]["done"], sites[site.name]["failed"]) == (41, 0)


def test_a_server_that_was_down_is_tried_again_by_the_same_command(
    tmp_path: Path, new_site: Callable[..., Site]
) -> None:
    site, good = new_site(pages), new_site(pages)
    site.down()
    job = site_table(f"{site.name}/") + site_table(f"{good.name}/")
    done, sites = crawl(tmp_path, job)
    assert done.returncode == 3, "a site of the job was not crawled"
    assert sites[site.name]["verdict"] == "unreachable"
    assert sites[site.name]["unreachable_since"] is not None
    assert sites[good.name]["verdict"] == "done"
    site.up()
    done, sites = crawl(tmp_path, job)
    assert done.returncode == 0, done.stderr
    assert (sites[site.name]["verdict"], sites[site.name]["done"], sites[site.name]["failed"]) == (
        "done",
        6,
        0,
    )
    assert sites[site.name]["unreachable_since"] is None


def test_a_server_that_is_down_is_tried_until_its_deadline(
    tmp_path: Path, new_site: Callable[..., Site]
) -> None:
    site, good = new_site(pages), new_site(pages)
    site.down()
    threading.Timer(4.0, site.up).start()
    job = site_table(f"{site.name}/", deadline="1 h") + site_table(f"{good.name}/")
    done, sites = crawl(tmp_path, job)
    assert done.returncode == 0, done.stderr
    assert sites[site.name]["verdict"] == "met"


def test_bad_pages_do_not_stop_their_site(tmp_path: Path, new_site: Callable[..., Site]) -> None:
    def answer(path: str) -> Answer:
        if path == "/":
            return html(*(f"/page{number}" for number in range(30)))
        return (500, b"", {}) if path.endswith("7") else html()

    site = new_site(answer)
    # A site that stopped at each bad page would need three minutes.
    job = site_table(f"{site.name}/").replace("[[site]]", "x = 1\n[[site]]").replace("x = 1\n", "")
    (tmp_path / "job.toml").write_text("")
    slow = JOB.replace('backoff = "20 ms"', 'backoff = "20 s"', 1).replace('"200 ms"', '"20 s"')
    (tmp_path / "slow.toml").write_text(slow + job)
    done = subprocess.run(
        [*HEADWAY, "crawl", "slow.toml", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["sites"]
    assert (found["done"], found["failed"]) == (28, 3)


def test_a_host_that_does_not_exist_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('[[site]]\nurl = "http://no-such-host.invalid/"\ndeadline = "2 h"\n')
    done = subprocess.run(
        [*HEADWAY, "crawl", "job.toml"], check=False, capture_output=True, text=True, timeout=30, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "no such host: no-such-host.invalid" in done.stderr


def test_a_circle_of_redirects_is_no_crawled_site(tmp_path: Path) -> None:
    sites = [
        Site(lambda path: to("/")),
        Site(lambda path: to("/b" if path != "/b" else "/a")),
        Site(lambda path: to(f"/{int(path.strip('/') or 0) + 1}")),
    ]
    command = [
        *HEADWAY,
        "crawl",
        *(f"{site.name}/" for site in sites),
        "--allow-private",
        "--deadline",
        "30s",
    ]
    command += ["--interval", "1ms", "--forget", "--json", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    for site in json.loads(done.stdout)["sites"]:
        assert site["verdict"] == "missed", site
        assert "redirects" in site["problem"], site


def test_what_was_learnt_of_a_site_is_found_by_the_address_that_redirects_to_it(tmp_path: Path) -> None:
    home = Site(lambda path: html(*(f"/{number}" for number in range(9))))
    address = Site(lambda path: to(f"{home.name}/"))
    command = [*HEADWAY, "crawl", f"{address.name}/", "--allow-private", "--interval", "1ms", "--forget"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "run")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = knowledge_of_run(tmp_path / "run").sites
    by_name = {str(site): each for site, each in facts.items()}
    assert by_name[address.name] == by_name[home.name]
    assert by_name[home.name].data_bytes > 10 * 50
