"""The how-tos that need a server are followed with real ones: Squid, PostgreSQL, the dashboard's own."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb
from tests.support.postgres import TemporaryPostgres, find_postgres
from tests.support.squid import SquidProcess, find_squid, free_port, helper_command

from docpages import DONE, INTERRUPTED, changed, commands, followed, run, started

HOST = "www.example.org"
BOOK = b"""<h1>On <i>Crawling</i></h1><p class="price">12,50 EUR</p><img class="cover" src="/1.png">
<ul class="tags"><li>web<li>time</ul>
<div class="review" data-stars="5"><p>A good
 read.</div><div class="review"><p>No stars.</div>"""
PAGES = {"/": b'<a href="/book/1.html">a book</a>', "/book/1.html": BOOK}

needs_squid = pytest.mark.skipif(find_squid() is None, reason="squid is not installed")


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None: ...


@contextmanager
def shop(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a site with two pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# -- a proxy ------------------------------------------------------------------------------------------------


@needs_squid
def test_a_crawl_goes_through_a_proxy_with_a_login_as_the_page_says(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    checker = Path("/usr/lib/squid/basic_ncsa_auth")
    if not checker.exists() or shutil.which("openssl") is None:
        pytest.skip("Squid's basic_ncsa_auth or openssl is not installed")
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert(HOST).configure_cert(tls)
    folder = tmp_path / "squid"
    folder.mkdir()
    (folder / "users").write_text(f"crawler:{run('openssl passwd -apr1 my-password', tmp_path)}")
    access = (
        f"auth_param basic program {checker} {folder}/users\nacl known proxy_auth REQUIRED\n"
        f"http_access allow known\nhttp_access deny all"
    )
    log = f"access_log stdio:{folder}/access.log"
    with (
        shop(tls) as port,
        SquidProcess(folder, access=access, more=log, hosts=(HOST,)) as squid,
        followed("docs/how-to/proxies.md") as page,
    ):
        ours = {
            "proxy.example.org:3128": f"127.0.0.1:{squid.port}",
            f"https://{HOST}/": f"https://{HOST}:{port}/",
            "[crawl]\n": '[crawl]\nca_file = "ca.pem"\ninterval = "10 ms"\n',
        }
        (tmp_path / "job.toml").write_text(changed(page.take("toml"), ours))
        run("headway crawl job.toml -q -o run", tmp_path)
    assert len(lines_of(tmp_path / "run" / "pages.jsonl")) == len(PAGES)
    tunnels = [line for line in lines_of(folder / "access.log") if f"CONNECT {HOST}:{port} crawler" in line]
    assert tunnels
    kept = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"my-password" not in kept


@needs_squid
def test_what_people_ask_squid_for_is_kept_fresh_as_the_page_says(tmp_path: Path) -> None:
    port = free_port()
    with followed("docs/how-to/squid.md") as page, shop() as site_port:
        site = f"http://{HOST}:{site_port}/"
        crawl, listen, print_config = commands(page.take("sh"))
        counts, helper, log = page.take("text"), page.take("squid"), page.take("squid")
        with SquidProcess(tmp_path / "squid", hosts=(HOST,)) as squid:
            (tmp_path / "job.toml").write_text(
                f'[crawl]\nproxy = "{squid.url}"\ninterval = "10 ms"\n[crawl.scope]\n'
                f'hosts = ["{HOST}:{site_port}"]\nsuffixes = [".example.net"]\n[[site]]\nurl = "{site}"\n'
            )
            run(crawl, tmp_path)
        folder = str(tmp_path / "run")
        printed = run(print_config, tmp_path)
        installed = run("command -v headway-squid-helper", tmp_path).strip()
        theirs = {"/usr/local/bin/headway-squid-helper": installed, "/path/to/run": folder}
        assert changed(helper, theirs) in printed
        assert log in printed.replace("\n#", "\n")

        # Squid's user cannot get to a Python in somebody's home, nor to the folder of a test.
        program = helper_command(tmp_path / "squid", "").rstrip()
        by_helper = changed(helper, {"/usr/local/bin/headway-squid-helper": program, "/path/to/run": folder})
        by_log = changed(log, {":4801": f":{port}"})
        ways = {"": f"access_log none\n{by_helper}", f" --listen tcp:127.0.0.1:{port}": by_log}
        for options, configuration in ways.items():
            ours = {
                "http://127.0.0.1:3128": squid.url,
                "listen-squid run": f"listen-squid run --delay 0s --interval 0s --refresh-after 0s{options}",
            }
            with started(changed(listen, ours), tmp_path) as listening:
                listening.until(lambda options=options: can_hear(tmp_path / "run", port if options else None))
                open_to_squid(tmp_path / "run")
                with SquidProcess(tmp_path / "squid", more=configuration, hosts=(HOST,), port=squid.port):
                    heard = looked_at(tmp_path / "run")
                    ask(squid.url, site)
                    listening.until(lambda heard=heard: looked_at(tmp_path / "run") > heard)
                    said = listening.interrupted(DONE)
            (name,) = re.findall(r"^(.+?)\s{2,}", counts)
            assert re.search(rf"^{name} +[1-9]\d* +\d+\.\d%$", said, re.MULTILINE), said


def can_hear(folder: Path, port: int | None) -> bool:
    if port is None:
        return (folder / "announced" / "helper.sock").exists()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def open_to_squid(folder: Path) -> None:
    """Squid's user may reach the socket, as the page asks for."""
    for path in (folder, folder / "announced", *folder.glob("announced/*.sock")):
        path.chmod(0o777)


def looked_at(folder: Path) -> int:
    path = folder / "announced" / "collector.json"
    counts = json.loads(path.read_text()) if path.exists() else {}
    return sum(counts.get(name, 0) for name in ("updates", "fresh", "new"))


def ask(proxy: str, url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    opener.open(url, timeout=10).close()


# -- several machines ---------------------------------------------------------------------------------------


def test_a_fleet_is_set_up_as_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    programs = find_postgres()
    if programs is None or not (programs / "psql").exists():
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with (
        TemporaryPostgres() as server,
        FleetWeb(sites=4, pages=12) as web,
        followed("docs/how-to/fleet.md") as page,
    ):
        place = f"127.0.0.1:{server.port}"
        install, crawl, collect, status = commands(page.take("sh"))
        beginning, once_more, granting = page.take("sql").partition("-- once for each crawl")
        assert once_more

        def psql(user: str, database: str, script: str) -> None:
            address = f"postgresql://{user}@{place}/{database}"
            run(f"{programs}/psql -q -v ON_ERROR_STOP=1 {address} <<'END'\n{script}\nEND", tmp_path)

        # The server's first role is called as the page calls its own: it makes room.
        psql("headway", "postgres", "CREATE ROLE admin LOGIN SUPERUSER")
        psql("admin", "postgres", "ALTER ROLE headway RENAME TO first")
        psql("admin", "postgres", beginning)
        sites = "".join(f'[[site]]\nurl = "{seed}"\n' for seed in web.seeds)
        (tmp_path / "job.toml").write_text(f'[crawl]\nallow_private = true\ninterval = "0.4 s"\n{sites}')
        ours = {"db.example": place}
        run(install, tmp_path)
        with started(changed(crawl, ours), tmp_path) as first:
            first.until(lambda: bool(web.asked))
            psql("headway", "crawls", f"{once_more}{granting}")
            as_collector = {**ours, "headway@": "collector@", "-o collector": "-o other"}
            with (
                started(changed(collect, ours), tmp_path) as second,
                started(changed(collect, as_collector), tmp_path) as third,
            ):
                for each in (first, second, third):
                    each.ends(DONE)
        assert re.search(r"\b48\b", run(changed(status, ours), tmp_path))
        assert web.judge(0.4).lost == 0


# -- the dashboard ------------------------------------------------------------------------------------------


def test_a_crawl_is_seen_as_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")
    parser = pytest.importorskip("prometheus_client.parser")
    yaml = pytest.importorskip("yaml")
    if shutil.which("curl") is None or shutil.which("jq") is None:
        pytest.skip("curl or jq is not installed")
    with FleetWeb(sites=2, pages=40) as web, followed("docs/how-to/dashboard.md") as page:
        crawl, serve = commands(page.take("sh"))
        afterwards, asking, scraping = page.take("sh"), page.take("sh"), page.take("yaml")
        # Forty pages of a site at this interval do not end while we look at them.
        sites = "".join(f'[[site]]\nurl = "{seed}"\n' for seed in web.seeds)
        (tmp_path / "job.toml").write_text(f'[crawl]\nallow_private = true\ninterval = "1 s"\n{sites}')
        with started(changed(crawl, {"--serve": "--serve --serve-port 0"}), tmp_path) as crawling:
            port, token = crawling.says(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)").groups()
            crawling.until(lambda: bool(web.asked))
            said = run(changed(asking, {"8077": port}), tmp_path, TOKEN=token)
            assert said.startswith('"running"\n'), said
            crawling.until((tmp_path / "run/bandwidth").exists)
            crawling.until(lambda: '"set-capacity"' in (tmp_path / "run/decisions.jsonl").read_text())
            crawling.until(lambda: bool(lines_of(tmp_path / "run/pages.jsonl")))
            crawling.interrupted(INTERRUPTED)
        opened = tmp_path / "opened"
        browser = tmp_path / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        browser.chmod(0o755)
        run(afterwards, tmp_path, BROWSER=str(browser))
        assert opened.read_text().strip() == (tmp_path / "run/report/report.html").as_uri()
        assert (tmp_path / "pages.parquet").stat().st_size
        with started(changed(serve, {"serve run": "serve run --port 0"}), tmp_path) as serving:
            port, token = serving.says(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)").groups()
            ours = {"the token, unless on loopback": token, "8077": port}
            (scrape,) = yaml.safe_load(changed(scraping, ours))["scrape_configs"]
            metrics = "".join(as_prometheus_asks(scrape))
            serving.interrupted(DONE)
        found = {family.name for family in parser.text_string_to_metric_families(metrics)}
        assert "headway_pages_fetched" in found


def as_prometheus_asks(scrape: dict) -> Iterator[str]:
    assert set(scrape) <= {"job_name", "scrape_interval", "authorization", "static_configs"}
    headers = {"Authorization": f"Bearer {scrape['authorization']['credentials']}"}
    for target in (target for config in scrape["static_configs"] for target in config["targets"]):
        asked = urllib.request.Request(f"http://{target}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=10) as answer:
            yield answer.read().decode()


# -- items --------------------------------------------------------------------------------------------------


def test_the_extraction_how_to_gives_the_items_that_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("parsel")
    with shop() as port, followed("docs/how-to/extraction.md") as page:
        ours = {"https://shop.example.org/": f"http://127.0.0.1:{port}/"}
        run(page.take("sh"), tmp_path)
        job = changed(page.take("toml"), ours)
        (tmp_path / "job.toml").write_text(f'[crawl]\nallow_private = true\ninterval = "10 ms"\n{job}')
        run("headway crawl job.toml -q -o run", tmp_path)
        shown = changed(page.take("json"), ours).splitlines()
    found = lines_of(tmp_path / "run" / "items.jsonl")
    assert [json.loads(line) for line in found] == [json.loads(line) for line in shown]
