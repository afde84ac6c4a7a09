"""A web that nobody here wrote: Debian's documentation, served by nginx as many sites.

Each site is one manual in one language, with an address of its own on the loopback, so that politeness by
site treats all crawlers alike. Only the HTML is served. A web of several `copies` has each manual again under
more addresses, with a comment at the end of every page, since a crawler that knows contents again keeps less.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    ("installation-guide-amd64", "usr/share/doc/installation-guide-amd64/*"),
    ("debian-handbook", "usr/share/doc/debian-handbook/html/*"),
    ("mailman3-doc", "usr/share/doc/mailman3/html"),
    ("libfelix-shell-java-doc", "usr/share/doc/libfelix-shell-java/api"),
    ("liboasis-ocaml-doc", "usr/share/doc/liboasis-ocaml-doc/oasis"),
    ("pypy3-doc", "usr/share/doc/pypy3/html"),
    ("libfontconfig-doc", "usr/share/doc/libfontconfig-dev/fontconfig-devel"),
    ("yaz-doc", "usr/share/doc/libyaz-dev"),
)
FOLDER = Path(__file__).parents[1] / "build" / "sites"
PORT = 18_480
_SUFFIXES = (".html", ".htm")
_MOST_FILES = 500_000
_OTHER_FILES = 500
_OTHER_FILES_A_SITE = 3
"""That nginx has open: a socket to hear on, a connection, and a file on its way out."""


class SiteFolder(NamedTuple):
    name: str
    root: Path
    url: str
    pages: int
    size_bytes: int


def make_web(copies: int = 1, folder: Path = FOLDER) -> list[SiteFolder]:
    """Download and unpack what is not there yet; nothing is installed, and no program of a package is run."""
    manuals: list[tuple[str, Path]] = []
    for package, pattern in PACKAGES:
        unpacked = folder / "packages" / package
        if not unpacked.is_dir():
            _unpack(package, unpacked)
        roots = sorted(root for root in unpacked.glob(pattern) if any(_html_files(root)))
        manuals += [(f"{package}-{root.name}" if len(roots) > 1 else package, root) for root in roots]
    sites = []
    for copy in range(copies):
        for name, root in manuals:
            number = len(sites) + 1
            url = f"http://127.1.{number // 250}.{number % 250 + 1}:{PORT}/"
            sites.append(_lay_out(root, folder / f"copy-{copy}" / name, url, copy))
    os.sync()  # or the first crawler would wait for the disk to take in what was laid out here
    return sites


def _unpack(package: str, place: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        here.chmod(0o755)
        subprocess.run(
            ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package],
            cwd=here,
            check=True,
            capture_output=True,
        )
        (archive,) = here.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(here / "unpacked")], check=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(here / "unpacked", place)


def _html_files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())


def _lay_out(source: Path, root: Path, url: str, copy: int) -> SiteFolder:
    if not root.is_dir():
        unfinished = root.with_name(root.name + ".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for path in _html_files(source):
            target = unfinished / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes() + (b"<!-- copy %d -->\n" % copy if copy else b""))
        (unfinished / "robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
        unfinished.rename(root)
    sizes = [path.stat().st_size for path in _html_files(root)]
    return SiteFolder(root.name, root, url, len(sizes), sum(sizes))


class Served(NamedTuple):
    """One line of the server's log."""

    at: float
    status: int
    url: str
    size_bytes: int


class Server:
    """nginx in front of the sites; its log says what was asked for, whoever asked."""

    def __init__(self, log: Path, pid: int) -> None:
        self._log = log
        self._pid = pid
        self._read_bytes = 0

    def cpu_s(self) -> float:
        """What nginx and its worker have used so far."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if int(fields[1]) == self._pid or stat.parent.name == str(self._pid):
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def requests(self) -> list[Served]:
        """Those since the last time. The log is written with a delay of a second."""
        time.sleep(1.2)
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().splitlines()
            self._read_bytes = file.tell()
        served = []
        for line in lines:
            at, status, size, address, target = line.decode().split(" ", 4)
            served.append(Served(float(at), int(status), f"http://{address}:{PORT}{target}", int(size)))
        return served


@contextmanager
def serve(sites: list[SiteFolder], *, core: int | None = None) -> Iterator[Server]:
    """One worker on one core."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "nginx.conf").write_text(_configuration(sites, here))
        pin = ["taskset", "-c", str(core)] if core is not None else []
        process = subprocess.Popen(
            [*pin, _nginx(), "-p", name, "-c", str(here / "nginx.conf"), "-e", str(here / "error.log")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_up(sites[-1].url, process, here / "error.log")
            server = Server(here / "access.log", process.pid)
            server.requests()
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _nginx() -> str:
    found = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        raise SystemExit("nginx is needed: apt-get install nginx-light")
    return found


def _configuration(sites: list[SiteFolder], here: Path) -> str:
    address = [site.url.removeprefix("http://").rstrip("/") for site in sites]
    servers = "\n".join(
        f'  server {{ listen {where} backlog=1024; root "{site.root}"; index index.html index.htm; }}'
        for site, where in zip(sites, address, strict=True)
    )
    temporary = " ".join(
        f"{kind}_temp_path {here}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    return f"""
daemon off; {user} worker_processes 1; pid {here}/pid; worker_rlimit_nofile {_most_files_open()};
events {{ worker_connections 8192; }}
http {{
  types {{ text/html html htm; text/plain txt; }} default_type application/octet-stream;
  log_format bench '$msec $status $body_bytes_sent $server_addr $request_uri';
  access_log {here}/access.log bench buffer=256k flush=1s; {temporary}
  sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 60; keepalive_requests 1000000; etag off;
  {_open_file_cache(sites)}
{servers}
}}
"""


def _open_file_cache(sites: list[SiteFolder]) -> str:
    """For all files or for none: a crawl asks for each once, and a smaller cache has forgotten it by the next
    crawl. A file beyond what a process may have open would not be served at all."""
    files = sum(site.pages + 1 for site in sites)
    if files + _OTHER_FILES + _OTHER_FILES_A_SITE * len(sites) > _most_files_open():
        return ""
    return (
        f"open_file_cache max={files} inactive=600s; open_file_cache_valid 600s; open_file_cache_errors on;"
    )


def _most_files_open() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)


def _wait_until_up(url: str, process: subprocess.Popen[bytes], errors: Path) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(url + "robots.txt", timeout=5).read()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nginx does not serve: {errors.read_text()[-400:] if errors.exists() else ''}")
