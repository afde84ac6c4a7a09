"""On a machine without a compiler, with one core or with little memory a crawl is slower, and the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb

ROOT = Path(__file__).resolve().parents[2]
OWN = [
    "headway." + str(path.relative_to(ROOT / "src" / "headway").with_suffix("")).replace("/", ".")
    for path in sorted((ROOT / "src" / "headway").rglob("_*.c"))
]
WITHOUT_A_COMPILER = f"sys.modules.update(dict.fromkeys({OWN!r}))"
ONE_CORE = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
LITTLE_MEMORY = "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))"
MACHINES = {
    "without a compiler": WITHOUT_A_COMPILER,
    "one core": ONE_CORE,
    "a gigabyte of address space": LITTLE_MEMORY,
    "all of it": f"{WITHOUT_A_COMPILER}; {ONE_CORE}; {LITTLE_MEMORY}",
}


def crawl(web: FleetWeb, out: Path, machine: str) -> None:
    start = f"import os, resource, sys; {machine}; from headway.cli import main; sys.exit(main())"
    options = ["--allow-private", "--interval", "0s", "-q", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", start, "crawl", *web.seeds, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def pages_of(out: Path) -> set[tuple[object, ...]]:
    lines = [json.loads(line) for line in (out / "pages.jsonl").read_text().splitlines()]
    found = {tuple(line[name] for name in ("url", "status", "bytes", "depth", "digest")) for line in lines}
    assert len(found) == len(lines)
    return found


def records_of(out: Path) -> list[tuple[str, ...]]:
    """What the index says of each capture, but for its time, its place in the file and the file's name."""
    lines = (out / "indexes" / "index.cdxj").read_text().splitlines()
    fields = [json.loads(line.split(" ", 2)[2]) for line in lines]
    return sorted((each["url"], each["mime"], each["status"], each["digest"]) for each in fields)


@pytest.mark.parametrize("name", MACHINES)
def test_a_poor_machine_crawls_the_same_pages(tmp_path: Path, name: str) -> None:
    with FleetWeb(sites=3, pages=8) as web:
        crawl(web, tmp_path / "usual", "pass")
        crawl(web, tmp_path / "poor", MACHINES[name])
    assert len(pages_of(tmp_path / "usual")) == 24
    assert pages_of(tmp_path / "poor") == pages_of(tmp_path / "usual")
    assert records_of(tmp_path / "poor") == records_of(tmp_path / "usual")
    checked = subprocess.run(
        [Path(sys.executable).with_name("warcio"), "check", *(tmp_path / "poor" / "archive").iterdir()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
