"""The crawlers, each at its best settings for this web, as commands. What was tried is in the README."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / "build" / "peers"
_NOT_PAGES = "img,link,script,input,body,embed,object,video,audio,source"

Command = Callable[[Path, Sequence[str]], list[str]]
"""From a folder to write into and the sites' first pages to what is run."""


class Crawler(NamedTuple):
    name: str
    command: Command
    version: str
    keeps: str
    """What of a page is on disk at the end."""
    good_exits: tuple[int, ...] = (0,)
    has_two_cores: bool = False
    """The second may be that of the server, which needs little of it."""


class MissingError(Exception):
    """A peer that is not available here."""


def headway(folder: Path, urls: Sequence[str]) -> list[str]:
    """Everything on: robots.txt, the decision log, known contents, and a bound far above what is reached."""
    options = ["--interval", "0s", "--bandwidth", "8Gbit/s", "--accept", "text/html", "--allow-private", "-q"]
    if urls and urls[0].startswith("https:"):
        options.append("--insecure")
    program = str(Path(sys.executable).with_name("headway"))
    return [program, "crawl", *options, "-o", str(folder / "run"), *urls]


def headway_exact(folder: Path, urls: Sequence[str]) -> list[str]:
    """Copies are known by their digest alone; no search for near-duplicates, traps and mirrors."""
    job = folder / "job.toml"
    sites = "".join(f'[[site]]\nurl = "{url}"\n' for url in urls)
    job.write_text(f'[crawl]\nnear_duplicates = false\ntraps = false\nmirrors = "ignore"\n{sites}')
    command = [word for word in headway(folder, urls) if word not in urls]
    return [*command, str(job)]


def headway_twice(folder: Path, urls: Sequence[str]) -> list[str]:
    return [*headway(folder, urls), "--processes", "2"]


def headway_apart(folder: Path, urls: Sequence[str]) -> list[str]:
    """Two crawls that know nothing of each other, each of half the sites: all that two cores give."""
    halves = []
    for number in (0, 1):
        (folder / str(number)).mkdir()
        halves.append(shlex.join(headway(folder / str(number), urls[number::2])))
    return ["sh", "-c", f"{halves[0]} & {halves[1]} & wait"]


def wget2(folder: Path, urls: Sequence[str]) -> list[str]:
    quietly = ["--no-config", "-q", "--no-http2", "--robots=on", f"--ignore-tags={_NOT_PAGES}"]
    if urls[0].startswith("https:"):
        quietly.append("--no-check-certificate")
    return ["wget2", "-r", "-l", "inf", *quietly, "-P", str(folder), *urls]


def httrack(folder: Path, urls: Sequence[str]) -> list[str]:
    no_limits = ["-c8", "-%c0", "-%!", "-A0", "-s2"]
    no_extras = ["-q", "-Q", "-C0", "-I0", "-p1"]
    return ["httrack", *urls, "-O", str(folder), *no_limits, *no_extras]


def all_crawlers() -> dict[str, Callable[[], Crawler]]:
    return {
        "headway": lambda: Crawler("headway", headway, _headway_version(), "WARC"),
        "headway-cores": lambda: Crawler(
            "headway, one process on two cores", headway, _headway_version(), "WARC", has_two_cores=True
        ),
        "headway-exact": lambda: Crawler("headway, digests only", headway_exact, _headway_version(), "WARC"),
        "headway-2": lambda: Crawler(
            "headway --processes 2", headway_twice, _headway_version(), "WARC", has_two_cores=True
        ),
        "headway-apart": lambda: Crawler(
            "headway, two crawls apart", headway_apart, _headway_version(), "WARC", has_two_cores=True
        ),
        "scrapy": lambda: _python_peer("scrapy", "Scrapy", ["scrapy==2.19.0", "uvloop"], "scrapy_stock_peer"),
        "scrapy-tuned": lambda: _python_peer("scrapy", "Scrapy, tuned by hand", ["scrapy==2.19.0", "uvloop"]),
        "crawlee": lambda: _python_peer(
            "crawlee", "Crawlee for Python", ["crawlee[parsel]==1.11.0", "selectolax", "uvloop"]
        ),
        "httrack": lambda: _program("httrack", httrack, "HTTrack version ", (0,)),
        # 8: some links lead nowhere.
        "wget2": lambda: _program("wget2", wget2, "GNU Wget2 ", (0, 8)),
    }


def _headway_version() -> str:
    from headway.version import __version__

    return __version__


def _python_peer(name: str, title: str, packages: list[str], script_name: str | None = None) -> Crawler:
    """A peer in an environment of its own, made once, since its pins would fight with ours."""
    python = PEERS / name / "bin" / "python"
    if not (PEERS / name / "complete").exists():
        shutil.rmtree(PEERS / name, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True, capture_output=True)
            install = [str(python), "-m", "pip", "install", "--quiet", *packages]
            subprocess.run(install, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as problem:
            raise MissingError(f"{title}: {str(problem.stderr)[-200:]}") from problem
        (PEERS / name / "complete").touch()
    ask = f"import importlib.metadata as m; print(m.version('{name}'))"
    version = subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True).stdout
    script = str(HERE / f"{script_name or f'{name}_peer'}.py")
    return Crawler(
        title, lambda folder, urls: [str(python), script, str(folder), *urls], version.strip(), "bodies"
    )


def _program(name: str, command: Command, before: str, good_exits: tuple[int, ...]) -> Crawler:
    if shutil.which(name) is None:
        raise MissingError(f"{name}: apt-get install {name}")
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
    version = said.partition(before)[2].split()[0].partition("+")[0] if before in said else "?"
    return Crawler({"httrack": "HTTrack", "wget2": "wget2 -r"}[name], command, version, "files", good_exits)
