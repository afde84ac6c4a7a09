"""What sites have of their own, as their servers see it: scope, headers, cookies, credentials, logins."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import pytest

SECRETS = {"SITE_KEY": "k-1b5f", "SITE_PASSWORD": "p-77ae", "SITE_LOGIN": "me:w-90cd", "SITE_TOKEN": "t-42fe"}
SESSION = "s-5533"
FORM = (
    "<form method=post action=/login><input type=hidden name=csrf value=xyz>"
    "<input name=user><input type=password name=password></form>"
)


class Asked(NamedTuple):
    method: str
    path: str
    headers: Message


class Handler(BaseHTTPRequestHandler):
    """Each folder is another kind of site."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, text: str = "", headers: Mapping[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "text/html"} | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def links(self, *targets: str, more: str = "") -> None:
        shown = "".join(f'<a href="{target}">to {target}</a>' for target in targets)
        self.answer(200, f"<title>{self.path}</title>{shown}{more}")

    def do_POST(self) -> None:
        self.note("POST")
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if sent.get("password") == [SECRETS["SITE_PASSWORD"]] and sent.get("csrf") == ["xyz"]:
            cookie = {"Set-Cookie": f"session={SESSION}; Path=/; HttpOnly", "Location": "/members/"}
            self.answer(303, headers=cookie)
        else:
            self.answer(200, FORM)

    def do_GET(self) -> None:
        self.note("GET")
        path, cookies = self.path, self.headers.get("Cookie", "")
        match path.split("/")[1]:
            case "robots.txt":
                self.answer(200, "User-agent: *\nDisallow: /closed/\n", {"Content-Type": "text/plain"})
            case "docs":
                self.links("/docs/a.html", "/other.html")
            case "old":
                self.answer(302, headers={"Location": "/new/index.html"})
            case "new":
                self.links("/new/1.html", "/other.html")
            case "login":
                self.answer(200, FORM)
            case "members" if f"session={SESSION}" not in cookies:
                self.answer(302, headers={"Location": "/login"})
            case "members":
                self.links("/members/1.html", more="Sign out")
            case "counted" if "seen=1" not in cookies:
                self.answer(302, headers={"Set-Cookie": "seen=1; Path=/", "Location": path})
            case "counted":
                self.links("/counted/1.html")
            case "basic":
                login = base64.b64encode(SECRETS["SITE_LOGIN"].encode()).decode()
                is_known = self.headers.get("Authorization") == f"Basic {login}"
                self.links("/basic/1.html") if is_known else self.answer(401)
            case "bearer":
                is_known = self.headers.get("Authorization") == f"Bearer {SECRETS['SITE_TOKEN']}"
                self.links("/bearer/1.html", self.server.other) if is_known else self.answer(401)  # type: ignore[attr-defined]
            case "sitemap-of-mine.xml":
                url = f"<url><loc>http://{self.headers['Host']}/lonely.html</loc></url>"
                self.answer(200, f"<urlset>{url}</urlset>", {"Content-Type": "application/xml"})
            case "":
                self.links("/closed/x.html", "/left-out.html", "/q?x=1", "/1/", "/keep.html")
            case _:
                self.links(*{"/1/": ["/1/2/"], "/1/2/": ["/1/2/3/"]}.get(path, []))

    def note(self, method: str) -> None:
        self.server.asked.append(Asked(method, self.path, self.headers))  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.other = "/"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def name(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def paths(self) -> set[str]:
        return {each.path for each in self.asked if each.path != "/robots.txt"}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    names = ("folder", "moved", "own", "member", "counted", "basic", "bearer", "plain", "port")
    made = {name: Server() for name in names}
    made["bearer"].other = f"{made['plain'].name}/from-bearer.html"
    yield made
    for server in made.values():
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def run(servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One crawl of all of them."""
    folder = tmp_path_factory.mktemp("settings")
    at = {name: server.name for name, server in servers.items()}
    (folder / "token").write_text(SECRETS["SITE_TOKEN"] + "\n")
    (folder / "job.toml").write_text(f"""\
[crawl]
interval = "5 ms"
allow_private = true

[[group]]
name = "own"
user_agent = "ownbot/2.0"
headers = {{ "X-Plain" = "yes", "X-Key" = "env:SITE_KEY" }}

[[site]]
url = "{at["folder"]}/docs/"
[[site]]
url = "{at["moved"]}/old/"
[[site]]
url = "{at["own"]}/"
group = "own"
deny = ["/left-out"]
queries = false
max_depth = 2
respect_robots = false
robots_reason = "our own site"
sitemaps = ["/sitemap-of-mine.xml"]
ports = [{servers["port"].server_port}]
[[site]]
url = "{at["member"]}/members/"
[site.login]
url = "/login"
fields = {{ user = "me", password = "env:SITE_PASSWORD" }}
success = "Sign out"
[[site]]
url = "{at["counted"]}/counted/"
cookies = true
[[site]]
url = "{at["basic"]}/basic/"
basic_auth = "env:SITE_LOGIN"
[[site]]
url = "{at["bearer"]}/bearer/"
bearer_token = "file:token"
[[site]]
url = "{at["plain"]}/"
""")
    command = [sys.executable, "-m", "headway", "crawl", str(folder / "job.toml"), "--forget"]
    done = subprocess.run(
        [*command, "-o", str(folder / "run"), "--json"],
        env=os.environ | SECRETS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "only the folder of the start URL is crawled" in done.stderr
    assert all(site["verdict"] != "missed" for site in json.loads(done.stdout)["sites"])
    return folder / "run"


def test_a_start_url_that_is_a_folder_is_the_site(run: Path, servers: dict[str, Server]) -> None:
    assert servers["folder"].paths() == {"/docs/", "/docs/a.html"}


def test_the_folder_goes_with_a_redirect_of_the_start_page(run: Path, servers: dict[str, Server]) -> None:
    assert servers["moved"].paths() == {"/old/", "/new/index.html", "/new/1.html"}


def test_scope_depth_robots_and_sitemaps_are_the_sites_own(run: Path, servers: dict[str, Server]) -> None:
    asked = servers["own"].paths()
    assert {
        "/",
        "/closed/x.html",
        "/keep.html",
        "/1/",
        "/1/2/",
        "/sitemap-of-mine.xml",
        "/lonely.html",
    } <= asked
    assert not {"/left-out.html", "/q?x=1", "/1/2/3/", "/robots.txt"} & asked
    assert {"/left-out.html", "/q?x=1", "/1/2/3/"} <= servers["plain"].paths()
    assert "/closed/x.html" not in servers["plain"].paths()


def test_headers_and_user_agent_of_a_group(run: Path, servers: dict[str, Server]) -> None:
    for each in servers["own"].asked:
        sent = each.headers
        assert (sent["User-Agent"], sent["X-Plain"], sent["X-Key"]) == ("ownbot/2.0", "yes", "k-1b5f")
    assert all(each.headers["X-Plain"] is None for each in servers["plain"].asked)


def test_pages_behind_cookies_credentials_and_a_form(run: Path, servers: dict[str, Server]) -> None:
    pages = [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]
    fetched = {page["url"] for page in pages if page["status"] == 200}
    for name, path in [
        ("member", "members"),
        ("counted", "counted"),
        ("basic", "basic"),
        ("bearer", "bearer"),
    ]:
        assert f"{servers[name].name}/{path}/1.html" in fetched, name
    logins = [each for each in servers["member"].asked if each.method == "POST"]
    assert len(logins) == 1


def test_nothing_of_a_site_goes_to_another(run: Path, servers: dict[str, Server]) -> None:
    assert "/from-bearer.html" in servers["plain"].paths()
    for each in servers["plain"].asked:
        assert each.headers["Authorization"] is None
        assert each.headers["Cookie"] is None


def test_secrets_are_in_no_file_of_the_run(run: Path) -> None:
    files = [path for path in run.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".warc.gz") for path in files)
    texts = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files
    ]
    for value in (*SECRETS.values(), SESSION, base64.b64encode(b"me:w-90cd").decode(), "seen=1"):
        assert not any(value.encode() in text for text in texts), value
    assert any(b"X-Plain: yes" in text for text in texts)


def test_the_reason_is_in_the_archive(run: Path, servers: dict[str, Server]) -> None:
    warc = gzip.decompress(next(run.rglob("*.warc.gz")).read_bytes())
    assert f"robots-exceptions: {servers['own'].name}: our own site".encode() in warc
