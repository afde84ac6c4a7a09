"""A crawl in the background, and one with a part of the link: what they do is logged, stored and shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headway.demoweb import QUICK, ServedProcess, design_web

HEADWAY = Path(sys.executable).with_name("headway")


def crawled(folder: Path, crawl: str, urls: list[str], *options: str) -> None:
    job = folder / "job.toml"
    sites = "".join(f'[[site]]\nurl = "{url}"\nmax_pages = 30\n' for url in urls)
    job.write_text(f'[crawl]\n{crawl}\ninterval = "50 ms"\nallow_private = true\n{sites}')
    done = subprocess.run(
        [HEADWAY, "crawl", str(job), "-o", str(folder / "run"), "-q", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def status(folder: Path, *options: str) -> str:
    return subprocess.run(
        [HEADWAY, "status", str(folder / "run"), *options], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are those of Linux")
def test_status_and_report_say_how_the_crawl_yielded(tmp_path: Path) -> None:
    with ServedProcess(design_web(seed=5, scale=0.5, roster=("plain",) * 3, tempo=QUICK)) as served:
        crawled(tmp_path, 'bandwidth = "4 Mbit/s"\nbackground = true', list(served.urls))
    lines = (tmp_path / "run" / "decisions.jsonl").read_text().splitlines()
    yields = [each for each in map(json.loads, lines) if each["decision"] == "yield"]
    assert yields
    assert all(0 < each["rate_bytes_per_s"] <= 500_000 for each in yields)
    sharing = json.loads(status(tmp_path, "--json"))["sharing"]
    assert sharing["seconds"] == len(yields)
    assert f"of {len(yields)} seconds" in status(tmp_path)
    bounds = [json.loads(line) for line in lines if '"set-capacity"' in line]
    assert [each["capacity_bytes_per_s"] for each in bounds] == [500_000.0], "the bound stays the bound"
    subprocess.run([HEADWAY, "report", str(tmp_path / "run")], capture_output=True, check=True)
    assert "gave way to others" in (tmp_path / "run" / "report" / "report.html").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are those of Linux")
def test_a_part_of_the_link_is_found_out_and_shown(tmp_path: Path) -> None:
    with ServedProcess(design_web(seed=5, scale=0.5, roster=("plain",) * 3, tempo=QUICK)) as served:
        crawled(tmp_path, 'bandwidth = "60% of link"', list(served.urls))
    assert json.loads(status(tmp_path, "--json"))["done"] >= 30


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are those of Linux")
def test_the_processes_of_a_crawl_agree_on_what_they_do(tmp_path: Path) -> None:
    with ServedProcess(design_web(seed=5, scale=0.5, roster=("plain",) * 4, tempo=QUICK)) as served:
        crawled(tmp_path, 'bandwidth = "4 Mbit/s"\nbackground = true', list(served.urls), "--processes", "2")
    lines = (tmp_path / "run" / "decisions.jsonl").read_text().splitlines()
    yields = [each for each in map(json.loads, lines) if each["decision"] == "yield"]
    assert all(0 < each["rate_bytes_per_s"] <= 500_000 for each in yields), "the rate is that of all"
    seconds = {int(each["at"]) for each in yields}
    assert json.loads(status(tmp_path, "--json"))["sharing"]["seconds"] == len(seconds)


@pytest.mark.parametrize(
    ("crawl", "where"),
    [
        ('bandwidth = "1 kbit/s"', "crawl.bandwidth"),
        ('bandwidth = "1 MB/s"\nbandwidth_up = "1 bit/s"', "crawl.bandwidth_up"),
    ],
)
def test_a_bound_of_less_than_a_packet_a_second_is_refused(tmp_path: Path, crawl: str, where: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[crawl]\n{crawl}\n[[site]]\nurl = "http://127.0.0.1:9/"\n')
    done = subprocess.run(
        [HEADWAY, "crawl", str(job), "-o", str(tmp_path / "run"), "-q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert f"{where}: " in done.stderr
    assert "less than one packet (1,514 bytes) a second; write at least '13 kbit/s'" in done.stderr
    assert not (tmp_path / "run").exists()
