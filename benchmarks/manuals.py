"""A real web: Debian's documentation, served by nginx as many sites.

Each site is one manual in one language, with an address of its own on the loopback, so that politeness by
site treats all crawlers alike. Only the HTML is served. A web of several `copies` has each manual again under
more addresses, with a comment at the end of every page, since a crawler that knows contents again keeps less.
The same web can be served over TLS, with a certificate that nobody knows, or compressed.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

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


GZIP_LEVEL = 6


class SiteFolder(NamedTuple):
    name: str
    root: Path
    url: str
    pages: int
    size_bytes: int


def make_web(
    copies: int = 1, folder: Path = FOLDER, *, is_secure: bool = False, is_compressed: bool = False
) -> list[SiteFolder]:
    """Download and unpack what is not there yet; nothing is installed, and no program of a package is run.

    `is_compressed`: beside each page lies its gzip file, which nginx sends to those that accept it.
    """
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
            scheme = "https" if is_secure else "http"
            url = f"{scheme}://127.1.{number // 250}.{number % 250 + 1}:{PORT}/"
            place = folder / ("compressed" if is_compressed else "") / f"copy-{copy}" / name
            sites.append(_lay_out(root, place, url, copy, is_compressed=is_compressed))
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


def _lay_out(source: Path, root: Path, url: str, copy: int, *, is_compressed: bool) -> SiteFolder:
    if not root.is_dir():
        unfinished = root.with_name(root.name + ".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for path in _html_files(source):
            target = unfinished / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() + (b"<!-- copy %d -->\n" % copy if copy else b"")
            target.write_bytes(content)
            if is_compressed:
                target.with_name(target.name + ".gz").write_bytes(gzip.compress(content, GZIP_LEVEL, mtime=0))
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
    """nginx in front of the sites; its log says what was asked for, by any program."""

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
            at, status, size, scheme, address, target = line.decode().split(" ", 5)
            served.append(Served(float(at), int(status), f"{scheme}://{address}:{PORT}{target}", int(size)))
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
    address = [site.url.partition("://")[2].rstrip("/") for site in sites]
    is_secure = sites[0].url.startswith("https:")
    secure = _certificate(sites, here) if is_secure else ""
    how = "ssl backlog=1024" if is_secure else "backlog=1024"
    servers = "\n".join(
        f'  server {{ listen {where} {how}; root "{site.root}"; index index.html index.htm; }}'
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
  log_format bench '$msec $status $body_bytes_sent $scheme $server_addr $request_uri';
  access_log {here}/access.log bench buffer=256k flush=1s; {temporary}
  sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 60; keepalive_requests 1000000; etag off;
  gzip_static on; gzip_vary off; {secure}
  {_open_file_cache(sites)}
{servers}
}}
"""


def _certificate(sites: list[SiteFolder], here: Path) -> str:
    """One for all sites, of an authority that nobody trusts: all crawlers are set not to verify it."""
    import trustme

    hosts = [str(urlsplit(site.url).hostname) for site in sites]
    certificate = trustme.CA().issue_cert(*hosts)
    certificate.private_key_pem.write_to_path(here / "key.pem")
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(here / "certificate.pem", append=number > 0)
    return (
        f"ssl_certificate {here}/certificate.pem; ssl_certificate_key {here}/key.pem; "
        "ssl_session_cache shared:bench:10m;"
    )


def _open_file_cache(sites: list[SiteFolder]) -> str:
    """For all files or for none: a crawl asks for each once, and a smaller cache has forgotten it by the next
    crawl. A file beyond what a process may have open would not be served at all."""
    files = sum(2 * site.pages + 1 for site in sites)  # that there is no gzip file is remembered, too
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
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            urllib.request.urlopen(url + "robots.txt", timeout=5, context=context).read()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nginx does not serve: {errors.read_text()[-400:] if errors.exists() else ''}")
