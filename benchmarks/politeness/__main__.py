"""`python -m benchmarks.politeness [--requests N] [--only PART]`

What servers feel of a crawl of many names: the shortest pause that each address gets from three collectors on
one PostgreSQL server, what a server that throttles by address sees, and what a farm of generated hosts takes
from honest sites.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.politeness.servers import Servers, pauses
from tests.support.postgres import TemporaryPostgres, find_postgres

NAMES, ADDRESSES, COLLECTORS = 500, 20, 3
ROOT = Path(__file__).parents[2]
FARM_LINKS = 50


def headway(*args: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.politeness.collector", *map(str, args), "-q"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)


def job_file(folder: Path, port: int, names: list[str], interval_s: float, more: str = "") -> Path:
    job = folder / "job.toml"
    sites = "".join(f'[[site]]\nurl = "http://{name}:{port}/"\n' for name in names)
    settings = f'interval = "{interval_s:g} s"\nallow_private = true\ntraps = false\nsitemaps = false\n{more}'
    job.write_text(f"[crawl]\n{settings}\n{sites}")
    return job


def finish(processes: list[subprocess.Popen[bytes]], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    for process in processes:
        _, said = process.communicate(timeout=max(1.0, end - time.monotonic()))
        if process.returncode:
            raise SystemExit(f"a collector ended with {process.returncode}: {said.decode()[-2000:]}")


def lab(requests: int, interval_s: float) -> dict[str, object]:
    """500 names on 20 addresses, three collectors."""
    pages = max(2, requests // NAMES - 1)
    names = [f"n{number}-a{1 + number % ADDRESSES}-lab.example" for number in range(NAMES)]

    def links_of(host: str, path: str) -> list[str]:
        return [f"/{number}" for number in range(1, pages)] if path == "/" else []

    with (
        Servers(ADDRESSES, links_of) as servers,
        TemporaryPostgres() as database,
        tempfile.TemporaryDirectory() as at,
    ):
        folder = Path(at)
        job = job_file(folder, servers.port, names, interval_s)
        store = database.address("politeness")
        begun_at = time.monotonic()
        processes = [headway("crawl", job, "--store", store, "-o", folder / "0")]
        time.sleep(3)
        processes += [
            headway("collect", "--store", store, "-o", folder / str(number))
            for number in range(1, COLLECTORS)
        ]
        finish(processes, 4 * 3600)
        took_s = time.monotonic() - begun_at
        asked = servers.asked
    by_address = pauses(asked, lambda each: each.address, interval_s)
    fetched = Counter((each.host, each.path) for each in asked if each.status == 200)
    return {
        "requests": len(asked),
        "seconds": round(took_s, 1),
        "collectors": COLLECTORS,
        "addresses": len({each.address for each in asked}),
        "interval_ms": interval_s * 1000,
        "shortest_pause_ms": round(by_address.shortest_s * 1000, 2),
        "too_soon": by_address.too_soon,
        "at_once": by_address.at_once,
        "lost": pages * NAMES - len(fetched),
        "doubled": sum(count - 1 for count in fetched.values()),
    }


def throttled(interval_s: float) -> dict[str, object]:
    """40 names of one address, which allows a client 10 requests a second and is asked for more."""
    names = [f"n{number}-a1-lab.example" for number in range(40)]
    pages = 15

    def links_of(host: str, path: str) -> list[str]:
        return [f"/{number}" for number in range(1, pages)] if path == "/" else []

    with Servers(1, links_of, most_a_second=10) as servers, tempfile.TemporaryDirectory() as at:
        more = 'backoff = "1 s"\nretry_penalty = "1 s"\nmax_attempts = 20'
        job = job_file(Path(at), servers.port, names, interval_s, more)
        finish([headway("crawl", job, "-o", Path(at) / "run")], 1800)
        asked = servers.asked
    refused = sum(each.status == 429 for each in asked)
    fetched = {(each.host, each.path) for each in asked if each.status == 200}
    return {
        "requests": len(asked),
        "refused": refused,
        "refused_share": round(refused / len(asked), 4),
        "lost": pages * len(names) - len(fetched),
    }


def farm(interval_s: float) -> dict[str, object]:
    """20 honest sites, and one that leads to 100,000 generated hosts of one domain and address."""
    honest = [f"n{number}-a{number}-lab.example" for number in range(1, ADDRESSES)]
    pages, hosts = 40, 100_000

    def links_of(host: str, path: str) -> list[str]:
        if ".a20-lab." in host or "-a20-lab." in host:
            first = hash((host, path)) % hosts
            return [
                f"http://f{(first + step) % hosts}.a20-lab.example:{servers.port}/"
                for step in range(FARM_LINKS)
            ]
        links = [f"/{number}" for number in range(1, pages)] if path == "/" else []
        return [*links, f"http://f{hash(host) % hosts}.a20-lab.example:{servers.port}/"]

    servers = Servers(ADDRESSES, links_of)
    with servers, tempfile.TemporaryDirectory() as at:
        more = '[crawl.scope]\nsuffixes = ["example"]\nmax_depth = 6'
        job = job_file(Path(at), servers.port, honest, interval_s, more)
        process = headway("crawl", job, "-o", Path(at) / "run")
        end, asked, done = time.monotonic() + 600, [], 0
        wanted = pages * len(honest)
        while time.monotonic() < end and process.poll() is None:
            asked = list(servers.asked)
            done = sum(each.status == 200 and "a20-lab" not in each.host for each in asked)
            if done >= wanted:
                break
            time.sleep(0.2)
        process.terminate()
        _, said = process.communicate(timeout=60)
    if not asked:
        raise SystemExit(f"the crawl ended with {process.returncode}: {said.decode()[-2000:]}")
    to_farm = [each for each in asked if "a20-lab" in each.host]
    shortest_s = pauses(to_farm, lambda each: each.address, interval_s).shortest_s
    return {
        "honest_pages": done,
        "lost": wanted - done,
        "farm_requests": len(to_farm),
        "farm_share": round(len(to_farm) / max(1, len(asked)), 4),
        "farm_hosts": len({each.host for each in to_farm}),
        "shortest_pause_of_farm_ms": round(shortest_s * 1000, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.politeness", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--interval", type=float, default=0.02)
    parser.add_argument("--only", choices=("lab", "throttled", "farm"))
    wanted = parser.parse_args()
    if find_postgres() is None:
        raise SystemExit("the laboratory needs PostgreSQL: scripts/install-test-tools")
    parts = {
        "lab": lambda: lab(wanted.requests, wanted.interval),
        "throttled": lambda: throttled(0.02),
        "farm": lambda: farm(0.1),
    }
    is_good = True
    for name, part in parts.items():
        if wanted.only in {None, name}:
            found = part()
            print(f"{name}:", *(f"{key} {value}" for key, value in found.items()), sep="\n  ")
            bad = ("too_soon", "at_once", "lost", "doubled")
            is_good = is_good and not any(found.get(key) for key in bad)
    print("as it should be" if is_good else "NOT as it should be")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
